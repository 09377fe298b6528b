"""The worlds as Gymnasium environments, single and vector.

Observations are a `Dict` entity -> `MultiDiscrete` or `Box`; `info` holds `local_graph` (variable level, bool),
`stages`, `stage` (how many of them) and `success`. At the start of an episode, where there is no transition yet, the
graph is the identity.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space
from jaxtyping import Array, Bool, Int, Key, UInt8

from elden.factors import Factors, Sample
from elden.names import nearest_names, shown
from elden.worlds.base import ImpossibleStateError, Transition, World, WorldState
from elden.worlds.registry import make

Info: TypeAlias = dict[str, Any]
Option: TypeAlias = bool | int | float | str

if TYPE_CHECKING:
    Action: TypeAlias = int | np.integer[Any]
    _Env = gymnasium.Env[Sample, Action]
    _VectorEnv = gymnasium.vector.VectorEnv[Sample, Int[np.ndarray, " env"], np.ndarray]
else:
    Action = int | np.integer
    _Env, _VectorEnv = gymnasium.Env, gymnasium.vector.VectorEnv

_RENDER_MODES = ("rgb_array", "ansi")
_RESET_OPTIONS = ("state", "succeeded", "solvable")


# Compiled functions are shared by all environments whose worlds have equal options.


@lru_cache(maxsize=64)
def _compiled_reset(world: World, solvable: bool) -> Any:
    return jax.jit(partial(world.reset, solvable=solvable))


@lru_cache(maxsize=64)
def _compiled_step(world: World) -> Any:
    return jax.jit(world.step)


@lru_cache(maxsize=64)
def _compiled_reset_each(world: World, solvable: bool) -> Any:
    return jax.jit(jax.vmap(partial(world.reset, solvable=solvable)))


@lru_cache(maxsize=64)
def _compiled_step_each(world: World) -> Any:
    def step(
        keys: Key[Array, " env"], states: WorldState, actions: Int[Array, " env"]
    ) -> tuple[Key[Array, " env"], WorldState, Transition]:
        split = jax.vmap(partial(jax.random.split, num=3))(keys)
        return split[:, 0], *world.step_each(split[:, 1], split[:, 2], states, actions)

    return jax.jit(step)


def _space(world: World) -> gymnasium.Space[Sample]:
    space: gymnasium.Space[Any] = world.factors.to_space()
    return space


def _check_render_mode(mode: str | None) -> None:
    if mode is not None and mode not in _RENDER_MODES:
        raise ValueError(f"render_mode={mode!r} given; there are {', '.join(map(repr, _RENDER_MODES))} and None")


def _check_reset_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _RESET_OPTIONS:
            raise ValueError(f"reset has no option {name!r}; {nearest_names(str(name), _RESET_OPTIONS)}")
    if "solvable" in options:
        _flag("solvable", options["solvable"])
    if "succeeded" in options and "state" not in options:
        raise ValueError("reset option 'succeeded' only goes with 'state'")
    if "solvable" in options and "state" in options:
        raise ValueError("reset options 'solvable' and 'state' exclude each other: a given state is not drawn")


def _flag(option: str, given: object) -> bool:
    """A yes or no of the user's; anything else is refused."""
    if not isinstance(given, bool | np.bool_):
        raise ValueError(f"reset option {option}={shown(given)} given; it is True or False")
    return bool(given)


def _info(graph: np.ndarray, stages: np.ndarray, success: np.ndarray | bool) -> Info:
    count = np.sum(stages, axis=-1, dtype=np.int64)
    return {"local_graph": graph, "stages": stages, "stage": count if count.ndim else int(count), "success": success}


def _start(world: World, named: object, succeeded: object) -> WorldState:
    """The start of an episode from a state as a user gave it."""
    if not isinstance(named, Mapping):
        raise ImpossibleStateError(
            f"{world.name}: reset option state={named!r} given; it is a dict entity -> variable -> value"
        )
    return world.from_named(named, _flag("succeeded", succeeded))


def _frame(world: World, state: WorldState, mode: str) -> UInt8[np.ndarray, "height width 3"] | str:
    """A picture of one state, with step and stage under it."""
    from elden.viewing import pictures  # worlds know nothing of drawing until somebody asks for a picture

    scene = world.scene(state)
    stage = f"{int(np.sum(np.asarray(state.stages)))}/{world.num_stages}"
    progress = (("step", f"{int(state.elapsed)}/{world.max_steps}"), ("stage", stage))
    scene = replace(scene, status=(*progress, *scene.status))
    return pictures.draw(scene) if mode == "rgb_array" else pictures.text(scene)


class _Face:
    """What the single and the vector environment share."""

    world: World

    @property
    def factors(self) -> Factors:
        """What an observation is made of."""
        return self.world.factors

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, in the order of their indices."""
        return self.world.action_names

    @property
    def variable_names(self) -> tuple[str, ...]:
        """Names such as "fish.frozen", in graph order."""
        return self.world.factors.variable_names

    @property
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages, in order."""
        return self.world.stage_names

    @property
    def max_steps(self) -> int:
        """Length of an episode."""
        return self.world.max_steps

    def _identity(self, *batch: int) -> Bool[np.ndarray, "*batch dst src"]:
        n = self.world.factors.num_variables
        return np.broadcast_to(np.eye(n, n + 1, dtype=bool), (*batch, n, n + 1)).copy()


class WorldEnv(_Face, _Env):
    """One episode at a time of a world, as a Gymnasium environment.

    `reset(options={"state": {...}, "succeeded": False})` starts from a given state (entity -> variable -> value, hidden
    entities included) and refuses an impossible one; `state()` gives the same form back. `reset(options={"solvable":
    True})` draws a solvable initial state.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - Gymnasium declares it so
        "render_modes": list(_RENDER_MODES),
        "render_fps": 4,
    }

    def __init__(self, world: str = "thawing", render_mode: str | None = None, **options: Option) -> None:
        """Make the environment of a world with its options, such as `profile="primitives"`."""
        _check_render_mode(render_mode)
        self.world = make(world, **options)
        self.render_mode = render_mode
        self.observation_space = _space(self.world)
        self.action_space = gymnasium.spaces.Discrete(self.world.num_actions)
        self._state: WorldState | None = None
        self._key: Key[Array, ""] | None = None
        self._over = False

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[Sample, Info]:
        """Start an episode: from a drawn state, or from `options["state"]`."""
        asked = dict(options or {})
        _check_reset_options(asked)
        given = None
        if "state" in asked:
            given = _start(self.world, asked["state"], asked.get("succeeded", False))
        super().reset(seed=seed)
        self._key, state_key = jax.random.split(jax.random.key(int(self.np_random.integers(2**31))))
        solvable = bool(asked.get("solvable", self.world.solvable_only))
        self._state = self._begun(given if given is not None else _compiled_reset(self.world, solvable)(state_key))
        self._over = False
        return self._observation(), _info(self._identity(), *self._progress()) | self._extra()

    def step(self, action: Action) -> tuple[Sample, float, bool, bool, Info]:
        """Take one action."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step()")
        if not self.action_space.contains(action):
            names = ", ".join(f"{index} {name}" for index, name in enumerate(self.action_names))
            raise ValueError(f"action {shown(action)} given; {self.world.name} takes an integer of these: {names}")
        transition = self._taken(action)
        terminated, truncated = bool(transition.terminated), bool(transition.truncated)
        self._over = terminated or truncated
        info = _info(np.array(transition.graph), *self._progress()) | self._extra()
        return self._observation(), float(transition.reward), terminated, truncated, info

    # What an environment with other physics does in its own way.

    def _begun(self, state: WorldState) -> WorldState:
        """The state that an episode begins with, given what was drawn."""
        return state

    def _taken(self, action: Action) -> Transition:
        """Take a step; the new state is kept."""
        if self._key is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        self._key, step_key, _ = jax.random.split(self._key, 3)
        transition: Transition
        self._state, transition = _compiled_step(self.world)(step_key, self._current(), jnp.int32(action))
        return transition

    def _extra(self) -> Info:
        """What `info` holds beside what it holds in every world."""
        return {}

    def render(self) -> Any:
        """An RGB array or a text, as `render_mode` says."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() called without a render_mode; give one to gymnasium.make")
            return None
        return _frame(self.world, self._current(), self.render_mode)

    def state(self) -> dict[str, dict[str, int | float | list[float]]]:
        """The state as entity -> variable -> value, hidden entities included: what `reset` takes."""
        return self.world.to_named(self._current())

    def _current(self) -> WorldState:
        if self._state is None:
            raise gymnasium.error.ResetNeeded("there is no state yet: call reset()")
        return self._state

    def _observation(self) -> Sample:
        return self.factors.to_space_sample(np.asarray(self.world.observe(self._current())))

    def _progress(self) -> tuple[np.ndarray, bool]:
        state = self._current()
        return np.array(state.stages), bool(state.succeeded)


class WorldVectorEnv(_Face, _VectorEnv):
    """Many episodes of a world at once, stepped as one compiled batch.

    An environment whose episode ends starts the next one in the same step (`AutoresetMode.SAME_STEP`): the observation
    is then the first of the new episode, and the last one of the old is in `info["final_obs"]`, with its `final_info`.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - Gymnasium declares it so
        "render_modes": list(_RENDER_MODES),
        "render_fps": 4,
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self, num_envs: int = 1, world: str = "thawing", render_mode: str | None = None, **options: Option
    ) -> None:
        """Make `num_envs` environments of one world."""
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs} given; at least 1 is needed")
        _check_render_mode(render_mode)
        self.world = make(world, **options)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.single_observation_space = _space(self.world)
        self.single_action_space = gymnasium.spaces.Discrete(self.world.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._states: WorldState | None = None
        self._keys: Key[Array, " env"] | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Sample, Info]:
        """Start all episodes. Environment i is seeded with `seed + i`, or with its own entry of a list of seeds.

        `options["state"]` (and "succeeded") may be one for all or one for each.
        """
        asked = dict(options or {})
        _check_reset_options(asked)
        given = self._given(asked) if "state" in asked else None
        numbers = self._numbers(seed)
        split = jax.vmap(jax.random.split)(jax.vmap(jax.random.key)(jnp.asarray(numbers, jnp.uint32)))
        self._keys = split[:, 0]
        solvable = bool(asked.get("solvable", self.world.solvable_only))
        self._states = given if given is not None else _compiled_reset_each(self.world, solvable)(split[:, 1])
        info = _info(self._identity(self.num_envs), *self._progress())
        return self._observation(), _with_masks(info, np.ones(self.num_envs, bool))

    def step(self, actions: Int[np.ndarray, " env"]) -> tuple[Sample, np.ndarray, np.ndarray, np.ndarray, Info]:
        """Take one action in every environment."""
        if self._states is None or self._keys is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        chosen = self._checked(actions)
        self._keys, self._states, transition = _compiled_step_each(self.world)(self._keys, self._states, chosen)
        done = np.asarray(transition.done)
        graph = np.where(done[:, None, None], self._identity(self.num_envs), np.asarray(transition.graph))
        info = _with_masks(_info(graph, *self._progress()), np.ones(self.num_envs, bool))
        if done.any():
            info |= self._final(transition, done)
        reward = np.array(transition.reward, np.float64)
        return self._observation(), reward, np.array(transition.terminated), np.array(transition.truncated), info

    def render(self) -> tuple[Any, ...] | None:
        """One frame for each environment."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() called without a render_mode; give one to gymnasium.make_vec")
            return None
        return tuple(_frame(self.world, state, self.render_mode) for state in self._single_states())

    def state(self) -> list[dict[str, dict[str, int | float | list[float]]]]:
        """The named state of every environment."""
        return [self.world.to_named(state) for state in self._single_states()]

    def _single_states(self) -> list[WorldState]:
        states = self._current()
        return [jax.tree.map(lambda leaf, i=i: leaf[i], states) for i in range(self.num_envs)]

    def _current(self) -> WorldState:
        if self._states is None:
            raise gymnasium.error.ResetNeeded("there is no state yet: call reset()")
        return self._states

    def _observation(self) -> Sample:
        return self.factors.to_space_sample(np.asarray(self._current().values)[:, : self.factors.width])

    def _progress(self) -> tuple[np.ndarray, np.ndarray]:
        states = self._current()
        return np.array(states.stages), np.array(states.succeeded)

    def _numbers(self, seed: int | Sequence[int | None] | None) -> list[int]:
        """A number for each environment, drawn from a generator of its own seed: as the single environment does.

        Later resets without a seed draw from the generator of the first seed.
        """
        if seed is None:
            return [int(number) for number in self.np_random.integers(2**31, size=self.num_envs)]
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds given for {self.num_envs} environments")
        for one in seeds:
            if one is not None and not isinstance(one, int | np.integer):
                raise gymnasium.error.Error(f"seed {shown(one)} given; seeds are integers, or None")
        plain = [None if one is None else int(one) for one in seeds]
        generators = [gymnasium.utils.seeding.np_random(one)[0] for one in plain]
        if plain[0] is not None:
            super().reset(seed=plain[0])
        return [int(generator.integers(2**31)) for generator in generators]

    def _given(self, asked: Mapping[str, Any]) -> WorldState:
        """The given states, checked one by one."""
        states = self._for_each("state", asked["state"], Mapping)
        flags = self._for_each("succeeded", asked.get("succeeded", False), (bool, np.bool_))
        singles = []
        for index, (named, succeeded) in enumerate(zip(states, flags, strict=True)):
            try:
                singles.append(_start(self.world, named, succeeded))
            except ValueError as error:
                raise type(error)(f"environment {index}: {error}") from None
        stacked: WorldState = jax.tree.map(lambda *leaves: jnp.stack(leaves), *singles)
        return stacked

    def _for_each(self, option: str, given: object, single: type | tuple[type, ...]) -> list[object]:
        """One value for each environment: the same for all, or a sequence of them."""
        if isinstance(given, single):
            return [given] * self.num_envs
        if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
            kind = ImpossibleStateError if option == "state" else ValueError
            name = self.world.name
            raise kind(f"{name}: reset option {option}={shown(given)} given; it is one for all, or a sequence of them")
        if len(given) != self.num_envs:
            raise ValueError(f"{len(given)} values of {option!r} given for {self.num_envs} environments")
        return list(given)

    def _checked(self, actions: Int[np.ndarray, " env"]) -> Int[Array, " env"]:
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or not np.issubdtype(given.dtype, np.integer):
            raise ValueError(
                f"actions of shape {given.shape} and type {given.dtype} given; "
                f"{self.num_envs} environments take integers of shape ({self.num_envs},)"
            )
        wrong = (given < 0) | (given >= self.world.num_actions)
        if wrong.any():
            first = int(np.argmax(wrong))
            raise ValueError(
                f"action {given[first]} given for environment {first}; "
                f"{self.world.name} takes 0..{self.world.num_actions - 1}"
            )
        return jnp.asarray(given, jnp.int32)

    def _final(self, transition: Transition, done: np.ndarray) -> Info:
        """The last observation and info of the episodes that ended."""
        last = np.full(self.num_envs, None, dtype=object)
        rows = np.asarray(transition.next_obs)
        for i in np.flatnonzero(done):
            last[i] = self.factors.to_space_sample(rows[i])
        parts = (transition.graph, transition.stages, transition.success)
        kept = [np.where(done.reshape(-1, *(1,) * (part.ndim - 1)), np.asarray(part), False) for part in parts]
        info = _with_masks(_info(kept[0], kept[1], kept[2]), done)
        return _with_masks({"final_obs": last, "final_info": info}, done)


def _with_masks(info: Info, present: np.ndarray) -> Info:
    """Gymnasium's form: beside every key a mask of the environments that have it."""
    return info | {f"_{key}": present.copy() for key in info}
