"""Tables 1 and 2 for one world, with several processes on one GPU.

Networks this small leave a GPU mostly idle, so Table 1's methods are trained at the same time, each in a process of its
own; they share a folder of models, and the table is then made from it alone, so that costs can be compared. Table 2
comes last: it finds two of its rows among those models and trains the others. With NVIDIA's multi-process service the
processes run truly side by side; it is started if it is there.

    python experiments/tables.py --world carwash --out runs/tables/carwash

What each process says is in `OUT/logs`. The same command continues where one that was stopped left off.
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from elden.graphs.registry import DETECTORS
from elden.storage.resumable import Deadline
from elden.studies.processes import Job, run_jobs, sharing


@dataclass(frozen=True)
class Args:
    """What to run."""

    world: str = "carwash"
    """The world."""
    preset: str = "paper"
    """Settings of the study."""
    out: Path = Path("runs/tables")
    """Folder for models, logs and both tables."""
    tables: tuple[str, ...] = ("table1", "table2")
    """Which tables."""
    options: str = ""
    """Further options of `elden reproduce`, as one word: --options="--precision bfloat16"."""
    time_limit_s: float | None = None
    """Stop after so many seconds; what was done is kept."""

    def command(self, table: str, out: Path, *more: str) -> tuple[str, ...]:
        """One `elden reproduce`."""
        shared = ["--preset", self.preset, "--worlds", self.world, "--models", str(self.out / "models")]
        command = [sys.executable, "-m", "elden.cli", "reproduce", table, *shared, "--out", str(out)]
        return (*command, *more, *shlex.split(self.options))


def training_jobs(args: Args) -> list[Job]:
    """A command for each process that trains for Table 1."""
    if "table1" not in args.tables:
        return []
    # Methods that read the same kind of network are trained by one process, so that none is trained twice.
    jobs: dict[str, list[str]] = {}
    for method, detector in DETECTORS.items():
        jobs.setdefault(type(detector.variant).__name__.lower(), []).append(method)
    return [
        Job(name, args.command("table1", args.out / "trainings" / name, "--methods", *methods, "--no-figures"))
        for name, methods in jobs.items()
    ]


def failures(jobs: Sequence[Job], logs: Path, deadline: Deadline) -> list[str]:
    """Run commands at the same time; the names of those that failed or were stopped."""
    codes = run_jobs(jobs, logs, deadline=deadline)
    return [job.name for job in jobs if codes.get(job.name) != 0]


def main(args: Args) -> None:
    """Train at the same time, then make the tables one after the other."""
    deadline, logs = Deadline.after(args.time_limit_s), args.out / "logs"
    with sharing():
        failed = failures(training_jobs(args), logs, deadline)
    for table in args.tables:
        failed = failed or failures([Job(table, args.command(table, args.out / table))], logs, deadline)
    if failed:
        sys.exit(f"{', '.join(failed)} failed or ran out of time; see {args.out / 'logs'}")


if __name__ == "__main__":
    main(tyro.cli(Args))
