"""Work that takes long, in numbered pieces: it can stop after each of them, and continues where it was.

A state is kept every so many seconds, and at the end, however that comes. A process that is killed loses the pieces
since the last state, and makes them again.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from elden.storage.checkpoints import Kept

SAVE_EVERY_S = 300.0
"""Time after which a state is kept even if nothing asks for it."""

ASKED_TO_STOP = threading.Event()
"""Set while the process has been asked to end. Python raises the interruption wherever the program is, also in places
that lose it, such as the end of an object; work looks here too, between its steps."""

LONG_S = 30.0
"""Steps that take longer than this are kept one by one, unless keeping them takes a tenth as long."""

_State = TypeVar("_State")


class OutOfTimeError(RuntimeError):
    """The time limit is over; what has been done is kept."""


@dataclass(frozen=True)
class Deadline:
    """A moment after which work stops, at the next return to the host. Every sitting begins a step at least."""

    at_s: float | None = None

    @classmethod
    def after(cls, seconds: float | int | None) -> "Deadline":
        """So many seconds from now; None is never."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def over(self) -> bool:
        """Whether it has passed."""
        return self.within(0.0)

    def within(self, seconds: float) -> bool:
        """Whether it comes before so many seconds are over."""
        return self.at_s is not None and time.monotonic() + seconds >= self.at_s


@dataclass(frozen=True)
class Clock:
    """Time that work took so far, over all sittings, compilation apart."""

    compile_s: float = 0.0
    train_s: float = 0.0

    def plus(self, compile_s: float = 0.0, train_s: float = 0.0) -> "Clock":
        """With more time."""
        return Clock(self.compile_s + compile_s, self.train_s + train_s)

    @classmethod
    def load(cls, card: Mapping[str, object]) -> "Clock":
        """From what was written beside a state."""
        value = card.get("clock")
        known = value if isinstance(value, Mapping) else {}
        return cls(float(known.get("compile_s", 0.0)), float(known.get("train_s", 0.0)))


@dataclass(frozen=True)
class Reached(Generic[_State]):
    """Where work stands: how many of its steps are done, the state after them, and the time that they took."""

    number: int
    state: _State
    clock: Clock = Clock()

    @classmethod
    def of(cls, kept: Kept[_State]) -> "Reached[_State]":
        """Where a state was kept."""
        return cls(kept.number, kept.tree, Clock.load(kept.card))


@dataclass(frozen=True)
class Resumable(Generic[_State]):
    """Work that can be stopped.

    Attributes:
        total: How many steps there are.
        steps: What they are called, for the message of a time limit.
        advance: Makes some of the next steps, and gives what logs them. If it raises, nothing has happened.
        save: Keeps a state.
        deadline: When to stop.
        save_every_s: Time after which a state is kept.
    """

    total: int
    steps: str
    advance: Callable[[Reached[_State]], tuple[Reached[_State], Callable[[], None]]]
    save: Callable[[Reached[_State]], None]
    deadline: Deadline = Deadline()
    save_every_s: float = SAVE_EVERY_S

    def run(self, at: Reached[_State]) -> Reached[_State]:
        """Make all steps that are left.

        Raises:
            OutOfTimeError: The deadline has passed; the state is kept.
            KeyboardInterrupt: The process has been asked to end; the state is kept.
        """
        kept, saved, save_s = at.number, time.monotonic(), 0.0
        try:
            while at.number < self.total:
                after, log = self.advance(at)
                log()  # if it is broken off, the state before stays: what was logged by then is logged again
                each_s = (after.clock.train_s - at.clock.train_s) / (after.number - at.number)
                at = after
                if ASKED_TO_STOP.is_set():
                    raise KeyboardInterrupt
                if at.number < self.total and self.deadline.within(each_s):
                    why = "is over" if self.deadline.over else f"leaves no time for another {each_s:.3g} s"
                    raise OutOfTimeError(f"the time limit {why}, after {at.number} of {self.total} {self.steps}")
                # Before a step that takes long there is nothing to lose but itself, if keeping is cheap beside it.
                long = each_s > max(LONG_S, 10 * save_s)
                if time.monotonic() - saved > self.save_every_s or long:
                    began = time.monotonic()
                    self.save(at)
                    kept, saved = at.number, time.monotonic()
                    save_s = saved - began
        finally:  # also when it is stopped
            if at.number > kept:
                self.save(at)
        return at
