"""Bonuses that are read from a dynamics ensemble: what they have in common.

A signal gives the intrinsic reward of each item of a step, an item being an edge of the local graph or a child. A gate
closes children about whose future there is nothing to learn; the rewards of a closed child's items do not count, and
are not computed where all children of a step are closed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar, get_args, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from elden.bonuses import beliefs
from elden.bonuses.base import Metrics, Space
from elden.bonuses.ensemble import Ensemble, EnsembleConfig, EnsembleState, chunked
from elden.bonuses.episodes import Episodes, reward_of_items
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, slot_errors, slot_log_likelihood
from elden.dynamics.training import Model
from elden.dynamics.variants import Plain, Variant
from elden.graphs.base import Reference
from elden.pytree import pytree
from elden.transitions import Steps, Transitions

Gate: TypeAlias = Literal["none", "votes", "information", "surprise", "change"]


@dataclass(frozen=True)
class GateConfig:
    """When a child counts, in a bonus that reads dynamics models: always, or only where there is something to learn."""

    kind: Gate = "none"
    """Always; only where the members' votes differ, as in the authors' programs; only where the mutual information
    between members and prediction is large; only where what happened surprises members more than they expected; or only
    where whether anything happened does, whatever it was."""
    level: float = 0.05
    """How large the information must be, in nats."""
    excess: float = 3.0
    """How much more the surprise must be than expected, in nats."""
    noise: float = 0.1
    """How far off a prediction of a continuous variable may be for both, as a share of the variable's typical change
    in a step. The recent error of the members is added to it."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(Gate):
            raise ValueError(f"kind={self.kind!r} given; it must be one of {', '.join(get_args(Gate))}")
        for name in ("level", "excess"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 0 or more")
        if not self.noise > 0:
            raise ValueError(f"noise={self.noise} given; it must be above 0")

    def open(
        self,
        layout: Layout,
        outputs: beliefs.Outputs,
        batch: Batch,
        noise: beliefs.Noise,
        step: beliefs.Noise = 1.0,
    ) -> Bool[Array, "child batch"]:
        """The children that count, where predictions of continuous variables have this standard deviation.

        `step` is a typical change of each continuous variable, half of which counts as one at the gate `change`.
        """
        if self.kind == "votes":
            return beliefs.disagreement(layout, outputs) > 0
        if self.kind == "information":
            return beliefs.information(layout, outputs, noise) > self.level
        if self.kind == "surprise":
            return beliefs.excess_surprise(layout, outputs, batch, noise) > self.excess
        if self.kind == "change":
            return (
                beliefs.change_surprise(layout, outputs, batch, noise, 0.5 * jnp.asarray(step, jnp.float32))
                > self.excess
            )
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
        noise: The standard deviation that predictions of continuous variables are taken to have.
    """

    models: Model
    batch: Batch
    outputs: beliefs.Outputs
    reference: Reference
    threshold: Float[Array, ""]
    noise: Float[Array, "child slot"]


StepMetrics: TypeAlias = dict[str, Float[Array, " batch"]]
"""Metrics of transitions, a number for each."""


@runtime_checkable
class Signal(Protocol):
    """The intrinsic reward of the items of a step. Frozen and hashable."""

    name: ClassVar[str]

    @property
    def variant(self) -> Variant:
        """The variant of the networks that it needs."""

    def items(self, layout: Layout) -> int:
        """Number of items of each child."""

    def judge(self, layout: Layout, judged: Judged) -> tuple[Float[Array, "batch child item"], StepMetrics]:
        """The reward of each item, and metrics of each transition."""

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

    def rewards(self, layout: Layout, judged: Judged) -> Float[Array, "batch child 1"]:
        """The reward of each child."""
        raise NotImplementedError

    def judge(self, layout: Layout, judged: Judged) -> tuple[Float[Array, "batch child 1"], StepMetrics]:
        """The reward of each child, without metrics."""
        return self.rewards(layout, judged), {}

    def threshold(self, layout: Layout, models: Model, batch: Batch, reference: Reference) -> None:
        """None: there are no edges."""


@pytree()
@dataclass(frozen=True)
class Memory:
    """What a bonus knows beside its ensemble.

    Attributes:
        episodes: Items that were rewarded earlier in the episodes under way.
        threshold: From which score on an edge counts.
        noise: The standard deviation that predictions of continuous variables are taken to have.
    """

    episodes: Episodes
    threshold: Float[Array, "*run"]
    noise: Float[Array, "*run child slot"]


@pytree()
@dataclass(frozen=True)
class ModelState:
    """State of a bonus that is read from an ensemble."""

    ensemble: EnsembleState
    memory: Memory


@runtime_checkable
class WithModels(Protocol):
    """A bonus that has dynamics models, from which local graphs can be read."""

    def models_in(self, state: Any) -> "tuple[ModelBonus, ModelState] | None":
        """The part that reads them, with its state; None where no part does."""


_Read: TypeAlias = tuple[Float[Array, "step child item"], StepMetrics]
_Tree = TypeVar("_Tree")


@dataclass(frozen=True)
class ModelBonus:
    """A bonus from a signal, with a gate before it, and items that may count once in an episode."""

    space: Space
    signal: Signal
    ensemble_config: EnsembleConfig = field(default_factory=EnsembleConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    once: bool = False
    """Whether an item is rewarded only once in an episode."""
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
        """Untrained models, nothing rewarded yet."""
        return ModelState(self.ensemble.init(key), self.remember(num_envs))

    def remember(self, num_envs: int) -> Memory:
        """Nothing yet."""
        items = self.layout.num_children * self.signal.items(self.layout)
        noise = jnp.ones(self.layout.slot_mask.shape, jnp.float32)
        return Memory(Episodes.init(num_envs, items), jnp.float32(self.threshold), noise)

    def reward(self, state: ModelState, steps: Steps) -> tuple[ModelState, Float[Array, "time env"], Metrics]:
        """Mean over items of the reward of each."""
        items, metrics = self.item_rewards(state, steps.transitions())
        shaped = items.reshape(*steps.done.shape, -1)
        episodes, rewards, more = reward_of_items(shaped, steps.done, state.memory.episodes, self.once)
        return replace(state, memory=replace(state.memory, episodes=episodes)), rewards, metrics | more

    def models_in(self, state: ModelState) -> "tuple[ModelBonus, ModelState]":
        """This one."""
        return self, state

    def item_rewards(self, state: ModelState, seen: Transitions) -> tuple[Float[Array, "step child item"], Metrics]:
        """The reward of each item of these transitions, and how well the ensemble predicted them.

        Metrics of the signal are averaged over the transitions that were read: those with at least one open child. They
        are NaN where there is none.
        """
        number = seen.obs.shape[0]
        pieces = chunked(number, min(self.ensemble_config.chunk, number))
        view = self.view(state)

        def look(piece: Int[Array, " chunk"]) -> tuple[Float[Array, " chunk"], Bool[Array, "chunk child"]]:
            judged = view(seen[piece])
            return self._errors(judged), self._open(judged)

        def read(piece: Int[Array, " chunk"]) -> _Read:
            return self.signal.judge(self.layout, view(seen[piece]))

        def both(piece: Int[Array, " chunk"]) -> tuple[Float[Array, " chunk"], _Read]:
            judged = view(seen[piece])
            return self._errors(judged), self.signal.judge(self.layout, judged)

        def joined(parts: _Tree) -> _Tree:
            whole: _Tree = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:number], parts)
            return whole

        if self.gate.kind == "none":  # all is read, so there is no need to look at it first
            errors, (items, step_metrics) = joined(jax.lax.map(both, pieces))
            opened = jnp.ones((number, self.layout.num_children), jnp.bool_)
        else:
            errors, opened = joined(jax.lax.map(look, pieces))
            items, step_metrics = _read_where(jnp.any(opened, axis=1), read, pieces.shape[1])
        metrics = {
            **{name: jnp.mean(each, where=jnp.any(opened, axis=1)) for name, each in step_metrics.items()},
            "dynamics/accuracy": 1.0 - jnp.mean(errors),
            "bonus/open": jnp.mean(opened.astype(jnp.float32)),
        }
        return jnp.where(opened[..., None], items, 0.0), metrics

    def view(self, state: ModelState) -> Callable[[Transitions], Judged]:
        """What makes of transitions what the ensemble makes of them, in this state of it."""
        ensemble, memory = self.ensemble, state.memory
        models, reference = ensemble.models(state.ensemble), ensemble.reference(state.ensemble)

        def judged(some: Transitions) -> Judged:
            batch = ensemble.encode(some)
            return Judged(models, batch, ensemble.outputs(models, batch), reference, memory.threshold, memory.noise)

        return judged

    def _open(self, judged: Judged) -> Bool[Array, "batch child"]:
        return self.gate.open(self.layout, judged.outputs, judged.batch, judged.noise, judged.reference.step).T

    def _errors(self, judged: Judged) -> Float[Array, " batch"]:
        """The members' mean prediction error."""
        layout = self.layout

        def error(out: Float[Array, "child slot value batch"]) -> Float[Array, " batch"]:
            errors = slot_errors(layout, slot_log_likelihood(layout, out, judged.batch))
            return jnp.sum(errors, axis=(0, 1)) / layout.factors.num_variables

        return jnp.mean(jax.vmap(error)(judged.outputs), axis=0)

    def update(self, state: ModelState, key: Key[Array, ""], steps: Steps) -> tuple[ModelState, Metrics]:
        """Train the ensemble, and set the threshold again where that is asked for."""
        ensemble, metrics = self.ensemble.update(state.ensemble, key, steps)
        memory, more = self.adapt(ensemble, state.memory)
        return ModelState(ensemble, memory), metrics | more

    def adapt(self, ensemble: EnsembleState, memory: Memory) -> tuple[Memory, Metrics]:
        """Set the noise again, and the threshold where that is asked for, after the ensemble has learnt."""
        some = self.ensemble.encode(self.ensemble.recent(ensemble, min(self.ensemble_config.chunk, 512)))
        reference, models = self.ensemble.reference(ensemble), self.ensemble.models(ensemble)
        if (self.layout.slot_mask & ~self.layout.discrete).any():
            error = beliefs.mean_square_error(self.layout, self.ensemble.outputs(models, some), some)
            allowed = jnp.square(self.gate.noise * reference.step) / beliefs.components(self.layout)
            memory = replace(memory, noise=jnp.sqrt(allowed + error))
        threshold = self.signal.threshold(self.layout, models, some, reference)
        if threshold is None:
            return memory, {}
        return replace(memory, threshold=threshold), {"bonus/threshold": threshold}


def _read_where(wanted: Bool[Array, " step"], read: Callable[[Int[Array, " chunk"]], _Read], chunk: int) -> _Read:
    """What is read of all wanted steps; 0 for the others.

    The wanted come first, and pieces are read as long as they hold any. Independent runs under `vmap` continue together
    until the last of them is through.
    """
    number = wanted.shape[0]
    order = jnp.argsort(~wanted)
    count = jnp.sum(wanted, dtype=jnp.int32)

    def more(carry: tuple[Int[Array, ""], _Read]) -> tuple[Int[Array, ""], _Read]:
        first, known = carry
        index = order[(first + jnp.arange(chunk, dtype=jnp.int32)) % number]
        return first + chunk, jax.tree.map(lambda old, new: old.at[index].set(new), known, read(index))

    shapes = jax.eval_shape(read, order[:chunk])
    nothing: _Read = jax.tree.map(lambda one: jnp.zeros((number, *one.shape[1:]), one.dtype), shapes)
    _, known = jax.lax.while_loop(lambda carry: carry[0] < count, more, (jnp.int32(0), nothing))
    return known
