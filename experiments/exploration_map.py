"""The map of who solves what: bonuses in worlds made for and against them, all with the same agent.

Columns are worlds, rows are bonuses; ten agents in each cell, with seeds that nothing was chosen by. Every cell is a
training run in a folder of its own, so that the same command continues where one was stopped, also on another machine
with a copy of the folder. Rows that read dynamics models need a GPU; the others take minutes a cell on two CPU cores.

    python experiments/exploration_map.py --out runs/map --jobs 10                       # all of it, on a GPU
    python experiments/exploration_map.py --rows influence-count none rnd --out runs/map    # without dynamics models
    python experiments/exploration_map.py --columns "hard chain" --rows influence-count --out runs/map
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from elden.cli import main as elden
from elden.names import nearest_names

_SIX = "chain --depth 6 --inert 2 --max-steps 40 --steps {steps}"
COLUMNS = {
    "thawing": "thawing",
    "carwash": "carwash --steps 2048000",
    "minecraft": "minecraft",
    "kitchen": "kitchen",
    "no distractors": f"{_SIX} --noisy 0 --intricate 0",
    "4 noisy": f"{_SIX} --noisy 4 --intricate 0",
    "3 intricate": f"{_SIX} --noisy 0 --intricate 3",
    "2 noisy, 3 intricate": f"{_SIX} --noisy 2 --intricate 3",
    "continuous, 2 noisy, 3 intricate": f"{_SIX} --noisy 2 --intricate 3 --continuous",
    "restless, 2 noisy, 3 intricate": f"{_SIX} --noisy 2 --intricate 3 --restless 8",
    "hard chain": (
        "chain --depth 8 --levels 3 --inert 2 --noisy 4 --intricate 4 --intricate-variables 4 --max-steps 60"
        " --steps 6144000"
    ),
    "thawing, primitives": "thawing --profile primitives --max-steps 100 --steps 2560000",
    "carwash, primitives": "carwash --profile primitives --max-steps 300 --steps 5120000",
    "minecraft, primitives": "minecraft --profile primitives --max-steps 500 --steps 10240000",
    "thawing, size 16": "thawing --size 16 --steps 512000",
    "carwash, size 16": "carwash --size 16 --steps 5120000",
}
"""The worlds, with the steps of each agent where they are not the preset's."""

_HALF = "--bonus.ensemble.train.precision bfloat16 --bonus.ensemble.chunk 256"
BASES = {
    "influence-count": "--bonus influence-count --bonus.no-models",
    "change-count": "--bonus change-count --bonus.no-models",
    "elden": f"--bonus elden --bonus.gate.kind none {_HALF}",
    "elden, surprise gate": f"--bonus elden {_HALF}",
    "curiosity, surprise gate": f"--bonus curiosity --bonus.gate.kind surprise {_HALF}",
    "dependency-surprise": f"--bonus dependency-surprise {_HALF}",
    "edge-count": f"--bonus edge-count {_HALF}",
    "curiosity": f"--bonus curiosity {_HALF}",
    "disagreement": f"--bonus disagreement {_HALF}",
    "cai": f"--bonus cai {_HALF}",
    "rnd": "--bonus rnd",
    "icm": "--bonus icm",
    "e3b": "--bonus e3b",
    "noveld": "--bonus noveld",
    "none": "--bonus none",
}
"""The bonuses with the preset's weight and updates; those that read dynamics models in half precision and small pieces,
so that five runs of ten agents fit on one GPU. Models beside influence-count do not change its rewards, and are left
out to save time."""

_BEST = {
    "elden": "--loop.intrinsic-weight 0.03",
    "elden, surprise gate": "--loop.intrinsic-weight 0.03 --bonus.ensemble.updates 16",
    "curiosity, surprise gate": "--loop.intrinsic-weight 0.03 --bonus.ensemble.updates 16",
    "dependency-surprise": "--bonus.ensemble.updates 4",
    "edge-count": "--bonus.ensemble.updates 4",
    "curiosity": "--bonus.ensemble.updates 16",
    "disagreement": "--loop.intrinsic-weight 0.03",
    "rnd": "--bonus.fit.updates 512",
    "icm": "--loop.intrinsic-weight 0.03",
    "noveld": "--bonus.fit.updates 512",
}
"""What `bonus_sweep.py` found to be best: the highest mean success, then the most stages. influence-count, cai and e3b
do best with the preset's; the control change-count has those of influence-count."""

ROWS = {name: f"{base} {_BEST.get(name, '')}".strip() for name, base in BASES.items()}


@dataclass(frozen=True)
class Args:
    """Which part of the map to make."""

    out: Path = Path("runs/map")
    """Folder for tables and figures, with a run folder for each cell in it."""
    columns: tuple[str, ...] = tuple(COLUMNS)
    """Worlds by their names here."""
    rows: tuple[str, ...] = tuple(ROWS)
    """Bonuses by their names here."""
    chain_steps: int = 2_048_000
    """Steps of each agent in the chains of six links."""
    seeds: int = 10
    """Agents in each cell."""
    seed: int = 1000
    """Seed of the first."""
    jobs: int = 1
    """Training runs at the same time."""
    iterations_per_call: int = 10
    """Rollouts made by one call of the compiled program."""
    time_limit_s: float | None = None
    """Stop after so many seconds; the same command then continues."""
    report_only: bool = False
    """Train nothing; write the tables and figures of what is there."""
    preset: Literal["plus", "paper"] = "plus"
    """The settings of the agent."""


def words(args: Args) -> list[str]:
    """The words of `elden compare`.

    Raises:
        SystemExit: A name is not one of the map's.
    """
    for name, known in [(each, COLUMNS) for each in args.columns] + [(each, ROWS) for each in args.rows]:
        if name not in known:
            sys.exit(f"no {name!r} on the map; {nearest_names(name, known)}")
    worlds = [f"{name}={COLUMNS[name].format(steps=args.chain_steps)}" for name in args.columns]
    rows = [f"{name}={ROWS[name]}" for name in args.rows]
    names = ("preset", "seeds", "seed", "jobs", "iterations_per_call")
    options = {name.replace("_", "-"): getattr(args, name) for name in names}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    limit = [] if args.time_limit_s is None else ["--time-limit-s", str(args.time_limit_s)]
    flags = [*limit, *(["--report-only"] if args.report_only else [])]
    return ["compare", "--worlds", *worlds, "--bonuses", "--variants", *rows, *given, *flags, "--out", str(args.out)]


if __name__ == "__main__":
    sys.exit(elden(words(tyro.cli(Args, description=__doc__))))
