"""What every world is: pure functions on one frozen state, and a description of what the state is made of."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from typing import ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, Num, Shaped

from elden.factors import Factors
from elden.worlds.labels import Fired, RuleBook
from elden.worlds.scene import Scene

View: TypeAlias = dict[str, Num[Array, "..."]]
"""The variables of one state by name: "fish.x" and so on, hidden ones included."""

Named: TypeAlias = Mapping[str, Mapping[str, int | float | Sequence[float]]]
"""A state as users write it: entity -> variable -> value."""

Labels: TypeAlias = Literal["fix", "authors"]


@partial(jax.tree_util.register_dataclass, data_fields=("values", "elapsed", "succeeded", "stages"), meta_fields=())
@dataclass(frozen=True)
class WorldState:
    """The whole state of one episode.

    Attributes:
        values: The observed variables in the order of the world's factors, then the hidden ones.
        elapsed: Steps taken in this episode.
        succeeded: Whether the task has been solved in this episode.
        stages: Which stages have been reached in this episode.
    """

    values: Num[Array, "*batch value"]
    elapsed: Int[Array, "*batch"]
    succeeded: Bool[Array, "*batch"]
    stages: Bool[Array, "*batch stage"]


_TRANSITION_FIELDS = (
    "obs",
    "action",
    "next_obs",
    "reward",
    "terminated",
    "truncated",
    "success",
    "stages",
    "graph",
    "events",
)


@partial(jax.tree_util.register_dataclass, data_fields=_TRANSITION_FIELDS, meta_fields=())
@dataclass(frozen=True)
class Transition:
    """What one step was.

    Attributes:
        obs: Observation before the step.
        action: The action taken.
        next_obs: Observation after the step: the true one, also where `World.step_many` then starts a new episode.
        reward: 1 on every step from success on (only on the first one with `pay_once`), else 0.
        terminated: The episode ended by success (only with `terminate_on_success`).
        truncated: The episode ended at `max_steps`.
        success: Whether the task has been solved in this episode.
        stages: Which stages have been reached in this episode.
        graph: The true local graph `[dst, src]`, at variable level, the action being the last source.
        events: Which of `World.book.events` happened.
    """

    obs: Num[Array, "*batch width"]
    action: Int[Array, "*batch"]
    next_obs: Num[Array, "*batch width"]
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    success: Bool[Array, "*batch"]
    stages: Bool[Array, "*batch stage"]
    graph: Bool[Array, "*batch dst src"]
    events: Bool[Array, "*batch event"]

    @property
    def done(self) -> Bool[Array, "*batch"]:
        """Whether the episode is over."""
        return self.terminated | self.truncated


def select(which: Bool[Array, " env"], yes: WorldState, no: WorldState) -> WorldState:
    """For every environment, one of two states."""

    def choose(new: Shaped[Array, "env ..."], old: Shaped[Array, "env ..."]) -> Shaped[Array, "env ..."]:
        return jnp.where(which.reshape((-1,) + (1,) * (new.ndim - 1)), new, old)

    chosen: WorldState = jax.tree.map(choose, yes, no)
    return chosen


class WorldOptionError(ValueError):
    """An option of a world has a value that it cannot have."""


class ImpossibleStateError(ValueError):
    """A given state breaks the rules of the world."""


@dataclass(frozen=True)
class World(abc.ABC):
    """A world of entities. Frozen and hashable: two worlds with equal options share their compiled functions.

    A concrete world says what its state is made of (`factors`, `hidden`), what one can do (`action_names`), and
    overrides the underscored functions, each on the variables of ONE state; `reset`, `step` and the rest are then
    given. Success is latched; the reward is 1 on every step from success on; an episode ends at `max_steps`.
    """

    name: ClassVar[str]
    limits: ClassVar[Mapping[str, int]] = {"max_steps": 1_000_000, "size": 256}
    """The largest value of options that are numbers, where there is one. Beyond it nothing would ever be compiled."""

    max_steps: int = 100
    """Length of an episode."""
    terminate_on_success: bool = False
    """End the episode at the first success."""
    pay_once: bool = False
    """Pay the reward only on the step of the first success, not on every step from then on."""
    labels: Labels = "fix"
    """Rules of the true local graph: "fix" is ours, "authors" the labels of the original programs."""
    solvable_only: bool = False
    """Let `reset` draw only initial states in which the task can be solved."""

    def __post_init__(self) -> None:
        """Check the options."""
        self._check_options()

    def _check_options(self) -> None:
        for option in self.option_names():
            given = getattr(self, option)
            if given > self.limits.get(option, given):
                raise WorldOptionError(f"{option}={given} given; {self.name} takes at most {self.limits[option]}")
        if self.max_steps < 1:
            raise WorldOptionError(f"max_steps={self.max_steps} given; an episode needs at least 1 step")
        self._check_choice("labels", self.labels, ("fix", "authors"))

    def _check_choice(self, option: str, given: str, allowed: Sequence[str]) -> None:
        if given not in allowed:
            choices = ", ".join(repr(choice) for choice in allowed)
            raise WorldOptionError(f"{option}={given!r} given; {self.name} knows {choices}")

    # What a world says of itself.

    @property
    @abc.abstractmethod
    def factors(self) -> Factors:
        """The observed entities and their variables, in graph order."""

    @property
    def hidden(self) -> Factors | None:
        """Entities that exist and act but are not observed; None where there are none."""
        return None

    @property
    @abc.abstractmethod
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, in the order of their indices."""

    @property
    @abc.abstractmethod
    def stage_names(self) -> tuple[str, ...]:
        """Names of the stages on the way to success, in order; the last one is success itself."""

    @property
    @abc.abstractmethod
    def book(self) -> RuleBook:
        """The rules of the true local graph under the option `labels`."""

    @abc.abstractmethod
    def _draw(self, key: Key[Array, ""]) -> tuple[View, Bool[Array, ""]]:
        """One try at an initial state, and whether there was room for everything."""

    @abc.abstractmethod
    def _advance(self, key: Key[Array, ""], view: View, action: Int[Array, ""]) -> tuple[View, Fired]:
        """The variables after one step, and the events that happened."""

    @abc.abstractmethod
    def _goal(self, view: View) -> Bool[Array, ""]:
        """Whether the task is solved in this very state."""

    @abc.abstractmethod
    def _stages(self, view: View, fired: Fired | None) -> list[Bool[Array, ""]]:
        """Which stages hold now; `fired` is what happened on the way here, None at the start of an episode."""

    @abc.abstractmethod
    def _solvable(self, view: View) -> Bool[Array, ""]:
        """Whether some sequence of actions, of whatever length, leads from here to success."""

    @abc.abstractmethod
    def _violations(self, view: View) -> dict[str, Bool[Array, ""]]:
        """What could be wrong with a state whose variables are all in range: sentence -> whether it is."""

    @abc.abstractmethod
    def _script(self, key: Key[Array, ""], view: View) -> Int[Array, ""]:
        """The action of a policy that solves the world."""

    def _afterwards(
        self, key: Key[Array, ""], view: View, elapsed: Int[Array, ""], planned: Int[Array, ""]
    ) -> Int[Array, ""]:
        """What the scripted policy does once it has succeeded; `planned` is what `_script` would go on to do."""
        return planned

    @abc.abstractmethod
    def _scene(self, named: Named) -> Scene:
        """What a picture of the state shows."""

    # What follows from it.

    @property
    def num_actions(self) -> int:
        """How many actions there are."""
        return len(self.action_names)

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.stage_names)

    @cached_property
    def all_factors(self) -> Factors:
        """Observed and hidden entities together: the order of `WorldState.values`."""
        return self.factors if self.hidden is None else self.factors + self.hidden

    def action(self, name: str) -> int:
        """The index of a named action."""
        if name not in self.action_names:
            raise ValueError(f"no action {name!r} in {self.name}; there are {', '.join(self.action_names)}")
        return self.action_names.index(name)

    def unpack(self, values: Num[Array, " value"]) -> View:
        """The variables by name."""
        factors = self.all_factors
        view: View = {}
        for index, (name, variable) in enumerate(zip(factors.variable_names, factors.variables, strict=True)):
            part = values[factors.flat_slice(index)]
            view[name] = part if variable.kind.size > 1 else part[0]
        return view

    def pack(self, view: View) -> Num[Array, " value"]:
        """The inverse of `unpack`."""
        dtype = self.all_factors.dtype
        parts = [jnp.atleast_1d(view[name]).astype(dtype) for name in self.all_factors.variable_names]
        return jnp.concatenate(parts)

    def reset(self, key: Key[Array, ""], *, solvable: bool | None = None) -> WorldState:
        """Start an episode in an initial state drawn by the world's placement rules.

        A draw that leaves no room for some entity, or that is unsolvable where only solvable ones are wanted, is thrown
        away whole and drawn again, for as long as it takes: the result is never a failed draw. Options under
        which good draws are impossible or hopelessly rare are refused when the world is made.

        Args:
            key: Random key.
            solvable: Draw only solvable initial states; None leaves it to the option `solvable_only`.
        """
        only_solvable = self.solvable_only if solvable is None else solvable

        def attempt(carry: _Attempt) -> _Attempt:
            key, draw_key = jax.random.split(carry[0])
            view, good = self._draw(draw_key)
            if only_solvable:
                good = good & self._solvable(view)
            return key, self.pack(view), good

        nothing = jnp.zeros((self.all_factors.width,), self.all_factors.dtype)
        start: _Attempt = (key, nothing, jnp.asarray(False))
        _, values, _ = jax.lax.while_loop(lambda carry: ~carry[2], attempt, start)
        return self.begin(values)

    def begin(self, values: Num[Array, " value"], succeeded: bool | Bool[Array, ""] = False) -> WorldState:
        """Start an episode from given variables. They are taken as they are: `from_named` checks.

        Stages that hold in the given state count as reached; success, the last of them, does not: it comes from a step.
        """
        latched = jnp.asarray(succeeded)
        *before, _ = self._stages(self.unpack(values), None)
        stages = jnp.stack([*before, jnp.asarray(False)])
        return WorldState(values, jnp.int32(0), latched, stages | latched)

    def step(self, key: Key[Array, ""], state: WorldState, action: Int[Array, ""]) -> tuple[WorldState, Transition]:
        """One step of one episode. The state continues past the end of the episode: see `step_many`.

        Args:
            key: Random key; only worlds (and goTo rules) with randomness in them use it.
            state: The state before.
            action: Index of the action. Not checked: it is a traced value; the Gymnasium environment checks.

        Returns:
            The state after, and the transition with reward, ends, stages and true local graph.
        """
        after, fired = self._advance(key, self.unpack(state.values), action)
        return self.conclude(state, action, after, fired)

    def conclude(
        self, state: WorldState, action: Int[Array, ""], after: View, fired: Fired
    ) -> tuple[WorldState, Transition]:
        """The outcome of a step, given what it has led to and which events happened on the way.

        `step` ends here. A simulation with other physics can end its own steps here too, and is then judged by the
        same stages, rewards, ends and rules of the graph.
        """
        values = self.pack(after)
        succeeded = state.succeeded | self._goal(after)
        stages = state.stages | jnp.stack(self._stages(after, fired))
        elapsed = state.elapsed + 1
        terminated = succeeded & self.terminate_on_success
        paid = succeeded & ~state.succeeded if self.pay_once else succeeded
        transition = Transition(
            obs=self.observe(state),
            action=action,
            next_obs=values[: self.factors.width],
            reward=paid.astype(jnp.float32),
            terminated=terminated,
            truncated=(elapsed >= self.max_steps) & ~terminated,
            success=succeeded,
            stages=stages,
            graph=self.book.graph(fired),
            events=self.book.vector(fired),
        )
        return WorldState(values, elapsed, succeeded, stages), transition

    def reset_many(self, key: Key[Array, ""], num_envs: int) -> WorldState:
        """Start `num_envs` episodes."""
        return jax.vmap(self.reset)(jax.random.split(key, num_envs))

    def step_many(
        self, key: Key[Array, ""], states: WorldState, actions: Int[Array, " env"]
    ) -> tuple[WorldState, Transition]:
        """One step of many episodes; those that end start again. See `step_each`."""
        step_key, reset_key = jax.random.split(key)
        num_envs = actions.shape[0]
        step_keys, reset_keys = jax.random.split(step_key, num_envs), jax.random.split(reset_key, num_envs)
        return self.step_each(step_keys, reset_keys, states, actions)

    def step_each(
        self,
        step_keys: Key[Array, " env"],
        reset_keys: Key[Array, " env"],
        states: WorldState,
        actions: Int[Array, " env"],
    ) -> tuple[WorldState, Transition]:
        """One step of many episodes, each with its own keys; those that end start again.

        The transition is the true one (its `next_obs` is the last observation of an episode that ended); the state
        that comes back is then the first of the next episode. Initial states are drawn only in steps in which some
        episode ends.
        """
        stepped, transition = jax.vmap(self.step)(step_keys, states, actions)
        done = transition.done

        def renew(states: WorldState) -> WorldState:
            return select(done, jax.vmap(self.reset)(reset_keys), states)

        following: WorldState = jax.lax.cond(jnp.any(done), renew, lambda states: states, stepped)
        return following, transition

    def observe(self, state: WorldState) -> Num[Array, " width"]:
        """The flat observation, as `factors` lays it out."""
        return state.values[: self.factors.width]

    def elapsed_fraction(self, state: WorldState) -> Float[Array, ""]:
        """Steps taken over the length of an episode: what a policy may see beside the observation."""
        return state.elapsed.astype(jnp.float32) / self.max_steps

    def solvable(self, state: WorldState) -> Bool[Array, ""]:
        """Whether some sequence of actions, of whatever length, leads from this state to success. Exact."""
        return state.succeeded | self._solvable(self.unpack(state.values))

    def scripted(
        self, key: Key[Array, ""], state: WorldState, epsilon: float | Float[Array, ""] = 0.0
    ) -> Int[Array, ""]:
        """The action of the scripted policy, replaced by a uniform one with probability `epsilon`.

        The policy solves every solvable initial state; after success it makes the most of the rest of the episode, so
        that with some random actions mixed in every dependency of the world shows up.
        """
        script_key, coin_key, action_key = jax.random.split(key, 3)
        view = self.unpack(state.values)
        planned = self._script(script_key, view)
        planned = jnp.where(state.succeeded, self._afterwards(script_key, view, state.elapsed, planned), planned)
        other = jax.random.randint(action_key, (), 0, self.num_actions, jnp.int32)
        return jnp.where(jax.random.uniform(coin_key) < epsilon, other, planned)

    def legal(self, state: WorldState) -> Bool[Array, ""]:
        """Whether the rules allow this state: every variable in range, nothing where it cannot be."""
        good = self.all_factors.in_range(state.values)
        for broken in self._violations(self.unpack(state.values)).values():
            good = good & ~broken
        return good

    def taken_along(self, before: Num[Array, " value"], moved: Num[Array, " value"]) -> Num[Array, " value"]:
        """The variables `moved`, with whatever the agent carried in `before` still carried.

        In worlds where a carried thing shows the agent's own place, moving the agent alone would mean putting it down.
        """
        return moved

    # Host side: named states and pictures.

    def to_named(self, state: WorldState) -> dict[str, dict[str, int | float | list[float]]]:
        """The state as entity -> variable -> value, hidden entities included."""
        return self.all_factors.to_named(np.asarray(state.values))

    def from_named(self, named: Named, succeeded: bool = False) -> WorldState:
        """The start of an episode from a named state, refused with a clear error if it is impossible.

        Checked is what the rules need (names, ranges, nothing outside the grid or in a taken cell), not how such a
        state could have come about.
        """
        try:
            values = jnp.asarray(self.all_factors.from_named(named))
        except ValueError as error:
            raise ImpossibleStateError(f"{self.name}: {error}") from None
        state, broken = _compiled_begin(self)(values, jnp.asarray(succeeded))
        wrong = [sentence for sentence, is_so in jax.device_get(broken).items() if is_so]
        if wrong:
            raise ImpossibleStateError(f"{self.name}: impossible state: {'; '.join(wrong)}")
        return state

    def scene(self, state: WorldState) -> Scene:
        """What a picture of this state shows."""
        return self._scene(self.to_named(state))

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """The names of the options."""
        return tuple(option.name for option in fields(cls) if option.init)


_Begin: TypeAlias = Callable[[Num[Array, " value"], Bool[Array, ""]], tuple[WorldState, dict[str, Bool[Array, ""]]]]


@lru_cache(maxsize=64)
def _compiled_begin(world: World) -> _Begin:
    """The start of an episode from given variables and what is wrong with them, compiled once for equal worlds."""

    def begin(
        values: Num[Array, " value"], succeeded: Bool[Array, ""]
    ) -> tuple[WorldState, dict[str, Bool[Array, ""]]]:
        return world.begin(values, succeeded), world._violations(world.unpack(values))

    return jax.jit(begin)


_Attempt: TypeAlias = tuple[Key[Array, ""], Num[Array, " value"], Bool[Array, ""]]
