"""A bonus in somebody else's loop: numpy in, numpy out, whatever the agent is made with."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, Num

from elden.bonuses.base import AnyBonus, Space
from elden.bonuses.beside import Beside
from elden.bonuses.episodes import forget_episodes
from elden.bonuses.model_based import ModelState
from elden.bonuses.reading import MajorityReader, models_of, reader_of
from elden.bonuses.registry import BonusConfig, depends_on_episode, make_bonus
from elden.factors import Continuous, Discrete, Factors, Kind, SampleLike
from elden.hosts.world import factors_of, factors_of_vector
from elden.storage.arrays import DamagedDataError, read_arrays, write_arrays
from elden.storage.cards import factors_from_json, factors_to_json, kind_from_json, kind_to_json
from elden.storage.checkpoints import from_arrays, to_arrays
from elden.storage.plain import from_plain, plain
from elden.transitions import Steps

if TYPE_CHECKING:
    AnySpace: TypeAlias = gymnasium.Space[Any]
    AnyEnv: TypeAlias = gymnasium.Env[Any, Any] | gymnasium.vector.VectorEnv[Any, Any, Any]
else:
    AnySpace = gymnasium.Space
    AnyEnv = gymnasium.Env | gymnasium.vector.VectorEnv

Given: TypeAlias = np.ndarray | np.generic | int | bool
"""Actions, or ends of episodes: an array, or one of them."""

Observations: TypeAlias = np.ndarray | SampleLike
"""Observations of a Gymnasium Dict space, or flat ones as `Factors` lays them out."""


class IntrinsicReward:
    """A bonus that is given steps and gives their intrinsic rewards.

        bonus = IntrinsicReward.for_env(envs)
        reward = bonus.reward(obs, action, next_obs, done)
        metrics = bonus.update(obs, action, next_obs, done)

    Steps are those of one environment (no batch axes, where `num_envs` is 1), of all environments at a time (`[env]`),
    or of a rollout (`[time, env]`). `next_obs` is the true observation after the step: where a vector environment has
    begun the next episode in the same step, that is `info["final_obs"]`.

    The same calls with the same seed give the same numbers.
    """

    def __init__(
        self,
        observations: Factors | AnySpace,
        actions: Kind | AnySpace | int,
        name: str = "influence-count",
        config: BonusConfig | None = None,
        *,
        num_envs: int = 1,
        seed: int = 0,
    ) -> None:
        """Make a bonus that has seen nothing.

        Args:
            observations: What observations are made of, or the Gymnasium Dict space that they come from.
            actions: How many actions there are, what kind they are, or their Gymnasium space (Discrete, or a Box with
                one axis).
            name: Which bonus: see `elden.bonuses.BONUSES`.
            config: Its settings.
            num_envs: How many environments there are.
            seed: Decides all randomness.

        Raises:
            ValueError: There is no such bonus, a setting is impossible, or a space has no factors.
        """
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs} given; at least 1 is needed")
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed={seed} given; it must lie between 0 and 2**31 - 1")
        factors = observations if isinstance(observations, Factors) else Factors.from_space(observations)
        kind, self.first_action = _kind(actions)
        self.space = Space(factors, kind)
        self.name, self.config = name, config or BonusConfig()
        self.num_envs, self.seed, self.updates = num_envs, seed, 0
        self.bonus: AnyBonus = make_bonus(name, self.space, self.config)
        self.state: Any = _init(self.bonus)(self._key(0, 0), num_envs)

    @classmethod
    def for_env(
        cls, env: AnyEnv, name: str = "influence-count", config: BonusConfig | None = None, *, seed: int = 0
    ) -> "IntrinsicReward":
        """The bonus for a Gymnasium environment or a vector of them, with the names that it has for its variables."""
        if isinstance(env, gymnasium.vector.VectorEnv):
            factors = factors_of_vector(env)
            return cls(factors, env.single_action_space, name, config, num_envs=env.num_envs, seed=seed)
        return cls(factors_of(env), env.action_space, name, config, seed=seed)

    @property
    def factors(self) -> Factors:
        """What an observation is made of."""
        return self.space.factors

    def reward(
        self,
        obs: Observations,
        action: Given,
        next_obs: Observations,
        done: Given | None = None,
    ) -> Float[np.ndarray, "*batch"]:
        """The intrinsic rewards of steps, with what has been learnt so far.

        Args:
            obs: Observations before the steps.
            action: What was done.
            next_obs: The true observations after the steps.
            done: Whether a step was the last one of its episode. Needed by bonuses that remember the episode, such as
                those that reward things once in it.

        Raises:
            ValueError: Shapes or values are not those of the spaces.
        """
        steps, batch = self._steps(obs, action, next_obs, self._ends(done))
        self.state, rewards, _ = _reward(self.bonus)(self.state, steps)
        found = np.asarray(rewards).reshape(batch)
        if not np.isfinite(found).all():
            raise ArithmeticError(f"the bonus {self.name!r} is not finite: {found}")
        return found

    def update(
        self, obs: Observations, action: Given, next_obs: Observations, done: Given | None = None
    ) -> dict[str, float]:
        """Learn from steps, and from those before that are kept; gives metrics back.

        Arguments are those of `reward`. How much is learnt in one call does not depend on the number of steps: see the
        settings `ensemble.updates` and `fit.updates`.
        """
        steps, _ = self._steps(obs, action, next_obs, self._ends(done))
        self.state, metrics = _update(self.bonus)(self.state, self._key(1, self.updates), steps)
        self.updates += 1
        return {name: float(value) for name, value in metrics.items()}

    def _ends(self, done: Given | None) -> Given | None:
        if done is None and depends_on_episode(self.name, self.config):
            raise ValueError(
                f"the bonus {self.name!r} depends on the episode, so it needs to know when episodes end: give done"
            )
        return done

    def _key(self, use: int, number: int) -> Key[Array, ""]:
        return jax.random.fold_in(jax.random.fold_in(jax.random.key(self.seed), use), number)

    def begin_episodes(self) -> None:
        """Say that all environments have been reset: nothing has been rewarded in their episodes."""
        self.state = forget_episodes(self.state)

    def local_graph(
        self, obs: Observations, action: Given, next_obs: Observations
    ) -> Bool[np.ndarray, "*batch dst src"]:
        """Which edges most models of the bonus see in steps; destinations and sources are `graph_names`.

        Models beside a bonus are read at the threshold that the detector's rule finds for the newest steps.

        Raises:
            ValueError: The bonus has no models that can be read.
        """
        reader, state = self._reader()
        if isinstance(self.bonus, Beside):
            state = _automatic(reader)(state)
        steps, batch = self._steps(obs, action, next_obs, None)
        graphs = np.asarray(_graphs(reader)(state, steps))
        return graphs.reshape(*batch, *graphs.shape[1:])

    @property
    def graph_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the destinations and of the sources of local graphs, the action being the last source."""
        dst, src = self._reader()[0].granularity
        return self.factors.source_names(dst)[:-1], self.factors.source_names(src)

    def _reader(self) -> tuple[MajorityReader, ModelState]:
        found = models_of(self.bonus, self.state)
        reader = None if found is None else reader_of(found[0], self.config.detector)
        if found is None or reader is None:
            raise ValueError(f"the bonus {self.name!r} has no models whose graphs can be read")
        return reader, found[1]

    def save(self, folder: Path | str) -> None:
        """Write everything into a folder: arrays and a JSON card with checksums.

        An earlier one there is replaced at once, when everything is on disk: a process that is killed meanwhile leaves
        it whole.

        Raises:
            ValueError: The folder holds something else.
            OSError: It cannot be written; the earlier one is whole.
        """
        card = {
            "bonus": self.name,
            "config": plain(self.config),
            "factors": factors_to_json(self.factors),
            "action": kind_to_json(self.space.action),
            "first_action": self.first_action,
            "num_envs": self.num_envs,
            "seed": self.seed,
            "updates": self.updates,
        }
        write_arrays(Path(folder), "bonus", to_arrays(self.state), card)

    @classmethod
    def load(cls, folder: Path | str) -> "IntrinsicReward":
        """What `save` has written; later rewards are those that the saved one would give.

        Raises:
            DamagedDataError: It is not whole, or of another version.
        """
        arrays, card = read_arrays(Path(folder), "bonus")
        known: Mapping[str, Any] = card
        try:
            made = cls(
                factors_from_json(known["factors"]),
                kind_from_json(known["action"]),
                known["bonus"],
                from_plain(BonusConfig, known["config"]),
                num_envs=known["num_envs"],
                seed=known["seed"],
            )
            made.first_action, made.updates = int(known["first_action"]), int(known["updates"])
        except (KeyError, TypeError, ValueError) as error:
            raise DamagedDataError(f"{folder} cannot be read: {error}") from None
        made.state = from_arrays(arrays, made.state)
        return made

    def _steps(
        self,
        obs: Observations,
        action: Given,
        next_obs: Observations,
        done: Given | None,
    ) -> tuple[Steps, tuple[int, ...]]:
        """The steps with axes for time and environments, and the batch axes that they came with."""
        actions, batch = self._actions(action)
        if batch[-1:] != (self.num_envs,) and not (batch == () and self.num_envs == 1):
            raise ValueError(
                f"action of shape {np.shape(action)} given; {self.num_envs} environments have actions of shape"
                f" [env={self.num_envs}] or [time, env={self.num_envs}], then the action's own axes"
            )
        flat = (self._flat("obs", obs, batch), actions, self._flat("next_obs", next_obs, batch))
        ends = np.zeros(batch, np.bool_) if done is None else np.asarray(done)
        if ends.shape != batch or ends.dtype != np.bool_:
            raise ValueError(f"done is {ends.dtype} of shape {ends.shape}; expected is bool of shape {batch}")
        lead = (*(1,) * (2 - len(batch)), *batch)
        parts = (jnp.asarray(part.reshape(*lead, *part.shape[len(batch) :])) for part in (*flat, ends))
        return Steps(*parts), batch

    def _actions(self, action: Given) -> tuple[Num[np.ndarray, "..."], tuple[int, ...]]:
        """Actions, checked, and their batch axes."""
        given, kind = np.asarray(action), self.space.action
        if isinstance(kind, Continuous):
            if given.ndim < 1 or given.shape[-1] != kind.size or given.ndim > 3 or given.dtype.kind not in "iuf":
                raise ValueError(f"action is {given.dtype} of shape {given.shape}; expected are {kind.size} numbers")
            if not np.isfinite(given).all():
                raise ValueError("action is not finite")
            return given.astype(np.float32), given.shape[:-1]
        if given.dtype.kind not in "iu" or given.ndim > 2:
            raise ValueError(f"action is {given.dtype} of shape {given.shape}; expected are integers")
        index = np.asarray(given.astype(np.int64) - self.first_action)
        if np.any((index < 0) | (index >= kind.n)):
            allowed = f"{self.first_action} to {self.first_action + kind.n - 1}"
            raise ValueError(f"action {given[(index < 0) | (index >= kind.n)].flat[0]} given; it takes {allowed}")
        return index.astype(np.int32), given.shape

    def _flat(self, what: str, given: Observations, batch: tuple[int, ...]) -> Num[np.ndarray, "*batch width"]:
        """Observations as factors lay them out, checked."""
        try:
            if isinstance(given, Mapping):
                return self.factors.checked(self.factors.from_space_sample(given, batch))
            flat = np.asarray(given)
            if flat.shape != (*batch, self.factors.width) or flat.dtype.kind not in "biuf":
                raise ValueError(
                    f"expected numbers of shape {(*batch, self.factors.width)}, got {flat.dtype} {flat.shape}"
                )
            return self.factors.checked(flat).astype(self.factors.dtype)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None


def _kind(actions: Kind | AnySpace | int) -> tuple[Kind, int]:
    """What an action is, and what the first of discrete ones is called."""
    if isinstance(actions, Discrete | Continuous):
        return actions, 0
    if isinstance(actions, gymnasium.spaces.Discrete):
        return Discrete(int(actions.n)), int(actions.start)
    if isinstance(actions, gymnasium.spaces.Box) and len(actions.shape) == 1:
        return Continuous(actions.shape[0]), 0
    if isinstance(actions, int | np.integer):
        return Discrete(int(actions)), 0
    raise ValueError(f"actions={actions} given; they are a number of actions, a Discrete space, or a Box with one axis")


# Compiled functions are shared by all bonuses that are equal.


@lru_cache(maxsize=16)
def _init(bonus: AnyBonus) -> Callable[..., Any]:
    return jax.jit(bonus.init, static_argnums=1)


@lru_cache(maxsize=16)
def _reward(bonus: AnyBonus) -> Callable[..., Any]:
    return jax.jit(bonus.reward)


@lru_cache(maxsize=16)
def _update(bonus: AnyBonus) -> Callable[..., Any]:
    return jax.jit(bonus.update)


@lru_cache(maxsize=16)
def _automatic(reader: MajorityReader) -> Callable[[ModelState], ModelState]:
    return jax.jit(reader.automatic)


@lru_cache(maxsize=16)
def _graphs(reader: MajorityReader) -> Callable[..., Any]:
    def read(state: ModelState, steps: Steps) -> Bool[Array, "step dst src"]:
        return reader.graphs(state, steps.transitions())

    return jax.jit(read)
