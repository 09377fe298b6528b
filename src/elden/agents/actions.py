"""Distributions over actions: what a policy's numbers mean."""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Num

from elden.factors import Continuous, Discrete, Kind


@runtime_checkable
class Actions(Protocol):
    """A family of distributions over actions. Frozen and hashable."""

    @property
    def outputs(self) -> int:
        """Numbers that the policy's network gives for one state."""

    @property
    def free(self) -> int:
        """Numbers that the policy has beside its network, the same in every state."""

    @property
    def most_entropy(self) -> float:
        """Entropy in nats of a policy that knows nothing."""

    def sample(self, key: Key[Array, ""], numbers: Float[Array, "*batch number"]) -> Num[Array, "..."]:
        """One action for each state; `numbers` are the network's outputs, then the free ones."""

    def mode(self, numbers: Float[Array, "*batch number"]) -> Num[Array, "..."]:
        """The most likely action of each state."""

    def log_prob(self, numbers: Float[Array, "*batch number"], action: Num[Array, "..."]) -> Float[Array, "*batch"]:
        """Logarithm of the probability (or density) of each action."""

    def entropy(self, numbers: Float[Array, "*batch number"]) -> Float[Array, "*batch"]:
        """Entropy in nats."""


@dataclass(frozen=True)
class Categorical:
    """One of `n` actions, from their logits."""

    n: int

    @property
    def outputs(self) -> int:
        """A logit for each action."""
        return self.n

    @property
    def free(self) -> int:
        """None."""
        return 0

    @property
    def most_entropy(self) -> float:
        """That of the uniform distribution."""
        return math.log(self.n)

    def sample(self, key: Key[Array, ""], numbers: Float[Array, "*batch number"]) -> Int[Array, "*batch"]:
        """Draw by the probabilities."""
        return jax.random.categorical(key, numbers).astype(jnp.int32)

    def mode(self, numbers: Float[Array, "*batch number"]) -> Int[Array, "*batch"]:
        """The action with the largest logit."""
        return jnp.argmax(numbers, axis=-1).astype(jnp.int32)

    def log_prob(self, numbers: Float[Array, "*batch number"], action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        """`log softmax(numbers)[action]`."""
        log_p = jax.nn.log_softmax(numbers)
        return jnp.take_along_axis(log_p, action[..., None], axis=-1)[..., 0]

    def entropy(self, numbers: Float[Array, "*batch number"]) -> Float[Array, "*batch"]:
        """`−Σ p log p`."""
        log_p = jax.nn.log_softmax(numbers)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


@dataclass(frozen=True)
class Normal:
    """A vector of `size` independent normal components: means from the network, deviations the same everywhere.

    Samples are not cut off at the bounds of an action space: whoever takes the action clips it, so that the
    probability is that of what was drawn.
    """

    size: int

    @property
    def outputs(self) -> int:
        """A mean for each component."""
        return self.size

    @property
    def free(self) -> int:
        """The logarithm of each component's deviation."""
        return self.size

    @property
    def most_entropy(self) -> float:
        """That of unit deviations, with which a policy begins; a density has no largest one."""
        return self.size * 0.5 * math.log(2 * math.pi * math.e)

    def _parts(
        self, numbers: Float[Array, "*batch number"]
    ) -> tuple[Float[Array, "*batch size"], Float[Array, "*batch size"]]:
        return numbers[..., : self.size], numbers[..., self.size :]

    def sample(self, key: Key[Array, ""], numbers: Float[Array, "*batch number"]) -> Float[Array, "*batch size"]:
        """Draw each component."""
        mean, log_deviation = self._parts(numbers)
        return mean + jnp.exp(log_deviation) * jax.random.normal(key, mean.shape)

    def mode(self, numbers: Float[Array, "*batch number"]) -> Float[Array, "*batch size"]:
        """The means."""
        return self._parts(numbers)[0]

    def log_prob(
        self, numbers: Float[Array, "*batch number"], action: Float[Array, "*batch size"]
    ) -> Float[Array, "*batch"]:
        """Summed over components."""
        mean, log_deviation = self._parts(numbers)
        error = (action - mean) * jnp.exp(-log_deviation)
        return -jnp.sum(0.5 * error**2 + log_deviation + 0.5 * math.log(2 * math.pi), axis=-1)

    def entropy(self, numbers: Float[Array, "*batch number"]) -> Float[Array, "*batch"]:
        """Summed over components."""
        _, log_deviation = self._parts(numbers)
        return jnp.sum(log_deviation + 0.5 * math.log(2 * math.pi * math.e), axis=-1)


def actions_of(kind: Kind) -> Actions:
    """The distributions over actions of this kind."""
    if isinstance(kind, Discrete):
        return Categorical(kind.n)
    if isinstance(kind, Continuous):
        return Normal(kind.size)
    raise TypeError(f"an action is discrete or continuous, not {kind!r}")
