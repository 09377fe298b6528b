"""Whether anything was influenced: bonuses that count the events in which a variable did not go its own way."""

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from elden.bonuses.base import Metrics, Space
from elden.bonuses.changes import Spread, changed
from elden.bonuses.episodes import Episodes
from elden.bonuses.habits import Habits
from elden.pytree import pytree
from elden.transitions import Steps


@dataclass(frozen=True)
class CountConfig:
    """How events are counted."""

    power: float = 0.5
    """The reward of an event of a variable that had one in N episodes is N + 1 to the minus this."""
    by_entity: bool = True
    """Whether only the rarest event of each entity counts."""
    excess: float = 1.0
    """How much more a move must surprise than moves from there are expected to, in nats, to be an event."""

    def __post_init__(self) -> None:
        for name in ("power", "excess"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 0 or more, and finite")


@pytree()
@dataclass(frozen=True)
class CountState:
    """In how many episodes each variable has had an event.

    Attributes:
        counts: Episodes in which each variable had one.
        spread: What continuous variables vary by.
        habits: What variables do by themselves; None where everything is taken to stay as it is.
        rewarded: Events that were rewarded in the episodes under way.
        counted: Events that were counted in them.
    """

    counts: Int[Array, "*run variable"]
    spread: Spread
    habits: Habits | None
    rewarded: Episodes
    counted: Episodes


@dataclass(frozen=True)
class InfluenceCount:
    """Mean over entities of their rarest event, `max_j e_j (N_j + 1)^-1/2`, each variable once in an episode.

    A variable has an event, e_j = 1, where its move surprises a table of its own past by a nat more than expected:
    something else, an action or another entity, may be why. A lamp that comes on is an event, and so is a clock
    that stops; a clock that goes on, or a coin that is tossed again, is none. N_j counts the episodes in which variable
    j has had one.
    """

    name: ClassVar[str] = "influence-count"
    learns_habits: ClassVar[bool] = True

    space: Space
    config: CountConfig = field(default_factory=CountConfig)

    def init(self, key: Key[Array, ""], num_envs: int) -> CountState:
        """Nothing counted."""
        factors = self.space.factors
        nothing = Episodes.init(num_envs, factors.num_variables)
        counts = jnp.zeros(factors.num_variables, jnp.int32)
        habits = Habits.init(factors) if self.learns_habits else None
        return CountState(counts, Spread.init(factors.width), habits, nothing, nothing)

    def _events(self, state: CountState, steps: Steps) -> Bool[Array, "time env variable"]:
        factors, spread = self.space.factors, state.spread
        if state.habits is None:
            return changed(factors, steps.obs, steps.next_obs, spread)
        return state.habits.broken(factors, spread, steps.obs, steps.next_obs, self.config.excess)

    def reward(self, state: CountState, steps: Steps) -> tuple[CountState, Float[Array, "time env"], Metrics]:
        """More for rare events."""
        rewarded, first = state.rewarded.first(self._events(state, steps), steps.done)
        items = jnp.where(first, (state.counts.astype(jnp.float32) + 1.0) ** -self.config.power, 0.0)
        if self.config.by_entity:
            parts = [jnp.max(items[..., part], axis=-1) for part in self.space.factors.entity_slices]
            items = jnp.stack(parts, axis=-1)
        rewards = jnp.mean(items, axis=-1)
        return replace(state, rewarded=rewarded), rewards, {"bonus/mean": jnp.mean(rewards)}

    def update(self, state: CountState, key: Key[Array, ""], steps: Steps) -> tuple[CountState, Metrics]:
        """Learn habits, then count the episodes in which each variable broke its own."""
        state = replace(state, spread=state.spread.see(steps.obs))
        if state.habits is not None:
            habits = state.habits.see(self.space.factors, state.spread, steps.obs, steps.next_obs)
            state = replace(state, habits=habits)
        counted, first = state.counted.first(self._events(state, steps), steps.done)
        counts = state.counts + jnp.sum(first, axis=(0, 1), dtype=jnp.int32)
        return replace(state, counts=counts, counted=counted), {}


@dataclass(frozen=True)
class ChangeCount(InfluenceCount):
    """The same where everything is taken to stay as it is, so that every change is an event: a control."""

    name: ClassVar[str] = "change-count"
    learns_habits: ClassVar[bool] = False
