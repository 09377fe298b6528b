"""Bonuses that are read from a dynamics ensemble: what they have in common.

A signal says what each item of a step is worth, an item being an edge of the local graph or a child. A gate closes
children about whose future there is nothing to learn; what a closed child's items are worth does not count, and is not
computed where all children of a step are closed.
"""

from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from elden.bonuses import beliefs
from elden.bonuses.base import Metrics, Space, Steps
from elden.bonuses.ensemble import Ensemble, EnsembleConfig, EnsembleState, chunked
from elden.bonuses.payment import pay
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, slot_errors, slot_log_likelihood
from elden.dynamics.training import Model, Transitions
from elden.dynamics.variants import Plain, Variant
from elden.graphs.base import Reference
from elden.pytree import pytree

Gate: TypeAlias = Literal["none", "votes", "information"]


@dataclass(frozen=True)
class GateConfig:
    """When a child counts."""

    kind: Gate = "none"
    """Always; only where the members' votes differ, as in the authors' programs; or only where the mutual information
    between members and prediction is large."""
    level: float = 0.05
    """How large, in nats."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Gate):
            raise ValueError(f"kind={self.kind!r} given; it must be one of {', '.join(get_args(Gate))}")
        if not self.level >= 0:
            raise ValueError(f"level={self.level} given; it must be 0 or more")

    def open(self, layout: Layout, outputs: beliefs.Outputs) -> Bool[Array, "child batch"]:
        """The children that count."""
        if self.kind == "votes":
            return beliefs.disagreement(layout, outputs) > 0
        if self.kind == "information":
            return beliefs.information(layout, outputs) > self.level
        return jnp.ones((layout.num_children, outputs.shape[-1]), jnp.bool_)


@pytree()
@dataclass(frozen=True)
class Judged:
    """A batch of transitions with what an ensemble makes of it.

    Attributes:
        models: The members.
        batch: The transitions as they read them.
        outputs: What they predict.
        reference: Values that were seen, for detectors that try others.
        threshold: From which score on an edge counts.
    """

    models: Model
    batch: Batch
    outputs: beliefs.Outputs
    reference: Reference
    threshold: Float[Array, ""]


Told: TypeAlias = dict[str, Float[Array, " batch"]]
"""Metrics of transitions, a number for each."""


@runtime_checkable
class Signal(Protocol):
    """What the items of a step are worth. Frozen and hashable."""

    name: ClassVar[str]

    @property
    def variant(self) -> Variant:
        """The variant of the networks that it needs."""

    def items(self, layout: Layout) -> int:
        """Number of items of each child."""

    def judge(self, layout: Layout, judged: Judged) -> tuple[Float[Array, "batch child item"], Told]:
        """What each item is worth, and what else there is to tell of each transition."""

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> Float[Array, ""] | None:
        """A new threshold from recent transitions, or None to leave it as it is."""


@dataclass(frozen=True)
class ChildSignal:
    """A signal about whole children, without edges: one item for each, and no threshold."""

    @property
    def variant(self) -> Variant:
        """The network as it is."""
        return Plain()

    def items(self, layout: Layout) -> int:
        """The child itself."""
        return 1

    def amounts(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """What each child is worth."""
        raise NotImplementedError

    def judge(self, layout: Layout, judged: Judged) -> tuple[Float[Array, "batch child 1"], Told]:
        """What each child is worth; there is nothing else to tell."""
        return self.amounts(layout, judged), {}

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> None:
        """None: there are no edges."""


@pytree()
@dataclass(frozen=True)
class Memory:
    """What a bonus knows beside its ensemble.

    Attributes:
        paid: Items that were worth something earlier in each environment's episode.
        threshold: From which score on an edge counts.
    """

    paid: Bool[Array, "*run env item"]
    threshold: Float[Array, "*run"]


@pytree()
@dataclass(frozen=True)
class ModelState:
    """State of a bonus that is read from an ensemble."""

    ensemble: EnsembleState
    memory: Memory


_Read: TypeAlias = tuple[Float[Array, "step child item"], Told]


@dataclass(frozen=True)
class ModelBonus:
    """A bonus from a signal, with a gate before it and a rule of payment behind it."""

    space: Space
    signal: Signal
    ensemble_config: EnsembleConfig = field(default_factory=EnsembleConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    once: bool = False
    """Whether an item is paid only once in an episode."""
    threshold: float = 3e-4
    """From which score on an edge counts, at least at first."""

    @property
    def name(self) -> str:
        """That of the signal."""
        return self.signal.name

    @property
    def ensemble(self) -> Ensemble:
        """What learns the dynamics."""
        return Ensemble(self.space, self.ensemble_config, self.signal.variant)

    @property
    def layout(self) -> Layout:
        """What the networks' arrays mean."""
        return self.ensemble.layout

    def init(self, key: Key[Array, ""], num_envs: int) -> ModelState:
        """Untrained models, nothing paid yet."""
        return ModelState(self.ensemble.init(key), self.remember(num_envs))

    def remember(self, num_envs: int) -> Memory:
        """Nothing yet."""
        items = self.layout.num_children * self.signal.items(self.layout)
        return Memory(jnp.zeros((num_envs, items), jnp.bool_), jnp.float32(self.threshold))

    def reward(self, state: ModelState, steps: Steps) -> tuple[ModelState, Float[Array, "time env"], Metrics]:
        """Mean over items of what each is worth."""
        amounts, metrics = self.amounts(state, steps.transitions())
        shaped = amounts.reshape(*steps.done.shape, -1)
        paid, rewards = pay(shaped, steps.done, state.memory.paid, self.once)
        metrics |= {"bonus/mean": jnp.mean(rewards), "bonus/paid_steps": jnp.mean((rewards > 0).astype(jnp.float32))}
        return replace(state, memory=replace(state.memory, paid=paid)), rewards, metrics

    def amounts(self, state: ModelState, seen: Transitions) -> tuple[Float[Array, "step child item"], Metrics]:
        """What the items of these transitions are worth, and how well the ensemble predicted these.

        What a signal tells is averaged over the transitions that were read: those with at least one open child. It is
        NaN where there is none.
        """
        number = seen.obs.shape[0]
        pieces = chunked(number, min(self.ensemble_config.chunk, number))
        models = self.ensemble.models(state.ensemble)
        opened, errors = jax.lax.map(lambda piece: self._look(models, seen[piece]), pieces)
        opened = jnp.swapaxes(opened, 1, 2).reshape(-1, self.layout.num_children)[:number]
        worth, told = self._read(state, seen, opened, pieces)
        metrics = {
            **{name: jnp.mean(each, where=jnp.any(opened, axis=1)) for name, each in told.items()},
            "dynamics/accuracy": 1.0 - jnp.mean(errors.reshape(-1)[:number]),
            "bonus/open": jnp.mean(opened.astype(jnp.float32)),
        }
        return jnp.where(opened[..., None], worth, 0.0), metrics

    def _look(self, models: Model, some: Transitions) -> tuple[Bool[Array, "child chunk"], Float[Array, " chunk"]]:
        """Which children count, and the members' mean prediction error."""
        layout = self.layout
        batch = self.ensemble.encode(some)
        outputs = self.ensemble.outputs(models, batch)

        def error(out: Float[Array, "child slot value chunk"]) -> Float[Array, " chunk"]:
            errors = slot_errors(layout, slot_log_likelihood(layout, out, batch))
            return jnp.sum(errors, axis=(0, 1)) / layout.factors.num_variables

        return self.gate.open(layout, outputs), jnp.mean(jax.vmap(error)(outputs), axis=0)

    def _read(
        self,
        state: ModelState,
        seen: Transitions,
        opened: Bool[Array, "step child"],
        pieces: Int[Array, "piece chunk"],
    ) -> tuple[Float[Array, "step child item"], Told]:
        """The amounts of all steps with an open child, and what is told of them; 0 for the others.

        Those with open children come first, and pieces are read as long as they hold any. Independent runs under
        `vmap` go on together until the last of them is through.
        """
        number, layout = opened.shape[0], self.layout
        models = self.ensemble.models(state.ensemble)
        reference = self.ensemble.reference(state.ensemble)
        some = jnp.any(opened, axis=1)
        order = jnp.argsort(~some)
        chunk = pieces.shape[1]

        def judge(index: Int[Array, " chunk"]) -> _Read:
            batch = self.ensemble.encode(seen[index])
            outputs = self.ensemble.outputs(models, batch)
            return self.signal.judge(layout, Judged(models, batch, outputs, reference, state.memory.threshold))

        def read(carry: tuple[Int[Array, ""], _Read]) -> tuple[Int[Array, ""], _Read]:
            first, known = carry
            index = order[(first + jnp.arange(chunk, dtype=jnp.int32)) % number]
            return first + chunk, jax.tree.map(lambda old, new: old.at[index].set(new), known, judge(index))

        shapes = jax.eval_shape(judge, pieces[0])
        nothing: _Read = jax.tree.map(lambda one: jnp.zeros((number, *one.shape[1:]), one.dtype), shapes)
        count = jnp.sum(some, dtype=jnp.int32)
        _, known = jax.lax.while_loop(lambda carry: carry[0] < count, read, (jnp.int32(0), nothing))
        return known

    def update(self, state: ModelState, key: Key[Array, ""], steps: Steps) -> tuple[ModelState, Metrics]:
        """Train the ensemble, and set the threshold anew where that is asked for."""
        ensemble, metrics = self.ensemble.update(state.ensemble, key, steps)
        memory, more = self.adapt(ensemble, state.memory)
        return ModelState(ensemble, memory), metrics | more

    def adapt(self, ensemble: EnsembleState, memory: Memory) -> tuple[Memory, Metrics]:
        """Set the threshold anew where that is asked for, after the ensemble has learnt."""
        some = self.ensemble.encode(self.ensemble.recent(ensemble, min(self.ensemble_config.chunk, 512)))
        reference = self.ensemble.reference(ensemble)
        threshold = self.signal.threshold(self.layout, self.ensemble.models(ensemble), some, reference)
        if threshold is None:
            return memory, {}
        return replace(memory, threshold=threshold), {"bonus/threshold": threshold}
