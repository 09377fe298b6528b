"""What a detector is: a score for every possible edge of the local graph of a transition."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from elden.dynamics.config import TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode
from elden.dynamics.pytree import pytree
from elden.dynamics.training import Model
from elden.dynamics.variants import Variant
from elden.factors import Granularity
from elden.graphs.thresholds import Rule


@pytree()
@dataclass(frozen=True)
class Reference:
    """Some states and actions from the training data, for detectors that try other values.

    Attributes:
        inputs: Encoded, as the networks read them.
        spread: Root mean square of each variable's change in a step, the yardstick of continuous ones.
    """

    inputs: Float[Array, "*stack input entry example"]
    spread: Float[Array, "*stack child slot"]

    @classmethod
    def of(
        cls,
        layout: Layout,
        obs: Num[Array, "example width"],
        action: Num[Array, "example *components"],
        next_obs: Num[Array, "example width"],
    ) -> "Reference":
        """From transitions of the training data."""
        batch = encode(layout, obs, action, next_obs)
        squares = jnp.sum((batch.target - batch.current) ** 2, axis=2)
        return cls(batch.inputs, jnp.sqrt(jnp.mean(squares, axis=-1)))


@runtime_checkable
class Detector(Protocol):
    """Reads local graphs out of a model. Frozen and hashable: it is static when functions are compiled."""

    name: ClassVar[str]
    penalised: ClassVar[bool]
    """Whether its model is trained with the penalty on derivatives."""
    threshold_rule: ClassVar[Rule]
    """How a threshold for its scores is chosen without labels."""

    @property
    def variant(self) -> Variant:
        """The variant of the network that it reads."""

    def sources(self, layout: Layout) -> Granularity:
        """Whether its sources are variables or entities; the action is one more."""

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Float[Array, "batch dst src"]:
        """Scores of all edges for one model: the higher, the more likely a dependency.

        Destinations are the children of the layout, sources as `sources` says, the action being the last one.
        """


@runtime_checkable
class Scheduled(Protocol):
    """A detector whose variant has schedules of its own."""

    def fitted(self, train: TrainConfig, updates: int) -> Detector:
        """The same with its schedules fitted to a training of so many updates."""
