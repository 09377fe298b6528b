"""What all commands that take a while have in common: progress, being stopped, and files that cannot be used."""

import errno
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from elden.cli.errors import INTERRUPTED, STOPPED, UsageError
from elden.storage.resumable import ASKED_TO_STOP, Deadline, OutOfTimeError

WRITABLE = "make it writable (chmod -R u+w), or work with a copy of it elsewhere"
"""What helps where a folder cannot be written to, whichever command is at hand."""

_LINE_EVERY_S = 30.0
_AGAIN_S = 2.0
"""From when on a further signal is a second request."""
_WAITS = (
    b"elden: asked to end; waiting for the call that is running; what was kept before it is there"
    b" (once more ends at once)\n"
)
_ENDS = b"elden: asked twice, so it ends at once; the state that was kept last is there\n"
_PATIENCE_S = 60.0
"""How long a request, or a time limit, lets a call that nothing waits for go on."""
_BROKEN = b"elden: the call that is running takes too long and is broken off; what was kept before it is there\n"
_TOO_LONG = (
    b"elden: the time limit is over, and the call that is running is broken off; the same command continues from what"
    b" was kept before it (smaller --envs or --loop.rollout make calls shorter)\n"
)


def refusal(error: OSError) -> UsageError:
    """The line that answers a file or folder that cannot be read or written; it names the one that could not."""
    reason = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = f"{reason}; {WRITABLE}"
    if error.errno == errno.ENOSPC and not reason.startswith("the disk is full"):
        reason = "the disk is full"
    return UsageError(reason if error.filename is None else f"{os.fsdecode(error.filename)}: {reason}")


@contextmanager
def stopping(
    console: Console,
    instead: str | None = None,
    breakable_since: Callable[[], float | None] = lambda: None,
    deadline: Deadline = Deadline(),  # noqa: B008 (frozen)
) -> Iterator[None]:
    """Say what to do when the time limit is over, and end with an exit code of its own.

    A request to terminate (SIGTERM) counts as an interruption. The first one waits for the end of the compiled call
    that is running, and lets the state from before it be kept; a second one, some seconds later, ends the process at
    once. So does a minute of waiting for a call with which hardly more than itself is lost, after a request or the
    deadline.

    Args:
        console: Where to say it.
        instead: Another command that continues as well.
        breakable_since: When such a call began that is running, of `time.monotonic`; None while there is none.
        deadline: When it should have ended.
    """
    on = "the same command" if instead is None else f"the same command, or `{instead}`,"
    try:
        with _interrupted_once(), _ending_in_calls(breakable_since, deadline):
            yield
    except OutOfTimeError as stop:
        console.print(f"{stop}; what was done is kept, and {on} continues from there", markup=False)
        raise SystemExit(STOPPED) from None
    except KeyboardInterrupt:
        console.print(f"interrupted; {on} continues from what was kept", markup=False)
        raise SystemExit(INTERRUPTED) from None


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first signal alone: a second one must not break off what keeps the state."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        if not ASKED_TO_STOP.is_set():
            ASKED_TO_STOP.set()
            raise KeyboardInterrupt

    ASKED_TO_STOP.clear()
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if number == signal.SIGTERM or handler is not signal.SIG_IGN:  # ignored in the background of a shell script
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
        ASKED_TO_STOP.clear()


@contextmanager
def _ending_in_calls(breakable_since: Callable[[], float | None], deadline: Deadline) -> Iterator[None]:
    """End the process also in the middle of a compiled call, in which Python handles no signal.

    Not on Windows, which cannot wait for a pipe.
    """
    if os.name == "nt" or threading.current_thread() is not threading.main_thread():
        yield
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    before = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(read, breakable_since, deadline), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(write)


def _watch(read: int, breakable_since: Callable[[], float | None], deadline: Deadline) -> None:
    """Read the numbers of signals as they come, until nobody can write them any more."""
    first, announced = None, False
    while True:
        quiet = first is None and deadline.at_s is None
        if not select.select([read], [], [], None if quiet else _AGAIN_S)[0]:
            if first is not None and not announced:
                os.write(2, _WAITS)
                announced = True
            began = breakable_since()
            for since, words, code in ((first, _BROKEN, INTERRUPTED), (deadline.at_s, _TOO_LONG, STOPPED)):
                # Compiling may have taken longer than there was time; a call has a minute all the same.
                if began is not None and since is not None and time.monotonic() - max(since, began) >= _PATIENCE_S:
                    os.write(2, words)
                    os._exit(code)
            continue
        numbers = os.read(read, 64)
        if not numbers:
            os.close(read)
            return
        if not {signal.SIGINT, signal.SIGTERM} & set(numbers):
            continue
        # Schedulers and parents may both pass on one request, so what follows at once is not a second one.
        if first is not None and time.monotonic() - first >= _AGAIN_S:
            os.write(2, _ENDS)
            os._exit(INTERRUPTED)
        first = time.monotonic() if first is None else first


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
        self.console, self.what, self.printed_s = console, "", 0.0

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what == self.what and now - self.printed_s < _LINE_EVERY_S:
            return
        first = f"{what}, compiling first" if done == 0 else what
        self.console.print(first if what != self.what else f"{what}: {done:,} of {total:,}")
        self.what, self.printed_s = what, now
