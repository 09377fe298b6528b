"""What an environment of somebody else's is made of, read off its Gymnasium spaces."""

import contextlib
import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Num

from elden.factors import Factors
from elden.hosts.refusals import (
    EnvironmentHangsError,
    check_observation,
    checked_info,
    close_quietly,
    time_limit,
)
from elden.hosts.worker import AnyEnv, EnvMaker, Option, reported
from elden.names import PREFIX, printable


class HostWorldError(ValueError):
    """An environment cannot be trained on; the message says why, and how to mend it."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))  # it has words of the environment, and is shown on terminals


_IMPORTING = ("GymV21Environment", "GymV26Environment")
"""Environments of Gymnasium that import a module which their options name."""


class UntrustedModuleError(HostWorldError):
    """The environment of a run folder is in a module that nobody has allowed to be imported."""

    def __init__(self, name: str, module: str) -> None:
        super().__init__(f"its environment {name} is in the module {module}, which is a program that would be run")
        self.module = module


@dataclass(frozen=True)
class HostConfig:
    """An environment of somebody else's, and how it is stepped."""

    id: str
    """The environment, as gymnasium.make takes it: namespace/Name-v0, or module:Name-v0 to import a module before."""
    env_options: tuple[str, ...] = ()
    """What the environment is made with, each as name=value; values are JSON, or else words."""
    max_steps: int | None = None
    """Steps after which episodes are cut off. Needed where the environment does not say how long they are."""
    processes: bool = True
    """Step every environment in a process of its own; otherwise all of them one after the other in this one."""
    step_limit_s: float = field(default=300.0, compare=False)
    """Seconds that an environment may take to be made, to be reset or for a step; 0 lets it take any time."""

    def __post_init__(self) -> None:
        if not self.id:
            raise HostWorldError("id='' given; it is what gymnasium.make takes, such as elden/Chain-v0")
        for name, words in (("id", (self.id,)), ("env_options", self.env_options)):
            for word in words:
                if not isinstance(word, str) or not word.isprintable():
                    raise HostWorldError(f"{name}={word!r} given; it is a word without control characters")
        if self.module is not None and not all(map(str.isidentifier, self.module.split("."))):
            raise HostWorldError(f"id={self.id!r} given; {self.module!r} before the colon is no name of a module")
        if not 0 <= self.step_limit_s <= 1e6:
            raise HostWorldError(f"step_limit_s={self.step_limit_s} given; it takes 0 to 1000000")
        if self.max_steps is not None and not 1 <= self.max_steps <= 10**9:
            raise HostWorldError(f"max_steps={self.max_steps} given; an episode has 1 to 1000000000 steps")
        _ = self.options

    @property
    def name(self) -> str:
        """What the world is called."""
        return PREFIX + self.id

    @property
    def module(self) -> str | None:
        """The module that is imported to find the environment; None for one that Gymnasium knows already."""
        return self.id.partition(":")[0] if ":" in self.id else None

    def check_trusted(self, trust: str | None) -> None:
        """Refuse to import a module that stands in a run folder, and that the user has not named.

        Args:
            trust: What the user has named: `gym:MODULE`, or with an environment after it.

        Raises:
            UntrustedModuleError: It is another one.
        """
        imported = self.id if self.id.startswith(_IMPORTING) else self.module
        if imported is not None and (trust or "").removeprefix(PREFIX).partition(":")[0] != imported:
            raise UntrustedModuleError(self.name, imported)

    @property
    def options(self) -> tuple[tuple[str, Option], ...]:
        """What the environment is made with."""
        return tuple(map(_option, self.env_options))

    def maker(self, number: int, graphs: bool = False) -> EnvMaker:
        """What makes one of several environments."""
        return EnvMaker(self.id, self.options, self.max_steps, number, graphs, os.getpid())

    def card(self) -> dict[str, object]:
        """What `HostConfig.from_card` needs. How long a step may take is no part of what a run is."""
        own = ("id", "step_limit_s")
        return {"name": self.name, "options": {name: value for name, value in asdict(self).items() if name not in own}}

    @classmethod
    def from_card(cls, name: str, options: Mapping[str, object], step_limit_s: float | None = None) -> "HostConfig":
        """As it was."""
        lists = {key: tuple(value) if isinstance(value, list) else value for key, value in options.items()}
        limit = {} if step_limit_s is None else {"step_limit_s": step_limit_s}
        return cls(name.removeprefix(PREFIX), **lists, **limit)  # type: ignore[arg-type]


def _option(word: str) -> tuple[str, Option]:
    name, equals, value = word.partition("=")
    if not name.isidentifier() or not equals:
        raise HostWorldError(f"env_options={word!r} given; each is written name=value")
    try:
        read = json.loads(value)
    except ValueError:
        return name, value
    if not isinstance(read, bool | int | float | str | None):
        raise HostWorldError(f"env_options={word!r} given; a value is a number, a word, true, false or null")
    return name, read


@dataclass(frozen=True)
class HostWorld:
    """An environment of somebody else's, as a training sees it. Frozen and hashable.

    Attributes:
        config: The environment, and how it is stepped.
        factors: What an observation is made of.
        num_actions: How many actions there are.
        first_action: What the environment calls the first of them.
        stage_names: Names of the stages; only success where the environment tells no stages.
        max_steps: Steps of an episode at most.
    """

    config: HostConfig
    factors: Factors
    num_actions: int
    first_action: int
    stage_names: tuple[str, ...]
    max_steps: int

    @property
    def name(self) -> str:
        """What it is called: "gym:" and the environment's id."""
        return self.config.name

    @classmethod
    def look(cls, config: HostConfig) -> "HostWorld":
        """Make the environment once, see what it is made of, and close it.

        Raises:
            HostWorldError: It cannot be made, or not be trained on.
        """
        with _probe(config) as env:
            factors = factors_of(env)
            actions = env.action_space
            if not isinstance(actions, gymnasium.spaces.Discrete):
                raise HostWorldError(f"its actions are {actions}; agents learn to choose among Discrete ones")
            obs, info = env.reset(seed=0)
            check_observation(env.observation_space, obs)
            flat(factors, obs, ())
            return cls(
                config=config,
                factors=factors,
                num_actions=int(actions.n),
                first_action=int(actions.start),
                stage_names=_stage_names(env, reported(checked_info(info)).get("stages")),
                max_steps=_horizon(env),
            )


@contextlib.contextmanager
def _probe(config: HostConfig) -> Iterator[AnyEnv]:
    """The environment, made to be looked at; whatever goes wrong is reported with its name."""
    _find_module(config.module)
    how: dict[str, Any] = dict(config.options)
    if config.max_steps is not None:
        how["max_episode_steps"] = config.max_steps
    try:
        with time_limit(config.step_limit_s):
            env = gymnasium.make(config.id, **how)
    except (Exception, SystemExit) as error:
        raise HostWorldError(f"{config.name} cannot be made: {_reason(error, True)}") from error
    try:
        with time_limit(config.step_limit_s):
            yield env
    except (Exception, SystemExit) as error:
        raise HostWorldError(f"{config.name} cannot be trained on: {_reason(error)}") from error
    finally:
        close_quietly(env, config.step_limit_s)


def _reason(error: BaseException, typed: bool = False) -> str:
    """Why an environment could not be made or begun, in a line."""
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({error.code!r})"
    words = " ".join(str(error).split())
    if isinstance(error, EnvironmentHangsError) or (isinstance(error, ValueError) and not typed):
        return words
    return f"{type(error).__name__}: {words}"


def _find_module(module: str | None) -> None:
    """Let a module in the working directory be found, as `python -m` does."""
    here = os.getcwd()
    if module is not None and here not in sys.path and importlib.util.find_spec(module.partition(".")[0]) is None:
        sys.path.insert(0, here)


def factors_of(env: AnyEnv) -> Factors:
    """What the observations of an environment are made of.

    Names of variables are those of `env.unwrapped.factors` or of `env.unwrapped.variable_names` ("fish.frozen", in
    graph order), where there are such; else components are numbered.

    Raises:
        ValueError: Observations are not made of entities, or their names do not fit them.
    """
    known = getattr(env.unwrapped, "factors", None)
    if isinstance(known, Factors):
        return known
    names = getattr(env.unwrapped, "variable_names", None)
    return Factors.from_space(env.observation_space, None if names is None else _by_entity(names))


def factors_of_vector(env: "gymnasium.vector.VectorEnv[Any, Any, Any]") -> Factors:
    """The same of each environment of a vector, which is asked for its names."""
    known = getattr(env.unwrapped, "factors", None)
    if isinstance(known, Factors):
        return known
    names: Sequence[str] | None = None
    if isinstance(env.unwrapped, gymnasium.vector.SyncVectorEnv | gymnasium.vector.AsyncVectorEnv):
        with contextlib.suppress(AttributeError):
            names = env.unwrapped.get_attr("variable_names")[0]
    return Factors.from_space(env.single_observation_space, None if names is None else _by_entity(names))


def _by_entity(names: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        entity, dot, variable = name.partition(".")
        if not dot:
            raise ValueError(f"variable_names has {name!r}; a name is written entity.variable")
        found.setdefault(entity, []).append(variable)
    return found


def _stage_names(env: AnyEnv, stages: np.ndarray | None) -> tuple[str, ...]:
    names = getattr(env.unwrapped, "stage_names", None)
    if stages is None:
        return ("success",)
    found = tuple(map(str, names)) if names is not None else tuple(f"stage {i + 1}" for i in range(stages.size))
    if len(found) != stages.size:
        raise ValueError(f"its info tells {stages.size} stages, but stage_names has {len(found)}: {', '.join(found)}")
    for name in found:
        if not name.isprintable():
            raise ValueError(f"stage name {name!r}: a name must not contain control characters")
    return found


def _horizon(env: AnyEnv) -> int:
    """The least of what the environment, its world and Gymnasium's own limit say of the length of an episode."""
    raw, spec = env.unwrapped, env.spec
    given = [
        None if spec is None else spec.max_episode_steps,
        getattr(raw, "max_steps", None),
        getattr(raw, "horizon", None),
        getattr(getattr(raw, "world", None), "max_steps", None),
    ]
    known = [int(length) for length in given if isinstance(length, int | np.integer) and length > 0]
    if not known:
        raise ValueError(
            "it does not say how long episodes are (max_episode_steps where it is registered, or an attribute"
            " max_steps); give max_steps=N to cut them off after N steps"
        )
    return min(known)


def flat(factors: Factors, sample: Mapping[str, object], batch: tuple[int, ...]) -> Num[np.ndarray, "*batch width"]:
    """Observations as `factors` lays them out, checked: finite, and discrete values among those there are.

    Raises:
        ValueError: They are not; the message names the variable.
    """
    return factors.checked(factors.from_space_sample(sample, batch))  # type: ignore[arg-type]
