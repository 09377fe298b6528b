"""What all commands that take a while have in common: progress, being stopped, and files that cannot be used."""

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from elden.cli.errors import INTERRUPTED, STOPPED, UsageError
from elden.storage.resumable import OutOfTimeError

WRITABLE = "make it writable (chmod -R u+w), or work with a copy of it elsewhere"
"""What helps where a folder cannot be written to, whichever command is at hand."""

_LINE_EVERY_S = 30.0


def refusal(error: OSError) -> UsageError:
    """The line that answers a file or folder that cannot be read or written; it names the one that could not."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = f"{reason}; {WRITABLE}"
    if error.errno == errno.ENOSPC and not reason.startswith("the disk is full"):
        reason = "the disk is full"
    return UsageError(reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}")


@contextmanager
def stopping(console: Console, instead: str | None = None) -> Iterator[None]:
    """Say what to do when the time limit is over, and end with an exit code of its own.

    A request to terminate (SIGTERM) counts as an interruption.

    Args:
        console: Where to say it.
        instead: Another command that continues as well.
    """
    on = "the same command" if instead is None else f"the same command, or `{instead}`,"
    before = signal.getsignal(signal.SIGTERM)
    main_thread = threading.current_thread() is threading.main_thread()
    if main_thread:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except OutOfTimeError as stop:
        console.print(f"{stop}; what was done is kept, and {on} continues from there", markup=False)
        raise SystemExit(STOPPED) from None
    except KeyboardInterrupt:
        console.print(f"interrupted; {on} continues from what was kept", markup=False)
        raise SystemExit(INTERRUPTED) from None
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def study_progress(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each thing that is being done; without a terminal, a line at its start and every half minute."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, *times, console=console) as bar:
        tasks = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield tell


class _Lines:
    """Progress as lines of text."""

    def __init__(self, console: Console) -> None:
        self.console, self.what, self.said = console, "", 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what == self.what and now - self.said < _LINE_EVERY_S:
            return
        first = f"{what}, compiling first" if done == 0 else what
        self.console.print(first if what != self.what else f"{what}: {done:,} of {total:,}")
        self.what, self.said = what, now
