"""Where keys come from: a terminal in character mode, piped characters, or lines where there is nothing better."""

import contextlib
import os
import select
from collections.abc import Iterator
from types import ModuleType
from typing import TextIO

from elden.cli.keys import keys_in

_ESCAPE = b"\x1b"
_SEQUENCE_WAIT_S = 0.05
"""The rest of an escape sequence comes at once; after this long, the escape key was pressed alone."""


def _termios() -> ModuleType | None:
    """The module that sets terminals up; None where there is none (Windows)."""
    try:
        import termios
    except ImportError:
        return None
    return termios


def gives_keys(stream: TextIO) -> bool:
    """Whether the stream is a terminal that can give every key at once."""
    return stream.isatty() and _termios() is not None


@contextlib.contextmanager
def character_mode(stream: TextIO) -> Iterator[None]:
    """Let every key arrive at once and unseen; the terminal is put back as it was, whatever happens.

    Ctrl-C still interrupts. Nothing is done where the stream is no terminal, or where terminals are not set up so.
    """
    termios = _termios()
    if termios is None or not gives_keys(stream):
        yield
        return
    import tty

    before = termios.tcgetattr(stream.fileno())
    try:
        tty.setcbreak(stream.fileno())
        yield
    finally:
        termios.tcsetattr(stream.fileno(), termios.TCSADRAIN, before)


def read_keys(stream: TextIO) -> Iterator[str]:
    """Keys until the stream ends: one by one from a terminal in character mode, else from whole lines."""
    if gives_keys(stream):
        yield from _terminal_keys(stream.fileno())
    else:
        if stream.isatty():
            print("Type keys and press Enter.")
        for line in stream:
            yield from keys_in(line)


def _terminal_keys(fd: int) -> Iterator[str]:
    while characters := os.read(fd, 1024):
        while characters.endswith((_ESCAPE, _ESCAPE + b"[", _ESCAPE + b"O")):
            if not select.select([fd], [], [], _SEQUENCE_WAIT_S)[0]:
                break
            characters += os.read(fd, 1024)
        yield from keys_in(characters.decode(errors="ignore"))
