"""The same small sweep for every bonus of the map: its weight, and the updates of its networks.

In a chain of five links among one noisy and two intricate entities, with seeds that are not those of the map. Weights
and updates are varied each alone, then a third of the weight of `plus` with the updates that had helped. Bonuses
without networks have no updates to vary; of those with two kinds of networks the dynamics models' are varied. Every
cell is an `elden train`, so the same command continues where one was stopped.

    python experiments/bonus_sweep.py --jobs 2 --rows influence-count rnd icm e3b noveld    # on two CPU cores
    python experiments/bonus_sweep.py --jobs 8                                              # all of it, on a GPU
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro
from exploration_map import BASES

from elden.bonuses import BonusConfig
from elden.bonuses.registry import settings_read
from elden.cli import main as elden
from elden.names import nearest_names

WORLD = "sweep=chain --depth 5 --inert 1 --noisy 1 --intricate 2 --max-steps 30 --steps 614400"
WEIGHTS = (0.1, 0.03, 0.3, 0.01)
"""Those of the intrinsic reward, the preset's first."""
UPDATES = {
    "fit": ("fit.updates", (8, 128, 512), (128, 512)),
    "change": ("change.whether.updates", (8, 128, 512), (128, 512)),
    "ensemble": ("ensemble.updates", (16, 256, 4), (16, 4)),
}
"""For each group of settings the option of its updates, what is tried instead of the preset's 32 or 64, and what is
tried together with a smaller weight: small networks gain by more updates, dynamics models by fewer."""
SWEPT = tuple(name for name in BASES if name not in ("none", "change-count"))


@dataclass(frozen=True)
class Args:
    """Which part of the sweep to make."""

    out: Path = Path("runs/sweep")
    """Folder for tables and figures, with a run folder for each cell in it."""
    rows: tuple[str, ...] = SWEPT
    """Bonuses by their names on the map."""
    seeds: int = 4
    """Agents in each cell."""
    seed: int = 400
    """Seed of the first."""
    jobs: int = 1
    """Training runs at the same time."""
    report_only: bool = False
    """Train nothing; write the tables and figures of what is there."""


def variants(row: str) -> list[str]:
    """The settings that are tried of one bonus: the preset's, then each change alone."""
    read = settings_read(BASES[row].split()[1], BonusConfig())
    group = next((each for each in reversed(UPDATES) if each in read), None)
    changes = {f"weight {weight}": f"--loop.intrinsic-weight {weight}" for weight in WEIGHTS}
    if group is not None:
        option, alone, together = UPDATES[group]
        changes |= {f"{number} updates": f"--bonus.{option} {number}" for number in alone}
        low = f"weight {WEIGHTS[1]}"
        changes |= {f"{low}, {number} updates": f"{changes[low]} --bonus.{option} {number}" for number in together}
    return [f"{row}, {what}={BASES[row]} {options}" for what, options in changes.items()]


def words(args: Args) -> list[str]:
    """The words of `elden compare`.

    Raises:
        SystemExit: A name is not one of the map's.
    """
    for name in args.rows:
        if name not in BASES:
            sys.exit(f"no {name!r} on the map; {nearest_names(name, BASES)}")
    rows = [variant for row in args.rows for variant in variants(row)]
    options = {"seeds": args.seeds, "seed": args.seed, "jobs": args.jobs, "iterations-per-call": 6, "out": args.out}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    flags = ["--report-only"] if args.report_only else []
    return ["compare", "--worlds", WORLD, "--bonuses", "--variants", *rows, *given, *flags]


if __name__ == "__main__":
    sys.exit(elden(words(tyro.cli(Args, description=__doc__))))
