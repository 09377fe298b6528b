"""Tables 1 and 2 for one world, with several processes on one GPU.

Networks this small leave a GPU mostly idle, so Table 1's methods are trained at the same time, each in a process of its
own; they share a folder of models, and the table is then made from it alone, so that costs can be compared. Table 2
comes last: it finds two of its rows among those models and trains the others. With NVIDIA's multi-process service the
processes run truly side by side; it is started if it is there.

    python benchmarks/tables.py --world carwash --out runs/tables/carwash

What each process says is in `OUT/logs`. The same command goes on where one that was stopped left off.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro

from elden.graphs.registry import DETECTORS


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

    def command(self, table: str, out: Path, *more: str) -> list[str]:
        """One `elden reproduce`."""
        shared = ["--preset", self.preset, "--worlds", self.world, "--models", str(self.out / "models")]
        command = [sys.executable, "-m", "elden.cli", "reproduce", table, *shared, "--out", str(out)]
        return [*command, *more, *shlex.split(self.options)]


def trainings(args: Args) -> dict[str, list[str]]:
    """A command for each process that trains for Table 1."""
    if "table1" not in args.tables:
        return {}
    # Methods that read the same kind of network are trained by one process, so that none is trained twice.
    jobs: dict[str, list[str]] = {}
    for method, detector in DETECTORS.items():
        jobs.setdefault(type(detector.variant).__name__.lower(), []).append(method)
    return {
        name: args.command("table1", args.out / "trainings" / name, "--methods", *methods, "--no-figures")
        for name, methods in jobs.items()
    }


@contextmanager
def sharing() -> Iterator[None]:
    """Let processes share the GPU, where that is possible."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield
        return
    ours = subprocess.run([control, "-d"], check=False).returncode == 0  # not if another run has started it already
    time.sleep(2)
    try:
        yield
    finally:
        if ours:
            subprocess.run([control], input=b"quit\n", check=False)


def run_all(commands: dict[str, list[str]], logs: Path, deadline_s: float | None) -> list[str]:
    """Run commands at the same time; the names of those that failed or were stopped."""
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    with ExitStack() as files:
        started = {}
        for name, command in commands.items():
            if deadline_s is not None:
                command = [*command, "--time-limit-s", str(max(1.0, deadline_s - time.monotonic()))]
            log = files.enter_context((logs / f"{name}.log").open("w"))
            started[name] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        return [name for name, process in started.items() if process.wait() != 0]


def main(args: Args) -> None:
    """Train at the same time, then make the tables one after the other."""
    deadline_s = None if args.time_limit_s is None else time.monotonic() + args.time_limit_s
    with sharing():
        failed = run_all(trainings(args), args.out / "logs", deadline_s)
    for table in args.tables:
        failed = failed or run_all({table: args.command(table, args.out / table)}, args.out / "logs", deadline_s)
    if failed:
        sys.exit(f"{', '.join(failed)} failed or ran out of time; see {args.out / 'logs'}")


if __name__ == "__main__":
    main(tyro.cli(Args))
