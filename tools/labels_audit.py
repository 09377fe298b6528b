"""Check the true local graphs of every world against the simulator, by intervention, and write the table of the docs.

For sampled transitions every variable is set to its other values, everything else equal, and the step is taken again:
see `elden.studies.audit`.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import jax
import tyro
from rich.console import Console
from rich.table import Table

import elden
from elden.provenance import provenance
from elden.studies.audit import Audit, audit, reason, sample, table

CASES: dict[str, dict[str, str | int | bool]] = {
    "thawing skills teleport": {"name": "thawing"},
    "thawing skills path": {"name": "thawing", "goto": "path"},
    "thawing primitives": {"name": "thawing", "profile": "primitives", "max_steps": 100},
    "carwash skills teleport": {"name": "carwash"},
    "carwash skills path": {"name": "carwash", "goto": "path"},
    "carwash skills, lag 0": {"name": "carwash", "car_clean_lag": 0},
    "carwash primitives": {"name": "carwash", "profile": "primitives", "max_steps": 300},
    "minecraft skills teleport": {"name": "minecraft"},
    "minecraft skills path": {"name": "minecraft", "goto": "path"},
    "minecraft primitives": {"name": "minecraft", "profile": "primitives", "max_steps": 300},
    "kitchen": {"name": "kitchen"},
    "kitchen, full labels": {"name": "kitchen", "full_labels": True},
    "empty": {"name": "empty"},
    "chain": {"name": "chain"},
}


@dataclass(frozen=True)
class Args:
    """What to audit."""

    cases: tuple[str, ...] = tuple(CASES)
    """Worlds and profiles."""
    per_event: int = 60
    """Transitions to audit for every event."""
    draws: int = 4
    """Draws of chance under which every intervention is tried."""
    seed: int = 0
    """Seed."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


def run(case: str, args: Args) -> Audit:
    """Audit one world."""
    options = dict(CASES[case])
    world = elden.make(str(options.pop("name")), **options)
    sample_key, audit_key = jax.random.split(jax.random.key(args.seed))
    return audit(world, sample(world, sample_key, args.per_event), audit_key, args.draws)


def reasons(found: Audit) -> dict[str, int]:
    """How many claims stayed unconfirmed, by reason."""
    counts = Counter(reason(found, i, child, parent) for i, child, parent, _ in found.unconfirmed())
    return dict(counts.most_common())


def show(case: str, rows: list[dict[str, str | int | float]], why: dict[str, int]) -> None:
    """Print one world's table."""
    sheet = Table(title=case)
    for heading in ("event", "transitions", "claimed", "confirmed", "share", "by a legal state", "omitted", "by"):
        sheet.add_column(heading, justify="left" if heading in ("event", "by") else "right")
    for row in rows:
        share = f"{100 * float(row['confirmed_share']):.1f} %"
        cells = [str(row[key]) for key in ("event", "transitions", "claimed", "confirmed")]
        sheet.add_row(
            *cells, share, str(row["confirmed_by_legal_state"]), str(row["omitted"]), str(row["omitted_parents"])
        )
    console = Console(width=120)
    console.print(sheet)
    for sentence, count in why.items():
        console.print(f"  unconfirmed: {count} ({sentence})")


def main() -> None:
    args = tyro.cli(Args, description=__doc__)
    report: dict[str, object] = {**provenance(), "per_event": args.per_event, "draws": args.draws}
    worlds: dict[str, object] = {}
    for case in args.cases:
        found = run(case, args)
        rows, why = table(found.reports), reasons(found)
        show(case, rows, why)
        worlds[case] = {"audited": len(found.samples.actions), "events": rows, "unconfirmed": why}
    report["worlds"] = worlds
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
