"""What a detector is: a score for every possible edge of the local graph of a transition."""

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Num

from elden.dynamics.config import TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode
from elden.dynamics.training import Model
from elden.dynamics.variants import Variant
from elden.factors import Granularity
from elden.graphs.thresholds import Rule
from elden.pytree import pytree

STILL = 1e-3
"""A change of a continuous variable counts from this share of its standard deviation on."""


@pytree()
@dataclass(frozen=True)
class Reference:
    """What detectors that try other values know of the training data.

    Attributes:
        inputs: Some states and actions, encoded as the networks read them.
        still: Of each continuous variable the largest change in a step that counts as none: a thousandth of its
            standard deviation.
        step: Of each continuous variable a typical change: the root mean square of those that count; where there is
            none its standard deviation, or 1 where it never varies.
        seen: Which entries of inputs were ever on: a model has learnt nothing about a value that never occurred.
    """

    inputs: Float[Array, "*stack input entry example"]
    still: Float[Array, "*stack child slot"]
    step: Float[Array, "*stack child slot"]
    seen: Bool[Array, "*stack input entry"]

    @classmethod
    def of(
        cls,
        layout: Layout,
        obs: Num[Array, "example width"],
        action: Num[Array, "example *components"],
        next_obs: Num[Array, "example width"],
        examples: int | None = None,
    ) -> "Reference":
        """From transitions of the training data, of which the first ones serve as examples; None takes all."""
        batch = encode(layout, obs, action, next_obs)
        centred = batch.current - jnp.mean(batch.current, axis=-1, keepdims=True)
        varies = jnp.any(batch.current != batch.current[..., :1], axis=(2, 3))
        deviation = jnp.where(varies, jnp.sqrt(jnp.mean(jnp.sum(centred**2, axis=2), axis=-1)), 0.0)
        squares = jnp.sum((batch.target - batch.current) ** 2, axis=2)
        counts = jnp.sqrt(squares) > STILL * deviation[..., None]
        typical = jnp.sqrt(jnp.mean(squares, axis=-1, where=counts))
        otherwise = jnp.where(varies, deviation, 1.0)
        step = jnp.where(jnp.any(counts, axis=-1), typical, otherwise)
        seen = jnp.asarray(layout.input_continuous) | jnp.any(batch.inputs > 0, axis=-1)
        return cls(batch.inputs[..., :examples], STILL * deviation, step, seen)


def changed(layout: Layout, batch: Batch, reference: Reference) -> Bool[Array, "batch child"]:
    """Whether any variable of each child's entity changed in the step: a continuous one by more than `still`."""
    difference = jnp.where(layout.target_mask[..., None], batch.target - batch.current, 0.0)
    length = jnp.sqrt(jnp.sum(difference**2, axis=2))
    slots = length > jnp.where(layout.discrete, 0.0, reference.still)[..., None]
    children = jnp.any(slots, axis=1)
    if layout.network.children == "variable":
        groups = [children[part] for part in layout.factors.entity_slices]
        children = jnp.concatenate([jnp.broadcast_to(jnp.any(group, axis=0), group.shape) for group in groups])
    return children.T


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
        """The same with its schedules fitted to a training run of so many updates."""
