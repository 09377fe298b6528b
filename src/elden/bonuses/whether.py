"""Small networks that answer yes-or-no questions about a step before it happens, and how wrong they were.

The questions are bits: "will this variable change?", "will this edge be in the local graph?". Each member of an
ensemble is an MLP from state and action to a probability for every bit. What matters is the *excess surprise* of what
then happened,

    e = −log P(c) − H(P),

the surprise beyond what the member expected. It is 0 on average for randomness that is known to be random, however
large, and large for what was taken to be impossible, also where all members were wrong in the same way.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from elden.bonuses.base import Metrics, Space
from elden.bonuses.fitted import FitConfig, Fitted
from elden.dynamics.replay import Ring
from elden.factors import Discrete
from elden.nn import Mlp
from elden.pytree import pytree
from elden.transitions import Transitions

Measure: TypeAlias = Literal["events", "excess", "disagreement", "progress"]

Bits: TypeAlias = Bool[Array, "step bit"]


@dataclass(frozen=True)
class WhetherConfig(FitConfig):
    """Networks that predict yes-or-no questions about a step."""

    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    members: int = 3
    """Networks in the ensemble."""
    capacity: int = 0
    """Transitions that are kept to learn from; 0 learns from the newest rollout alone."""
    measure: Measure = "events"
    """The reward of a bit: 1 where its excess surprise is above `excess`; the amount above 0; the members' disagreement
    about its probability, in nats; or how much less surprising it is now than it was to older networks."""
    excess: float = 3.0
    """How much more a surprise must be than expected, in nats, to be an event."""
    centred: bool = False
    """Whether the expected reward is subtracted, so that known randomness has 0 on average."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members < 1 or self.capacity < 0:
            raise ValueError(f"members={self.members}, capacity={self.capacity} given; at least 1 and 0 are needed")
        if self.measure not in get_args(Measure):
            raise ValueError(f"measure={self.measure!r} given; it must be one of {', '.join(get_args(Measure))}")
        if self.centred and self.measure != "events":
            raise ValueError(f"centred=True, measure={self.measure!r} given; only events can be centred")
        if not self.excess >= 0:
            raise ValueError(f"excess={self.excess} given; it must be 0 or more")
        if self.measure == "disagreement" and self.members < 2:
            raise ValueError("members=1 given; one member alone cannot disagree")


def check_once(whether: WhetherConfig) -> None:
    """Refuse what cannot be rewarded once in an episode: rewards that are never 0 would use the episode up at once."""
    if whether.measure != "events" or whether.centred:
        what = "centred=True" if whether.centred else f"measure={whether.measure!r}"
        raise ValueError(f"once=True, {what} given; only plain events are rewarded once in an episode")


@pytree()
@dataclass(frozen=True)
class Asked:
    """Transitions with the answers to be learnt from them."""

    seen: Transitions
    bits: Bits

    def __getitem__(self, index: object) -> "Asked":
        """Some of them."""
        chosen: Asked = jax.tree.map(lambda leaf: leaf[index], self)
        return chosen


@pytree()
@dataclass(frozen=True)
class WhetherState:
    """The members in training, and what they learn from.

    Attributes:
        fitted: The members' parameters.
        older: A slow average of the parameters, for learning progress.
        ring: What is kept; None where nothing is.
    """

    fitted: Fitted[Mlp]
    older: Mlp | None
    ring: Ring[Asked] | None


@dataclass(frozen=True)
class Whether:
    """An ensemble that predicts bits from state and action. Frozen and hashable."""

    space: Space
    bits: int
    config: WhetherConfig

    def init(self, key: Key[Array, ""]) -> WhetherState:
        """Untrained members."""
        config = self.config
        size = self.space.factors.encoded_width + self.space.action.encoded_size
        sizes = (size, *config.hidden, self.bits)
        members = jax.vmap(lambda each: Mlp.init(each, sizes, "relu"))(jax.random.split(key, config.members))
        ring = Ring.create(config.capacity, self._example()) if config.capacity else None
        return WhetherState(Fitted.init(config, members), members if config.measure == "progress" else None, ring)

    def _example(self) -> Asked:
        obs = jnp.zeros(self.space.factors.width, self.space.factors.compact_dtype)
        discrete = isinstance(self.space.action, Discrete)
        action = jnp.zeros((), jnp.int32) if discrete else jnp.zeros(self.space.action.size, jnp.float32)
        return Asked(Transitions(obs, action, obs), jnp.zeros(self.bits, jnp.bool_))

    def logits(self, members: Mlp, seen: Transitions) -> Float[Array, "member step bit"]:
        """What every member expects."""
        inputs = self.space.one_hot(seen)
        logits: Float[Array, "member step bit"] = jax.vmap(lambda member: member(inputs))(members)
        return logits

    def rewards(self, state: WhetherState, seen: Transitions, bits: Bits) -> Float[Array, "step bit"]:
        """The reward of the answer to each question, by the configured measure."""
        logits = self.logits(state.fitted.parameters, seen)
        if self.config.measure == "disagreement":
            return disagreement(logits)
        if self.config.measure == "progress" and state.older is not None:
            before = jnp.mean(surprise(self.logits(state.older, seen), bits), axis=0)
            return jnp.maximum(before - jnp.mean(surprise(logits, bits), axis=0), 0.0)
        excess = jnp.mean(excess_surprise(logits, bits), axis=0)
        if self.config.measure == "excess":
            return jnp.maximum(excess, 0.0)
        events = (excess > self.config.excess).astype(jnp.float32)
        return events - self._expected(logits) if self.config.centred else events

    def _expected(self, logits: Float[Array, "member step bit"]) -> Float[Array, "step bit"]:
        """How often the members expect an event."""
        p = jnp.mean(jax.nn.sigmoid(logits), axis=0)
        outcomes = ((jnp.ones_like(p, jnp.bool_), p), (jnp.zeros_like(p, jnp.bool_), 1.0 - p))
        return sum(
            (
                chance * (jnp.mean(excess_surprise(logits, outcome), axis=0) > self.config.excess).astype(jnp.float32)
                for outcome, chance in outcomes
            ),
            start=jnp.zeros_like(p),
        )

    def update(
        self, state: WhetherState, key: Key[Array, ""], seen: Transitions, bits: Bits
    ) -> tuple[WhetherState, Metrics]:
        """Learn the answers; each member sees batches of its own."""
        asked = Asked(seen, bits)
        ring, size = state.ring, seen.obs.shape[0]
        pool: Asked = asked
        count = jnp.int32(size)
        if ring is not None:
            stored: Asked = jax.tree.map(lambda new, old: new.astype(old.dtype), asked, self._example())
            ring, _ = ring.add(stored)
            pool, count = ring.items, ring.size

        def loss(members: Mlp, batch: Asked) -> Float[Array, ""]:
            inputs = self.space.one_hot(batch.seen)
            wanted = batch.bits.reshape(self.config.members, -1, self.bits)
            parts = inputs.reshape(self.config.members, -1, inputs.shape[-1])
            logits = jax.vmap(lambda member, part: member(part))(members, parts)
            return jnp.sum(jnp.mean(surprise(logits, wanted), axis=1))

        fitted, mean = state.fitted.fit_on(self.config, loss, key, pool, count, self.config.members)
        older = state.older
        if older is not None:
            older = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, older, state.fitted.parameters)
        return WhetherState(fitted, older, ring), {"bonus/loss": mean / (self.config.members * self.bits)}


def surprise(logits: Float[Array, "*member step bit"], bits: Bool[Array, "*some step bit"]) -> Float[Array, "..."]:
    """`−log P(c)` in nats."""
    return jax.nn.softplus(jnp.where(bits, -logits, logits))


def excess_surprise(
    logits: Float[Array, "member step bit"], bits: Bool[Array, "step bit"]
) -> Float[Array, "member step bit"]:
    """`−log P(c) − H(P)` in nats."""
    p = jax.nn.sigmoid(logits)
    entropy = p * jax.nn.softplus(-logits) + (1.0 - p) * jax.nn.softplus(logits)
    return surprise(logits, bits) - entropy


def disagreement(logits: Float[Array, "member step bit"]) -> Float[Array, "step bit"]:
    """Mutual information between members and answer, in nats: `H(mean P) − mean H(P)`."""
    p = jax.nn.sigmoid(logits)
    own = jnp.mean(_entropy(p), axis=0)
    return jnp.maximum(_entropy(jnp.mean(p, axis=0)) - own, 0.0)


def _entropy(p: Float[Array, "..."]) -> Float[Array, "..."]:
    return -(jax.scipy.special.xlogy(p, p) + jax.scipy.special.xlogy(1.0 - p, 1.0 - p))
