"""Environments that break the rules, each in one way, and whether each is refused clearly and leaves no process.

python tools/bad_environments.py --out runs/bad_environments.json

A refusal is clear if it is one line that names the environment; where the environment itself has raised an error, the
lines of that error may follow.
"""

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro
from gymnasium import spaces

ID = "bad_environments:elden-bad/Bad-v0"
_LONG_S = 1000.0


class Bad(gymnasium.Env[Any, Any]):
    """Two things that drift, in an episode of six steps, with one fault."""

    max_steps: Any = 6

    def __init__(self, fault: str = "none") -> None:
        self.observation_space: Any = spaces.Dict(
            {"walker": spaces.MultiDiscrete([3]), "heat": spaces.Box(0.0, 1.0, (2,), np.float32)}
        )
        self.action_space: Any = spaces.Discrete(2)
        self.fault, self.taken = FAULTS.get(fault, Fault("none")), 0
        if self.fault.made is not None:
            self.fault.made(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        """Begin an episode."""
        super().reset(seed=seed)
        self.taken = 0
        returned: tuple[Any, ...] = ({"walker": np.zeros(1, np.int64), "heat": np.zeros(2, np.float32)}, {})
        return returned if self.fault.begun is None else self.fault.begun(*returned)

    def step(self, action: Any) -> Any:
        """Take a step."""
        self.taken += 1
        obs: dict[str, Any] = {"walker": np.array([self.taken % 3]), "heat": np.full(2, 0.1, np.float32)}
        returned: tuple[Any, ...] = (obs, 0.0, False, False, {})
        if self.fault.stepped is None or self.taken < 2:
            return returned
        return self.fault.stepped(*returned)


gymnasium.register("elden-bad/Bad-v0", entry_point="bad_environments:Bad")


@dataclass(frozen=True)
class Fault:
    """One way to break the rules.

    Attributes:
        name: What is wrong.
        made: What is done to the environment when it is made.
        begun: What becomes of that which `reset` returns.
        stepped: What becomes of that which the second step returns.
        ends: Whether it ends or locks up the process, so that it can be tried only in one of its own.
        hangs: Whether it takes for ever.
    """

    name: str
    made: Callable[[Bad], None] | None = None
    begun: Callable[..., Any] | None = None
    stepped: Callable[..., Any] | None = None
    ends: bool = False
    hangs: bool = False


def _raise(error: BaseException) -> Any:
    raise error


def _with(name: str, value: Any) -> Callable[..., Any]:
    """A step that returns another value for one part."""
    place = ("obs", "reward", "terminated", "truncated", "info").index(name)
    return lambda *returned: (*returned[:place], value, *returned[place + 1 :])


def _seen(**changes: Any) -> Callable[..., Any]:
    """A step or reset with other observations; None leaves one out."""

    def changed(obs: dict[str, Any], *rest: Any) -> Any:
        return ({key: value for key, value in (obs | changes).items() if value is not _LEFT_OUT}, *rest)

    return changed


_LEFT_OUT = object()


def _space(space: Any) -> Callable[[Bad], None]:
    return lambda env: setattr(env, "observation_space", space)


def _also(**attributes: Any) -> Callable[[Bad], None]:
    return lambda env: env.__dict__.update(attributes)


def _entity(name: str) -> Callable[[Bad], None]:
    return _space(spaces.Dict({name: spaces.Discrete(2)}))


class _UnpicklableError(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")
        self.way = lambda: None


def _endless(depth: int = 0) -> int:
    return _endless(depth + 1) + 1


_ALL = (
    Fault("made: raises an error", made=lambda _: _raise(OSError("no such map"))),
    Fault("made: calls sys.exit", made=lambda _: sys.exit(3)),
    Fault("made: hangs", made=lambda _: time.sleep(_LONG_S), hangs=True),
    Fault("made: has no spaces", made=lambda env: env.__dict__.pop("observation_space")),
    Fault("made: observes a Box", made=_space(spaces.Box(0, 1, (3,)))),
    Fault("made: observes a Tuple", made=_space(spaces.Tuple((spaces.Discrete(2),)))),
    Fault("made: observes pictures", made=_space(spaces.Dict(eye=spaces.Box(0, 255, (8, 8, 3), np.uint8)))),
    Fault("made: observes text", made=_space(spaces.Dict(sign=spaces.Text(5)))),
    Fault("made: observes nothing", made=_space(spaces.Dict({}))),
    Fault("made: nested twice", made=_space(spaces.Dict(a=spaces.Dict(b=spaces.Dict(c=spaces.Discrete(2)))))),
    Fault("made: values from 1 on", made=_space(spaces.Dict(a=spaces.Discrete(3, start=1)))),
    Fault("made: continuous actions", made=_also(action_space=spaces.Box(-1, 1, (2,)))),
    Fault("made: several actions at once", made=_also(action_space=spaces.MultiDiscrete([2, 2]))),
    Fault("made: an entity called action", made=_entity("action")),
    Fault("made: control characters in a name", made=_entity("\x1b[31mred\x07")),
    Fault("made: a line end in a name", made=_entity("two\nlines")),
    Fault("made: a dot in a name", made=_entity("a.b")),
    Fault("made: names without entities", made=_also(variable_names=("walker", "heat"))),
    Fault("made: names of what is not there", made=_also(variable_names=("walker.x", "heat.a", "heat.b", "moon.x"))),
    Fault("made: a name twice", made=_also(variable_names=("walker.x", "heat.a", "heat.b", "heat.a"))),
    Fault("made: no length of an episode", made=_also(max_steps=None)),
    Fault("reset: raises an error", begun=lambda *_: _raise(KeyError("start"))),
    Fault("reset: calls sys.exit", begun=lambda *_: sys.exit("done")),
    Fault("reset: hangs", begun=lambda *_: time.sleep(_LONG_S), hangs=True),
    Fault("reset: returns None", begun=lambda *_: None),
    Fault("reset: returns the observation alone", begun=lambda obs, _: obs),
    Fault("reset: observes None", begun=lambda _, info: (None, info)),
    Fault("reset: lacks a key", begun=_seen(heat=_LEFT_OUT)),
    Fault("reset: a key too many", begun=_seen(moon=np.zeros(1))),
    Fault("reset: another shape", begun=_seen(heat=np.zeros(3, np.float32))),
    Fault("reset: not a number", begun=_seen(heat=np.array([0.1, np.nan], np.float32))),
    Fault("reset: out of bounds", begun=_seen(heat=np.array([0.1, 1.5], np.float32))),
    Fault("reset: info is None", begun=lambda obs, _: (obs, None)),
    Fault("step: raises an error", stepped=lambda *_: _raise(ZeroDivisionError("caved in"))),
    Fault("step: raises control characters", stepped=lambda *_: _raise(ValueError("\x1b]0;title\x07\x1b[2J"))),
    Fault("step: raises what cannot be pickled", stepped=lambda *_: _raise(_UnpicklableError(1, 2))),
    Fault("step: calls itself without end", stepped=lambda *_: _endless()),
    Fault("step: calls sys.exit", stepped=lambda *_: sys.exit(0)),
    Fault("step: ends its process", stepped=lambda *_: os._exit(0), ends=True),
    Fault("step: is killed", stepped=lambda *_: os.kill(os.getpid(), signal.SIGKILL), ends=True),
    Fault("step: hangs", stepped=lambda *_: time.sleep(_LONG_S), hangs=True),
    Fault("step: returns None", stepped=lambda *_: None),
    Fault("step: returns four values", stepped=lambda *returned: returned[:4]),
    Fault("step: observes None", stepped=_with("obs", None)),
    Fault("step: observes a list", stepped=_with("obs", [0, 1])),
    Fault("step: lacks a key", stepped=_seen(walker=_LEFT_OUT)),
    Fault("step: None for a key", stepped=_seen(walker=None)),
    Fault("step: another shape", stepped=_seen(walker=np.zeros((2, 1), np.int64))),
    Fault("step: lists of different lengths", stepped=_seen(heat=[[1.0], [1.0, 2.0]])),
    Fault("step: words for numbers", stepped=_seen(heat=np.array(["a", "b"]))),
    Fault("step: fractions of discrete values", stepped=_seen(walker=np.array([0.5]))),
    Fault("step: a discrete value out of range", stepped=_seen(walker=np.array([3]))),
    Fault("step: a discrete value below 0", stepped=_seen(walker=np.array([-1]))),
    Fault("step: out of bounds", stepped=_seen(heat=np.array([0.1, -2.0], np.float32))),
    Fault("step: not a number", stepped=_seen(heat=np.full(2, np.nan, np.float32))),
    Fault("step: infinite", stepped=_seen(heat=np.full(2, np.inf, np.float32))),
    Fault("step: reward None", stepped=_with("reward", None)),
    Fault("step: reward not a number", stepped=_with("reward", np.nan)),
    Fault("step: reward infinite", stepped=_with("reward", -np.inf)),
    Fault("step: reward 1e300", stepped=_with("reward", 1e300)),
    Fault("step: reward a word", stepped=_with("reward", "much")),
    Fault("step: several rewards", stepped=_with("reward", np.ones(2))),
    Fault("step: terminated None", stepped=_with("terminated", None)),
    Fault("step: truncated a word", stepped=_with("truncated", "no")),
    Fault("step: info is None", stepped=_with("info", None)),
)
FAULTS = {fault.name: fault for fault in _ALL}


@dataclass(frozen=True)
class Row:
    """What became of one fault.

    Attributes:
        name: What was wrong.
        refused: Whether it was refused clearly.
        traceback: Whether an error came through that is none of those that the command line answers.
        left: How many processes were left.
        said: What was said.
        seconds: How long it took.
    """

    name: str
    refused: bool
    traceback: bool
    left: int
    said: str
    seconds: float


def attempt(fault: Fault, processes: bool, limit_s: float = 5.0) -> Row:
    """Make two environments with a fault, and take three steps in them.

    Args:
        fault: What is wrong.
        processes: Whether each environment has a process of its own.
        limit_s: How long one may take.
    """
    from elden.hosts.vector import Hosts
    from elden.hosts.worker import EnvironmentFailedError
    from elden.hosts.world import HostConfig, HostWorld, HostWorldError

    began, said, clear, foreign = time.monotonic(), "taken without a word", False, False
    limit_s = limit_s if fault.hangs else 60.0
    try:
        config = HostConfig(ID, (f"fault={fault.name}",), processes=processes, step_limit_s=limit_s)
        with Hosts(HostWorld.look(config), 2) as hosts:
            hosts.reset(range(2))
            for _ in range(3):
                hosts.step(np.zeros(2, np.int32))
    except (HostWorldError, EnvironmentFailedError) as error:
        said = str(error)
        first, *more = said.splitlines()
        clear = ID in first and (not more or more[0].startswith("Traceback")) and "\x1b" not in said
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        said, foreign = f"{type(error).__name__}: {error}", True
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
    return Row(fault.name, clear, foreign, len(left), said, round(time.monotonic() - began, 2))


def rows(faults: Sequence[Fault] = _ALL) -> list[Row]:
    """Every fault, in processes of their own."""
    return [attempt(fault, processes=True) for fault in faults]


def totals(found: Sequence[Row]) -> dict[str, int]:
    """How many were tried, refused clearly, came through as errors, and left processes."""
    return {
        "tried": len(found),
        "refused clearly": sum(row.refused for row in found),
        "tracebacks": sum(row.traceback for row in found),
        "left processes": sum(row.left for row in found),
    }


@dataclass(frozen=True)
class Args:
    """Try bad environments, and print what became of them."""

    out: Path | None = None
    """JSON file for the table."""

    def run(self) -> None:
        """Try them all."""
        from elden.provenance import provenance
        from elden.storage.files import write_json

        found = rows()
        for row in found:
            print(f"{'refused' if row.refused else 'NOT REFUSED CLEARLY'}: {row.name}: {row.said.splitlines()[0]}")
        print(totals(found))
        if self.out is not None:
            card = {"kind": "bad environments", "provenance": provenance(), "totals": totals(found)}
            write_json(self.out, {**card, "rows": [asdict(row) for row in found]})


if __name__ == "__main__":
    tyro.cli(Args, description=__doc__).run()
