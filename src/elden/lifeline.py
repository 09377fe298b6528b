"""Processes that end with the one that started them, however that one ends.

A process that is killed cannot tell those that it has started. A pipe can: its reading end is at its end as soon as
nobody holds the writing end any more. This works on every system, and imports nothing heavy.
"""

import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO

_VARIABLE = "ELDEN_LIFELINE"
"""Set for a command whose standard input is a pipe that its parent holds open for as long as it lives."""
GRACE_S = 120.0
"""How long a command may take to keep its state after a request to terminate."""


class Lifeline:
    """A pipe that this process holds open for the commands that it starts, until `close` or its own end."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()

    def start(
        self, command: Sequence[str], output: IO[bytes] | IO[str], environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a command, which, if it is one of ours, ends with this process.

        It has a session of its own: Ctrl-C comes to this process, which tells those that it has started.

        Args:
            command: The command and its words.
            output: Where it prints.
            environment: Its environment variables.
        """
        return subprocess.Popen(
            command,
            stdin=self.read,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**environment, _VARIABLE: "stdin"},
            start_new_session=True,
        )

    def close(self) -> None:
        """Let go of the pipe; commands that still run end by that."""
        os.close(self.write)
        os.close(self.read)


def follow_standard_input() -> None:
    """In a command that a `Lifeline` has started: keep the state and end when the parent is gone."""
    # Taken away, so that what this process starts does not take its standard input for such a pipe.
    if os.environ.pop(_VARIABLE, None) is not None:
        threading.Thread(target=_end_with_input, daemon=True).start()


def _end_with_input() -> None:
    # Not sys.stdin: a thread that waits in it breaks the end of Python.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(128 + signal.SIGTERM)


def end_with_parent() -> None:
    """In a process of `multiprocessing`: end at once when the parent is gone, whatever this process is doing."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(128 + signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()
