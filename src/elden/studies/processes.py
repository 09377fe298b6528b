"""Several commands at the same time on one machine, each in a process of its own.

Small networks leave a GPU mostly idle: programs that share it take hardly longer together than one of them alone.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from elden.lifeline import GRACE_S, Lifeline
from elden.storage.resumable import Deadline

_POLL_S = 0.2


@dataclass(frozen=True)
class Job:
    """A command with a name."""

    name: str
    command: tuple[str, ...]


@contextmanager
def sharing() -> Iterator[None]:
    """Let processes run truly side by side on an NVIDIA GPU, by its multi-process service, where that is there."""
    control = shutil.which("nvidia-cuda-mps-control")
    if control is None:
        yield
        return
    # Not ours to end if another run has started it already.
    ours = subprocess.run([control, "-d"], check=False, capture_output=True).returncode == 0
    time.sleep(2)
    try:
        yield
    finally:
        if ours:
            subprocess.run([control], input=b"quit\n", check=False, capture_output=True)


def run_jobs(
    jobs: Sequence[Job],
    logs: Path,
    at_once: int | None = None,
    deadline: Deadline = Deadline(),  # noqa: B008 (frozen)
    look: Callable[[Sequence[str]], None] | None = None,
) -> dict[str, int]:
    """Run commands, some at a time, and give the exit code of each. Commands of ours end with this process.

    Args:
        jobs: The commands. Under a deadline each is given what is left as `--time-limit-s`.
        logs: Folder for what each of them prints.
        at_once: How many run at the same time; None runs all.
        deadline: When to stop. Those that have not begun by then are left out.
        look: Called again and again with the names of those that run.
    """
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    waiting, running, codes = list(jobs), dict[str, subprocess.Popen[bytes]](), dict[str, int]()
    with closing(Lifeline()) as lifeline, ExitStack() as files:
        files.callback(_stop, running)
        while waiting or running:
            while waiting and (at_once is None or len(running) < at_once) and not deadline.over:
                job = waiting.pop(0)
                log = files.enter_context((logs / f"{job.name}.log").open("a"))  # what came before says why it ended
                running[job.name] = lifeline.start(_limited(job.command, deadline), log, environment)
            if not running:
                break
            time.sleep(_POLL_S)
            for name in [name for name, process in running.items() if process.poll() is not None]:
                codes[name] = running.pop(name).returncode
            if look is not None:
                look(list(running))
    return codes


def _limited(command: Sequence[str], deadline: Deadline) -> list[str]:
    if deadline.at_s is None:
        return list(command)
    return [*command, "--time-limit-s", str(round(max(1.0, deadline.at_s - time.monotonic()), 1))]


def _stop(running: dict[str, "subprocess.Popen[bytes]"]) -> None:
    """Ask what still runs to terminate, and give it time to keep its state.

    Not by SIGINT, which a command in the background of a shell script ignores, and all that it starts.
    """
    try:
        for process in running.values():
            process.terminate()
        limit = time.monotonic() + GRACE_S
        for process in running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, limit - time.monotonic()))
    finally:  # also when this is interrupted
        for process in running.values():
            process.kill()
            process.wait()
