"""What a process does that steps one environment. Imports Gymnasium and numpy, and nothing else."""

import contextlib
import os
import signal
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import numpy as np

from elden.hosts.refusals import (
    EnvironmentFaultError,
    check_observation,
    checked_end,
    checked_info,
    checked_reward,
)
from elden.lifeline import end_with_parent
from elden.names import printable, shown

Option: TypeAlias = bool | int | float | str | None
"""A value that an environment is made with."""

if TYPE_CHECKING:
    AnyEnv: TypeAlias = gymnasium.Env[Any, Any]
    _Wrapper = gymnasium.Wrapper[Any, Any, Any, Any]
else:
    AnyEnv = gymnasium.Env
    _Wrapper = gymnasium.Wrapper


class EnvironmentFailedError(RuntimeError):
    """An environment has raised an error, or its process is gone. One string, so that it can go between processes."""

    def __init__(self, message: object) -> None:
        # Gymnasium raises errors of other processes again, with the error itself as the message.
        super().__init__(printable(str(message)))  # it has words of the environment, and is shown on terminals


@dataclass(frozen=True)
class EnvMaker:
    """Makes one environment, wherever it is called.

    Attributes:
        id: The environment, as `gymnasium.make` takes it: "Name-v0", "namespace/Name-v0" or "module:Name-v0".
        options: What it is made with.
        max_steps: When episodes are cut off; None leaves that to the environment.
        number: Which one of several it is.
        graphs: Whether the true local graph of each step is reported, where the environment has it.
        home: The process that trains. Anywhere else this is a worker.
    """

    id: str
    options: tuple[tuple[str, Option], ...]
    max_steps: int | None
    number: int
    graphs: bool
    home: int

    def __call__(self) -> AnyEnv:
        """Make it."""
        if os.getpid() != self.home:
            _be_a_worker()
        how: dict[str, Any] = dict(self.options)
        if self.max_steps is not None:
            how["max_episode_steps"] = self.max_steps
        name = f"environment {self.number} of {self.id}"
        try:
            env = gymnasium.make(self.id, disable_env_checker=True, **how)
        except (Exception, SystemExit):
            raise EnvironmentFailedError(f"{name} cannot be made:\n{traceback.format_exc().rstrip()}") from None
        return Reporting(env, name, self.graphs)


def _be_a_worker() -> None:
    """Leave Ctrl-C to the process that trains, and accelerators too; end with it, also where it is killed."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["JAX_PLATFORMS"] = "cpu"


class Reporting(_Wrapper):
    """Says of each step only what a training reads, and of an error which environment it was and where.

    What environments put into `info` may be of any shape, which a vector of them could not hold.
    """

    def __init__(self, env: AnyEnv, name: str, graphs: bool) -> None:
        """Wrap an environment."""
        super().__init__(env)
        self.name, self.graphs = name, graphs

    def reset(self, **how: Any) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        with self._named("reset"):
            obs, info = self.env.reset(**how)
            check_observation(self.env.observation_space, obs)
            return obs, reported(checked_info(info), self.graphs)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        with self._named("step", action):
            obs, reward, terminated, truncated, info = self.env.step(action)
            check_observation(self.env.observation_space, obs)
            ended = checked_end("terminated", terminated), checked_end("truncated", truncated)
            return obs, checked_reward(reward), *ended, reported(checked_info(info), self.graphs)

    @contextlib.contextmanager
    def _named(self, what: str, *given: object) -> Iterator[None]:
        """Say which environment failed, in what, and why; of errors of its own also where."""
        try:
            yield
        except EnvironmentFaultError as fault:
            why = f": {fault}"
        except SystemExit as stop:
            why = f", which called sys.exit({stop.code!r}):\n{traceback.format_exc().rstrip()}"
        except Exception:
            why = f":\n{traceback.format_exc().rstrip()}"
        else:
            return
        raise EnvironmentFailedError(f"{self.name} failed in {what}({', '.join(map(shown, given))}){why}")


def reported(info: Mapping[str, Any], graphs: bool = False) -> dict[str, Any]:
    """Success, stages and, where asked for, the local graph, each where an environment tells it."""
    found: dict[str, Any] = {}
    for name in ("success", "is_success"):
        if name in info:
            found["success"] = bool(np.all(info[name]))
            break
    if "stages" in info:
        found["stages"] = np.asarray(info["stages"], np.bool_).reshape(-1)
    if graphs and "local_graph" in info:
        found["local_graph"] = np.asarray(info["local_graph"], np.bool_)
    return found
