"""Training of ensembles: one jitted scan for many updates, with members and runs as leading axes.

    L = −Σ_j log p̂(s'_j) + λ Σ_ij |∂p̂(s'_j)/∂s_i|          (paper, Appendix "Network Architecture")

averaged over a batch, summed over the members of an ensemble, which share one optimiser. Members see different batches.
Everything here is for ONE ensemble; many independent ones (seeds, values of λ) are a `jax.vmap` away: what may differ
between them is in `Settings`, which is traced.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from elden.dynamics.config import TrainConfig
from elden.dynamics.joint import Joined, Joint
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode, slot_errors, slot_log_likelihood, slots_and_derivative
from elden.dynamics.mixup import mix, mixup_coefficients, mixup_table
from elden.dynamics.network import Modulation, Network, first_layer, init_network, input_features, predict
from elden.dynamics.replay import Priorities
from elden.dynamics.variants import Extra, Plain, Variant, rising
from elden.pytree import pytree
from elden.transitions import Transitions

Metrics: TypeAlias = dict[str, Float[Array, "..."]]
_Judged: TypeAlias = tuple[Float[Array, "*member metric"], Float[Array, "*member batch"]]
"""Metrics in the order of `Trainer.metric_names`, and the prediction error of each example."""


@pytree()
@dataclass(frozen=True)
class Model:
    """Parameters: the networks and what their variant adds; leaves of an ensemble have the member as first axis."""

    net: Network
    extra: Extra


@pytree()
@dataclass(frozen=True)
class Settings:
    """What may differ between ensembles that are trained side by side.

    Attributes:
        penalty: Weight λ of the derivatives.
        mixup: Quantiles of the mixup coefficients, from `mixup_table`.
    """

    penalty: Float[Array, "*run"]
    mixup: Float[Array, "*run quantile"]


@pytree()
@dataclass(frozen=True)
class TrainState:
    """An ensemble in training.

    Attributes:
        model: Its parameters.
        optimiser: State of Adam.
        step: Updates made, the skipped ones included.
        skipped: Updates that were skipped because the loss or its gradient was not finite.
        priorities: How often each member sees each transition, where they are sampled by prediction error.
    """

    model: Model
    optimiser: optax.OptState
    step: Int[Array, "*run"]
    skipped: Int[Array, "*run"]
    priorities: Priorities | None = None


@pytree()
@dataclass(frozen=True)
class _Learner:
    """A `TrainState` whose parameters are joined, as they are while updates are made."""

    parameters: Joined
    optimiser: optax.OptState
    step: Int[Array, ""]
    skipped: Int[Array, ""]


@dataclass(frozen=True)
class Trainer:
    """Trains ensembles of one shape. Hashable: equal trainers share their compiled functions."""

    layout: Layout
    config: TrainConfig = TrainConfig()  # noqa: RUF009 (frozen)
    variant: Variant = Plain()  # noqa: RUF009 (frozen)
    members: int = 1

    def __post_init__(self) -> None:
        if self.members < 1:
            raise ValueError(f"members={self.members} given; an ensemble has at least 1")

    @property
    def _adam(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)

    def settings(self, penalty: float | None = None, mixup: float | None = None) -> Settings:
        """The config's settings, or others."""
        config = self.config
        return Settings(
            penalty=jnp.float32(config.penalty if penalty is None else penalty),
            mixup=mixup_table(config.mixup if mixup is None else mixup),
        )

    def init(self, key: Key[Array, ""], data_size: int | None = None) -> TrainState:
        """An untrained ensemble, its members drawn independently.

        Args:
            key: Random key.
            data_size: Number of transitions that it will be trained on; needed only where they have priorities.
        """
        if self.config.priority > 0 and data_size is None:
            raise ValueError(
                f"priority={self.config.priority} given without data_size; priorities need the number of transitions"
            )

        def one(key: Key[Array, ""]) -> Model:
            net_key, extra_key = jax.random.split(key)
            return Model(init_network(net_key, self.layout), self.variant.init(extra_key, self.layout))

        model = jax.vmap(one)(jax.random.split(key, self.members))
        priorities = None if data_size is None or self.config.priority == 0 else self.priorities(data_size, data_size)
        return TrainState(model, self._adam.init(model), jnp.int32(0), jnp.int32(0), priorities)

    def priorities(self, capacity: int, filled: int) -> Priorities:
        """For each member a tree of `capacity` priorities, of which the first `filled` are 1 and the others nothing."""
        tree = Priorities.create(capacity, self.config.priority, filled)
        stacked: Priorities = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.members, *leaf.shape)), tree)
        return stacked

    def loss(
        self,
        model: Model,
        batch: Batch,
        weights: Float[Array, " batch"],
        key: Key[Array, ""],
        step: Int[Array, ""],
        penalty: Float[Array, ""] | None,
    ) -> tuple[Float[Array, ""], _Judged]:
        """Loss of one member, with metrics and each example's prediction error.

        Args:
            model: One member.
            batch: What it sees.
            weights: Importance of each example.
            key: Random key of the variant.
            step: The update that this is.
            penalty: λ; None leaves derivatives out, which costs half as much.
        """
        layout = self.layout
        model = jax.tree.map(lambda leaf: leaf.astype(self.config.precision), model)

        def modulate(features: Float[Array, "child feature input batch"]) -> tuple[Modulation, Float[Array, ""]]:
            return self.variant.modulate(layout, model.extra, batch.inputs, features, key, step)

        if penalty is None:
            features = input_features(layout, model.net, first_layer(model.net, batch.inputs))
            modulation, cost = modulate(features)
            slots = slot_log_likelihood(layout, predict(layout, model.net, features, modulation).out, batch)
            slopes = jnp.zeros(())
        else:
            slots, derivative, cost = slots_and_derivative(layout, model.net, batch, self.config.penalty_of, modulate)
            # The derivative of `jnp.abs` at 0 is 1, which would move the weights of padding; that of this one is 0.
            sizes = derivative * jax.lax.stop_gradient(jnp.sign(derivative))
            slopes = jnp.mean(weights * jnp.sum(sizes, axis=(0, 1, 2), dtype=jnp.float32))
        log_p = jnp.sum(slots, axis=1)
        surprise = -jnp.mean(weights * jnp.sum(log_p, axis=0))
        total = surprise + cost + (0.0 if penalty is None else penalty * slopes)
        metrics = jnp.concatenate([jnp.stack([surprise, slopes, cost]), -jnp.mean(log_p, axis=1)])
        return total, (metrics, self._errors(slots))

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What the numbers are that `loss` returns; `update` adds the norm of the gradient as the last one."""
        children = (f"nll/{name}" for name in self.layout.names(self.layout.network.children))
        return "loss/nll", "loss/derivatives", "loss/variant", *children, "loss/gradient_norm"

    def _errors(self, log_p: Float[Array, "child slot batch"]) -> Float[Array, " batch"]:
        """Prediction error of each example: averaged over the variables of a child, then over children."""
        variables = self.layout.slot_mask.sum(-1)[:, None].astype("float32")
        errors = jnp.sum(slot_errors(self.layout, log_p), axis=1) / variables
        return jax.lax.stop_gradient(jnp.mean(errors, axis=0))

    def batch(self, transitions: Transitions, coefficients: Float[Array, " batch"] | None) -> Batch:
        """Transitions as one member reads them.

        Args:
            transitions: Of one batch.
            coefficients: Of mixup; None leaves it out.
        """
        batch = encode(self.layout, transitions.obs, transitions.action, transitions.next_obs)
        mixed = batch if coefficients is None else mix(batch, coefficients)
        return replace(mixed, inputs=mixed.inputs.astype(self.config.precision))

    def update(
        self,
        state: TrainState,
        settings: Settings,
        batch: Batch,
        weights: Float[Array, "member batch"],
        key: Key[Array, ""],
        derivatives: bool,
    ) -> tuple[TrainState, Float[Array, " metric"], Float[Array, "member batch"]]:
        """One update of an ensemble.

        Args:
            state: The ensemble.
            settings: λ and mixup.
            batch: What each member reads, from `batch`.
            weights: Importance of each example.
            key: Random key.
            derivatives: Whether derivatives are part of the loss.

        Returns:
            The updated ensemble, metrics (means over members, in the order of `metric_names`), and each example's
            prediction error, which is that of the mixed example where batches are mixed.
        """
        joint = Joint.here(state.model)
        learner, metrics, errors = self._update(joint, _begin(joint, state), settings, batch, weights, key, derivatives)
        return _end(joint, state, learner), metrics, errors

    def _update(
        self,
        joint: Joint[Model],
        learner: _Learner,
        settings: Settings,
        batch: Batch,
        weights: Float[Array, "member batch"],
        key: Key[Array, ""],
        derivatives: bool,
    ) -> tuple[_Learner, Float[Array, " metric"], Float[Array, "member batch"]]:
        rise = rising(learner.step, self.config.penalty_start, self.config.penalty_stop)
        penalty = settings.penalty * rise if derivatives else None

        def member(
            model: Model, batch: Batch, weights: Float[Array, " batch"], key: Key[Array, ""]
        ) -> tuple[Float[Array, ""], _Judged]:
            return self.loss(model, batch, weights, key, learner.step, penalty)

        def total(parameters: Joined) -> tuple[Float[Array, ""], _Judged]:
            keys = jax.random.split(key, self.members)
            losses, rest = jax.vmap(member)(joint.part(parameters), batch, weights, keys)
            return jnp.sum(losses), rest

        (loss, (metrics, errors)), gradient = jax.value_and_grad(total, has_aux=True)(learner.parameters)
        learner, norm = self._step(learner, loss, gradient)
        return learner, jnp.append(jnp.mean(metrics, axis=0), norm), errors

    def _step(self, learner: _Learner, loss: Float[Array, ""], gradient: Joined) -> tuple[_Learner, Float[Array, ""]]:
        """One step of Adam, or none where the loss or the gradient is not finite; also the gradient's norm."""
        norm = jnp.sqrt(sum((jnp.sum(part**2) for part in gradient), start=jnp.zeros(())))
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        clip = self.config.clip
        clipped = tuple(jnp.where(norm < clip, part, part / norm * clip) for part in gradient)
        before = learner.parameters, learner.optimiser
        with jax.numpy_dtype_promotion("standard"):  # Adam raises a float to a power of its integer count
            changes, optimiser = self._adam.update(clipped, learner.optimiser, learner.parameters)
        if self.config.anneal_stop:
            left = 1.0 - rising(learner.step, self.config.anneal_start, self.config.anneal_stop)
            changes = jax.tree.map(lambda part: left * part, changes)
        after = optax.apply_updates(learner.parameters, changes), optimiser
        parameters, optimiser = jax.tree.map(lambda new, old: jnp.where(finite, new, old), after, before)
        skipped = learner.skipped + (~finite).astype(jnp.int32)
        return _Learner(parameters, optimiser, learner.step + 1, skipped), norm

    def train(
        self,
        state: TrainState,
        settings: Settings,
        data: Transitions,
        key: Key[Array, ""],
        num_updates: int,
        derivatives: bool = True,
        mixup: bool = True,
        size: Int[Array, ""] | None = None,
    ) -> tuple[TrainState, Metrics]:
        """Many updates on batches drawn from `data`: uniformly, or by prediction error where the config says so.

        Args:
            state: The ensemble.
            settings: λ and mixup.
            data: Transitions `[n, …]`.
            key: Random key.
            num_updates: How many.
            derivatives: Whether derivatives are part of the loss; where λ is 0 this only saves time.
            mixup: Whether batches are mixed.
            size: How many transitions, the first ones, are there to be drawn uniformly; None stands for all. Priorities
                know for themselves.

        Returns:
            The trained ensemble, and metrics: means over those of these updates that were not skipped; the mean
            negative log-likelihood of each child as `nll/NAME`; and `loss/skipped`, all skipped updates so far.
        """
        if self.config.priority > 0:
            state, metrics = self._train_by_priority(state, settings, data, key, num_updates, derivatives, mixup)
        else:
            state, metrics = self._train_uniformly(state, settings, data, key, num_updates, derivatives, mixup, size)
        means = dict(zip(self.metric_names, _finite_mean(metrics), strict=True))
        return state, means | {"loss/skipped": state.skipped.astype(jnp.float32)}

    def _train_uniformly(
        self,
        state: TrainState,
        settings: Settings,
        data: Transitions,
        key: Key[Array, ""],
        num_updates: int,
        derivatives: bool,
        mixup: bool,
        size: Int[Array, ""] | None,
    ) -> tuple[TrainState, Float[Array, "update metric"]]:
        """All batches are drawn, encoded and mixed ahead, so that the scan does nothing but learn."""
        index_key, mix_key, variant_key = jax.random.split(key, 3)
        shape = (num_updates, self.members, self.config.batch_size)
        index = jax.random.randint(index_key, shape, 0, data.action.shape[0] if size is None else size, jnp.int32)
        lam = mixup_coefficients(settings.mixup, jax.random.uniform(mix_key, shape)) if mixup else None
        batches = jax.vmap(jax.vmap(self.batch))(data[index], lam)
        weights = jnp.ones(shape[1:], jnp.float32)

        joint = Joint.here(state.model)

        def body(learner: _Learner, xs: tuple[Batch, Key[Array, ""]]) -> tuple[_Learner, Float[Array, " metric"]]:
            batch, key = xs
            learner, metrics, _ = self._update(joint, learner, settings, batch, weights, key, derivatives)
            return learner, metrics

        keys = jax.random.split(variant_key, num_updates)
        learner, metrics = jax.lax.scan(body, _begin(joint, state), (batches, keys))
        return _end(joint, state, learner), metrics

    def _train_by_priority(
        self,
        state: TrainState,
        settings: Settings,
        data: Transitions,
        key: Key[Array, ""],
        num_updates: int,
        derivatives: bool,
        mixup: bool,
    ) -> tuple[TrainState, Float[Array, "update metric"]]:
        """Each update draws by the errors that those before it have left."""
        if state.priorities is None or state.priorities.capacity != data.action.shape[0]:
            known = None if state.priorities is None else state.priorities.capacity
            raise ValueError(
                f"priorities of {known} transitions given for {data.action.shape[0]}; pass `data_size` to `init`"
            )
        draw_key, mix_key, variant_key = jax.random.split(key, 3)
        lam = None
        if mixup:
            shape = (num_updates, self.members, self.config.batch_size)
            lam = mixup_coefficients(settings.mixup, jax.random.uniform(mix_key, shape))
            # A mixed example's error becomes the priority of one of its two parts: the larger one. The two are
            # exchangeable, so this changes nothing about which mixtures are seen.
            lam = jnp.maximum(lam, 1.0 - lam)

        joint = Joint.here(state.model)

        def body(
            carry: tuple[_Learner, Priorities],
            xs: tuple[Key[Array, ""], Float[Array, "member batch"] | None, Key[Array, ""]],
        ) -> tuple[tuple[_Learner, Priorities], Float[Array, " metric"]]:
            learner, priorities = carry
            draw_key, lam, key = xs
            index, weights = self.draw(priorities, draw_key)
            batch = jax.vmap(self.batch)(data[index], lam)
            learner, metrics, errors = self._update(joint, learner, settings, batch, weights, key, derivatives)
            return (learner, jax.vmap(Priorities.update)(priorities, index, errors)), metrics

        keys = jax.random.split(draw_key, num_updates), jax.random.split(variant_key, num_updates)
        carry = _begin(joint, state), state.priorities
        (learner, priorities), metrics = jax.lax.scan(body, carry, (keys[0], lam, keys[1]))
        return replace(_end(joint, state, learner), priorities=priorities), metrics

    def draw(
        self, priorities: Priorities, key: Key[Array, ""]
    ) -> tuple[Int[Array, "member batch"], Float[Array, "member batch"]]:
        """A batch for each member by its priorities, with importance weights `(N · P(i))^-β`.

        N counts the slots that are filled. The weights are not divided by the largest one of the batch, as is often
        done: with β = 1 and without mixup the expected gradient is then that of uniform sampling, exactly and whatever
        the size of the batch.
        """

        def one(tree: Priorities, key: Key[Array, ""]) -> tuple[Int[Array, " batch"], Float[Array, " batch"]]:
            index, _ = tree.sample(key, self.config.batch_size)
            return index, (tree.size.astype(jnp.float32) * tree.probabilities(index)) ** -self.config.weight

        return jax.vmap(one)(priorities, jax.random.split(key, self.members))


def _begin(joint: Joint[Model], state: TrainState) -> _Learner:
    moments, *rest = state.optimiser
    joined = moments._replace(mu=joint.join(moments.mu), nu=joint.join(moments.nu))
    return _Learner(joint.join(state.model), (joined, *rest), state.step, state.skipped)


def _end(joint: Joint[Model], state: TrainState, learner: _Learner) -> TrainState:
    moments, *rest = learner.optimiser
    parted = moments._replace(mu=joint.part(moments.mu), nu=joint.part(moments.nu))
    model = joint.part(learner.parameters)
    return replace(state, model=model, optimiser=(parted, *rest), step=learner.step, skipped=learner.skipped)


def _finite_mean(values: Float[Array, "update *axes"]) -> Float[Array, "*axes"]:
    """Mean over the updates whose value is finite; NaN where there is none."""
    return jnp.mean(values, axis=0, where=jnp.isfinite(values))
