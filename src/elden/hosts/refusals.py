"""What is wrong with what an environment has returned. Imports Gymnasium and numpy, and nothing else."""

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces

MOST_REWARD = 1e12
"""Networks compute rewards in single precision, and square them."""
_MOST_SHOWN = 60


class EnvironmentFaultError(ValueError):
    """An environment has returned something that it must not; the message is one line that says what it must."""


class EnvironmentHangsError(RuntimeError):
    """An environment has taken longer than it may."""


def check_observation(space: "spaces.Space[Any]", obs: Any, name: str = "") -> None:
    """Refuse an observation that has not the keys, shapes and kinds of values of its space.

    Whether values are within their bounds is looked at where all environments are read together; but those that would
    not even fit the space's type are refused here, before they are cast to it.

    Args:
        space: What the environment says that it observes.
        obs: What it has observed.
        name: Name of the part that is looked at.

    Raises:
        EnvironmentFaultError: It is something else.
    """
    what = f"{name} is observed as {_short(obs)}" if name else f"the observation is {_short(obs)}"
    if isinstance(space, spaces.Dict):
        if not isinstance(obs, Mapping):
            raise EnvironmentFaultError(f"{what}; it must be a dict with {', '.join(map(repr, space.spaces))}")
        for key, part in space.spaces.items():
            if key not in obs:
                there = ", ".join(map(repr, obs)) or "nothing"
                whole = f"the observation of {name}" if name else "the observation"
                raise EnvironmentFaultError(f"{whole} lacks {key!r}, which is in its space; it has {there}")
            check_observation(part, obs[key], f"{name}.{key}" if name else str(key))
        return
    try:
        values = np.asarray(obs)
    except ValueError:  # lists of different lengths
        raise EnvironmentFaultError(f"{what}; it must be an array of shape {space.shape}") from None
    real = isinstance(space, spaces.Box)
    if values.dtype.kind not in ("biuf" if real else "biu"):
        raise EnvironmentFaultError(f"{what}; it must hold {'numbers' if real else 'whole numbers'}")
    shape = space.shape or ()
    if values.shape != shape and not values.size == int(np.prod(shape)) == 1:
        raise EnvironmentFaultError(f"{name} is observed with shape {values.shape}; its space has {shape}")
    kind = space.dtype
    if kind is not None and kind.kind in "iu" and values.size:
        limits = np.iinfo(kind)
        if values.dtype.kind == "f" and not np.array_equal(values, np.round(values)):
            raise EnvironmentFaultError(f"{what}; its space is of {kind}, which holds whole numbers")
        if values.min() < limits.min or values.max() > limits.max:
            raise EnvironmentFaultError(f"{what}; its space is of {kind}, {limits.min} to {limits.max}")


def checked_reward(reward: Any) -> float:
    """A reward as a number.

    Raises:
        EnvironmentFaultError: It is none, not finite, or too large to be learnt from.
    """
    values = np.asarray(reward) if reward is not None else np.empty(0)
    if values.size != 1 or values.dtype.kind not in "biuf":
        raise EnvironmentFaultError(f"the reward is {_short(reward)}; it must be a number")
    number = float(values.reshape(()))
    if not abs(number) <= MOST_REWARD:
        raise EnvironmentFaultError(
            f"the reward is {number:g}; it must be finite, and within {MOST_REWARD:g} either way: scale rewards down"
        )
    return number


def checked_end(name: str, ended: Any) -> bool:
    """Whether an episode has ended.

    Raises:
        EnvironmentFaultError: It is no truth value.
    """
    if np.asarray(ended).dtype.kind not in "biuf" or np.size(ended) != 1:
        raise EnvironmentFaultError(f"{name} is {_short(ended)}; it must be True or False")
    return bool(ended)


def checked_info(info: Any) -> Mapping[str, Any]:
    """What an environment says beside an observation.

    Raises:
        EnvironmentFaultError: It is not a dict.
    """
    if not isinstance(info, Mapping):
        raise EnvironmentFaultError(f"info is {_short(info)}; it must be a dict")
    return info


def _short(value: Any) -> str:
    words = " ".join(repr(value).split())
    return words if len(words) <= _MOST_SHOWN else f"{words[:_MOST_SHOWN]}..."


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Break off what takes longer in this process, where that is possible: in the main thread, and not on Windows.

    Args:
        seconds: How long it may take; 0 lets it take as long as it likes.

    Raises:
        EnvironmentHangsError: It has taken longer.
    """
    usable = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if seconds == 0 or not usable or signal.getsignal(signal.SIGALRM) is not signal.SIG_DFL:
        yield
        return

    def over(*_: object) -> None:
        raise EnvironmentHangsError(hangs(seconds))

    signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


@runtime_checkable
class Closable(Protocol):
    """Something to close."""

    def close(self) -> object:
        """Close it."""


def close_quietly(env: Closable, seconds: float) -> None:
    """Close an environment of others that is needed no more, whatever comes of it.

    Args:
        env: The environment.
        seconds: How long it may take; 0 lets it take as long as it likes.
    """
    with contextlib.suppress(Exception, SystemExit), time_limit(seconds):
        env.close()


def hangs(seconds: float) -> str:
    """The message about an environment that takes longer than it may."""
    return f"it has taken more than {seconds:g} s; step_limit_s (--step-limit-s) sets this limit, 0 takes it away"
