"""The dynamics ensemble behind a bonus: it keeps what it has seen, and learns from it."""

from dataclasses import dataclass, field, replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from elden.bonuses.base import Metrics, Space
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode
from elden.dynamics.replay import Priorities, Ring
from elden.dynamics.training import Model, Settings, Trainer, TrainState
from elden.dynamics.variants import Variant
from elden.factors import Discrete
from elden.graphs.base import Reference
from elden.graphs.reader import predict
from elden.pytree import pytree
from elden.transitions import Steps, Transitions

UPDATES = 500_000
"""Updates of the paper's models, which schedules are fitted to where the length of the training is not known."""
_EXAMPLES = 256
_LOOKED_AT = 4096
"""Transitions from which it is known what values occur and how far they move; the first of them are examples."""
_WINDOW = 50
_MOST = 10**9
"""Slots are counted in 32 bits."""


@dataclass(frozen=True)
class EnsembleConfig:
    """An ensemble of dynamics models that learns while the agent explores."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The networks."""
    train: TrainConfig = field(default_factory=lambda: TrainConfig(mixup=0.1, penalty=0.0))
    """Their training."""
    members: int = 5
    """Models in the ensemble."""
    capacity: int = 1_000_000
    """Transitions that are kept; older ones are forgotten."""
    updates: int = 64
    """Updates of every model for one rollout."""
    anneal_from: float = 1.0
    """Share of the updates of the whole training (`schedule`) after which the learning rate falls to 0; 1 keeps it
    constant."""
    chunk: int = 1024
    """Transitions that are judged at a time: more need more memory."""
    schedule: int | None = None
    """Updates of the whole training, which the schedules of learnt masks and of the learning rate are fitted to. None
    takes those of the training, or 500,000 where its length is not known."""

    def __post_init__(self) -> None:
        for name in ("members", "capacity", "chunk"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 1 or more")
            if getattr(self, name) > _MOST:
                raise ValueError(f"{name}={getattr(self, name)} given; it takes 1 to {_MOST}")
        if self.schedule is not None and self.schedule < 1:
            raise ValueError(f"schedule={self.schedule} given; it must be 1 or more")
        if self.updates < 0:
            raise ValueError(f"updates={self.updates} given; it must be 0 or more")
        if not 0 <= self.anneal_from <= 1:
            raise ValueError(f"anneal_from={self.anneal_from} given; it must lie between 0 and 1")


@pytree()
@dataclass(frozen=True)
class EnsembleState:
    """Models in training, and what they learn from."""

    train: TrainState
    ring: Ring[Transitions]


@dataclass(frozen=True)
class Ensemble:
    """Learns the dynamics of a space. Frozen and hashable."""

    space: Space
    config: EnsembleConfig
    variant: Variant

    @property
    def layout(self) -> Layout:
        """What the networks' arrays mean."""
        return self.space.layout(self.config.network)

    @property
    def trainer(self) -> Trainer:
        """Trains the members."""
        config = self.config.train
        if self.config.anneal_from < 1:
            total = self.config.schedule or UPDATES
            config = replace(config, anneal_start=int(self.config.anneal_from * total), anneal_stop=total)
        return Trainer(self.layout, config, self.variant, self.config.members)

    @property
    def _settings(self) -> Settings:
        return self.trainer.settings()

    def init(self, key: Key[Array, ""]) -> EnsembleState:
        """Untrained models that have seen nothing."""
        ring = Ring.create(self.config.capacity, self._example())
        state = self.trainer.init(key, self.config.capacity)
        if self.config.train.priority > 0:
            state = replace(state, priorities=self.trainer.priorities(self.config.capacity, 0))
        return EnsembleState(state, ring)

    def _example(self) -> Transitions:
        obs = jnp.zeros(self.space.factors.width, self.space.factors.compact_dtype)
        discrete = isinstance(self.space.action, Discrete)
        action = jnp.zeros((), jnp.int32) if discrete else jnp.zeros(self.space.action.size, jnp.float32)
        return Transitions(obs, action, obs)

    def add(self, state: EnsembleState, steps: Steps) -> EnsembleState:
        """Keep these steps."""
        example = self._example()
        seen: Transitions = jax.tree.map(lambda new, old: new.astype(old.dtype), steps.transitions(), example)
        ring, slots = state.ring.add(seen)
        train = state.train
        if train.priorities is not None:
            inserted = jax.vmap(Priorities.insert, in_axes=(0, None))(train.priorities, slots)
            train = replace(train, priorities=inserted)
        return EnsembleState(train, ring)

    def update(self, state: EnsembleState, key: Key[Array, ""], steps: Steps) -> tuple[EnsembleState, Metrics]:
        """Keep these steps, and learn from all that were kept."""
        state = self.add(state, steps)
        if not self.config.updates:
            return state, {}
        config = self.config.train
        train, metrics = self.trainer.train(
            state.train,
            self._settings,
            state.ring.items,
            key,
            self.config.updates,
            derivatives=config.penalty > 0,
            mixup=config.mixup > 0,
            size=state.ring.size,
        )
        kept = {name: metrics[name] for name in ("loss/nll", "loss/gradient_norm", "loss/skipped")}
        metrics = {name.replace("loss/", "dynamics/"): value for name, value in kept.items()}
        metrics["dynamics/seen"] = state.ring.size.astype(jnp.float32)
        return replace(state, train=train), metrics

    def models(self, state: EnsembleState) -> Model:
        """The members as they judge steps, in the number format of their activations."""
        models: Model = jax.tree.map(lambda leaf: leaf.astype(self.config.train.precision), state.train.model)
        return models

    def encode(self, transitions: Transitions) -> Batch:
        """Transitions as the networks read them."""
        batch = encode(self.layout, transitions.obs, transitions.action, transitions.next_obs)
        return replace(batch, inputs=batch.inputs.astype(self.config.train.precision))

    def outputs(self, models: Model, batch: Batch) -> Float[Array, "member child slot value batch"]:
        """What every member predicts."""
        return predict(self.layout, self.variant, models, batch)

    def reference(self, state: EnsembleState) -> Reference:
        """Some of what was seen, for detectors that try other values."""
        size = jnp.maximum(state.ring.size, 1)
        some = state.ring.items[_spread(min(_LOOKED_AT, self.config.capacity), size)]
        return Reference.of(self.layout, some.obs, some.action, some.next_obs, _EXAMPLES)

    def recent(self, state: EnsembleState, number: int) -> Transitions:
        """Recent transitions, spread over the last fifty times as many; before there are so many, over all.

        Those that were added last would not do: where episodes keep step with rollouts they are the ends of episodes.
        """
        size = jnp.maximum(state.ring.size, 1)
        back = _spread(number, jnp.minimum(size, number * _WINDOW))
        return state.ring.items[(state.ring.cursor - 1 - back) % self.config.capacity]


def _spread(number: int, size: Int[Array, ""]) -> Int[Array, " number"]:
    """Numbers below `size`, spread evenly but not at equal distances, so that they keep step with nothing.

    Multiples of the golden ratio, of which the fractional parts are far apart from each other however many there are.
    """
    fraction = (jnp.arange(number, dtype=jnp.uint32) * jnp.uint32(2654435769)) >> 8
    place = jnp.floor(fraction.astype(jnp.float32) * (size.astype(jnp.float32) / 2**24)).astype(jnp.int32)
    return jnp.minimum(place, size - 1)


def chunked(number: int, chunk: int) -> Int[Array, "piece chunk"]:
    """Indices of `number` things in pieces of equal length, the last piece filled up with its own first ones."""
    pieces = -(-number // chunk)
    return (jnp.arange(pieces * chunk, dtype=jnp.int32) % number).reshape(pieces, chunk)
