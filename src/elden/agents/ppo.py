"""Proximal policy optimisation (Schulman et al. 2017), for discrete and continuous actions.

    L = −E[min(ρ A, clip(ρ, 1 − c, 1 + c) A)] + v · E[Σ_h (V_h − R_h)²] / 2 − e · E[H(π)],   ρ = π(a|s) / π_old(a|s)

Values have one or more heads, one for each stream of rewards (task, intrinsic); the advantages of the streams are
added up. What the policy reads is a flat vector, whatever it was made from.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key, Num, Shaped

from elden.agents.actions import Actions
from elden.agents.base import Metrics, Trajectory
from elden.agents.gae import advantages
from elden.nn import Activation, Mlp
from elden.optimise import finite_step, tree_norm
from elden.pytree import pytree


@dataclass(frozen=True)
class PpoConfig:
    """How the policy learns."""

    learning_rate: float = 3e-4
    """Learning rate of Adam."""
    anneal_from: float = 1.0
    """Share of the updates after which the learning rate falls linearly, to reach 0 after the last one; 1 leaves it as
    it is."""
    epochs: int = 4
    """How often each transition of a rollout is used."""
    minibatch_size: int = 1024
    """Transitions in one update. What is left of a rollout and does not fill one is left out of that epoch."""
    clip: float = 0.2
    """How far from 1 a ratio of probabilities may go."""
    gae: float = 0.95
    """λ of generalised advantage estimation."""
    value_weight: float = 0.5
    """Weight of half the values' squared error in the loss: 1 is what other programs call 0.5 of the squared error."""
    entropy: float = 0.01
    """Weight of the policy's entropy in the loss."""
    entropy_target: float = 0.0
    """Share of the largest possible entropy below which the weight of the entropy rises; 0 leaves it as it is."""
    entropy_gain: float = 10.0
    """How many times its weight the entropy gains at most, where there is none left."""
    advantage_floor: float = 0.0
    """Advantages are divided by no less than this, so that noise is not blown up once no reward is left."""
    max_gradient_norm: float = 0.5
    """Longer gradients are scaled down to this norm."""
    clip_apart: bool = False
    """Scale the gradients of policy and values down apart, so that large errors of values do not stop the policy."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the policy's hidden layers, and of the values'."""
    activation: Activation = "tanh"
    """Activation function."""
    layer_norm: bool = False
    """Normalise features before each activation."""

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 1 or more")
        for name in ("learning_rate", "clip", "max_gradient_norm"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be above 0")
        if self.learning_rate == math.inf:
            raise ValueError(f"learning_rate={self.learning_rate} given; it must be finite")
        for name in ("value_weight", "entropy", "entropy_gain", "advantage_floor"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 0 or more, and finite")
        for name in ("gae", "entropy_target", "anneal_from"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must lie between 0 and 1")
        if not all(width >= 1 for width in self.hidden):
            raise ValueError(f"hidden={self.hidden} given; all widths must be 1 or more")

    @property
    def anneals(self) -> bool:
        """Whether the learning rate falls."""
        return self.anneal_from < 1.0


@pytree()
@dataclass(frozen=True)
class ActorCritic:
    """A policy and its values.

    Attributes:
        policy: From a state to numbers of a distribution over actions.
        free: Further numbers of the distribution, the same in every state.
        values: From a state to a value for each stream of rewards.
    """

    policy: Mlp
    free: Float[Array, "*stack free"]
    values: Mlp

    def numbers(self, x: Float[Array, "*batch feature"]) -> Float[Array, "*batch number"]:
        """What `Actions` reads."""
        out = self.policy(x)
        return jnp.concatenate([out, jnp.broadcast_to(self.free, (*out.shape[:-1], self.free.shape[-1]))], axis=-1)


@pytree()
@dataclass(frozen=True)
class PpoState:
    """A policy in training.

    Attributes:
        network: The parameters.
        optimiser: State of Adam.
        updates: Updates made, the skipped ones included.
        skipped: Updates that were skipped because the loss or its gradient was not finite.
    """

    network: ActorCritic
    optimiser: optax.OptState
    updates: Int[Array, "*stack"]
    skipped: Int[Array, "*stack"]


@pytree()
@dataclass(frozen=True)
class Experience:
    """What a policy learns from: states with what was done in them and what came of it.

    Attributes:
        inputs: What the policy read.
        action: What it did.
        log_prob: Logarithm of the probability with which it did that.
        advantage: How much better than expected it went.
        returns: What each head of the values should have predicted.
    """

    inputs: Float[Array, "step feature"]
    action: Num[Array, "step *component"]
    log_prob: Float[Array, " step"]
    advantage: Float[Array, " step"]
    returns: Float[Array, "step head"]


@dataclass(frozen=True)
class Ppo:
    """The algorithm for policies of one shape. Hashable: equal ones share their compiled functions."""

    config: PpoConfig
    actions: Actions
    inputs: int
    """Length of what the policy reads."""
    discounts: tuple[float, ...] = (0.99,)
    """Discount of each stream of rewards; each has a value head of its own."""
    total_updates: int | None = None
    """Updates in the whole training; needed only where the learning rate falls."""

    def __post_init__(self) -> None:
        if self.config.anneals and self.total_updates is None:
            given = f"anneal_from={self.config.anneal_from} given without total_updates"
            raise ValueError(f"{given}; a falling learning rate needs to know when it is 0")

    @property
    def _optimiser(self) -> optax.GradientTransformation:
        rate, total = self.config.learning_rate, self.total_updates
        if self.config.anneals and total is not None:
            constant = int(self.config.anneal_from * total)
            return optax.adam(optax.linear_schedule(rate, 0.0, max(1, total - constant), constant), eps=1e-5)
        return optax.adam(rate, eps=1e-5)

    def _clipped(self, gradient: ActorCritic) -> ActorCritic:
        """The gradient, no longer than it may be: as a whole, or that of the policy and that of the values apart."""
        clip = optax.clip_by_global_norm(self.config.max_gradient_norm)
        if not self.config.clip_apart:
            whole: ActorCritic = clip.update(gradient, clip.init(gradient))[0]
            return whole
        policy, free = clip.update((gradient.policy, gradient.free), optax.EmptyState())[0]
        return ActorCritic(policy, free, clip.update(gradient.values, optax.EmptyState())[0])

    def init(self, key: Key[Array, ""]) -> PpoState:
        """An untrained policy."""
        policy_key, value_key = jax.random.split(key)
        config = self.config

        def mlp(key: Key[Array, ""], out: int, last_scale: float) -> Mlp:
            sizes = (self.inputs, *config.hidden, out)
            return Mlp.init(key, sizes, config.activation, config.layer_norm, last_scale)

        network = ActorCritic(
            policy=mlp(policy_key, self.actions.outputs, 0.01),
            free=jnp.zeros(self.actions.free),
            values=mlp(value_key, len(self.discounts), 1.0),
        )
        return PpoState(network, self._optimiser.init(network), jnp.int32(0), jnp.int32(0))

    def numbers(self, state: PpoState, inputs: Float[Array, "*batch feature"]) -> Float[Array, "*batch number"]:
        """The parameters of the distribution over actions, for each input."""
        return state.network.numbers(inputs)

    def update(self, state: PpoState, key: Key[Array, ""], trajectory: Trajectory) -> tuple[PpoState, Metrics]:
        """Learn from a trajectory, with the advantages of all streams added up."""
        return self.learn(state, key, self.experience(state.network, trajectory))

    def experience(self, network: ActorCritic, trajectory: Trajectory) -> Experience:
        """The steps of a trajectory with their advantages, in no order."""
        values, following = (network.values(inputs) for inputs in (trajectory.inputs, trajectory.next_inputs))
        ends, gae = (trajectory.terminated, trajectory.done), self.config.gae
        streams = [
            advantages(trajectory.rewards[..., i], values[..., i], following[..., i], *ends, discount, gae)
            for i, discount in enumerate(self.discounts)
        ]
        stacked = jnp.stack(streams, axis=-1)

        def flat(part: Shaped[Array, "time env ..."]) -> Shaped[Array, "step ..."]:
            return part.reshape(-1, *part.shape[2:])

        return Experience(
            inputs=flat(trajectory.inputs),
            action=flat(trajectory.action),
            log_prob=flat(trajectory.log_prob),
            advantage=flat(jnp.sum(stacked, axis=-1)),
            returns=flat(stacked + values),
        )

    def loss(self, network: ActorCritic, batch: Experience) -> tuple[Float[Array, ""], Metrics]:
        """The loss of one minibatch, whose advantages are brought to mean 0 and deviation 1."""
        config = self.config
        numbers = network.numbers(batch.inputs)
        log_ratio = self.actions.log_prob(numbers, batch.action) - batch.log_prob
        ratio = jnp.exp(log_ratio)
        deviation = jnp.maximum(jnp.std(batch.advantage) + 1e-8, config.advantage_floor)
        advantage = (batch.advantage - jnp.mean(batch.advantage)) / deviation
        clipped = jnp.clip(ratio, 1.0 - config.clip, 1.0 + config.clip)
        policy_loss = -jnp.mean(jnp.minimum(ratio * advantage, clipped * advantage))
        value_loss = 0.5 * jnp.mean(jnp.sum((network.values(batch.inputs) - batch.returns) ** 2, axis=-1))
        entropy = jnp.mean(self.actions.entropy(numbers))
        weight = jnp.float32(config.entropy)
        if config.entropy_target > 0 and self.actions.most_entropy > 0:
            lacking = jnp.clip(1.0 - entropy / (config.entropy_target * self.actions.most_entropy), 0.0, 1.0)
            weight = weight * (1.0 + config.entropy_gain * jax.lax.stop_gradient(lacking))
        total = policy_loss + config.value_weight * value_loss - weight * entropy
        metrics = {
            "policy/loss": policy_loss,
            "policy/value_loss": value_loss,
            "policy/entropy": entropy,
            "policy/clipped": jnp.mean((jnp.abs(ratio - 1.0) > config.clip).astype(jnp.float32)),
            "policy/kl": jnp.mean(ratio - 1.0 - log_ratio),
        }
        return total, metrics

    def learn(self, state: PpoState, key: Key[Array, ""], experience: Experience) -> tuple[PpoState, Metrics]:
        """Several epochs over these steps, each in minibatches of another order.

        What does not fill a minibatch is left out of that epoch. Metrics are means over the updates that were made.
        """
        size = experience.log_prob.shape[0]
        minibatch_size = min(self.config.minibatch_size, size)
        minibatches = size // minibatch_size

        def epoch(state: PpoState, key: Key[Array, ""]) -> tuple[PpoState, Metrics]:
            order = jax.random.permutation(key, size)[: minibatches * minibatch_size]
            return jax.lax.scan(self._update_on(experience), state, order.reshape(minibatches, minibatch_size))

        state, metrics = jax.lax.scan(epoch, state, jax.random.split(key, self.config.epochs))
        means = {name: jnp.mean(values, where=jnp.isfinite(values)) for name, values in metrics.items()}
        return state, means | {"policy/skipped": state.skipped.astype(jnp.float32)}

    def _update_on(self, experience: Experience) -> Callable[..., tuple[PpoState, Metrics]]:
        def update(state: PpoState, index: Int[Array, " minibatch"]) -> tuple[PpoState, Metrics]:
            batch: Experience = jax.tree.map(lambda leaf: leaf[index], experience)
            (loss, metrics), gradient = jax.value_and_grad(self.loss, has_aux=True)(state.network, batch)
            clipped = self._clipped(gradient)
            network, optimiser, finite = finite_step(self._optimiser, state.optimiser, state.network, loss, clipped)
            skipped = state.skipped + (~finite).astype(jnp.int32)
            return PpoState(network, optimiser, state.updates + 1, skipped), metrics | {
                "policy/gradient_norm": tree_norm(gradient)
            }

        return update
