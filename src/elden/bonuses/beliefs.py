"""What an ensemble believes about a step, apart from any graph: where its members disagree, and about what.

For a discrete variable member m gives probabilities `p_m`; for a continuous one the mean of a normal distribution. What
its deviation is taken to be, the noise, is an argument where it matters: networks learn means alone, and take the
deviation of every variable to be 1, whatever its unit. A child that is an entity is the sum over its variables, unless
a function says otherwise.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, log_probabilities

Outputs = Float[Array, "member child slot value batch"]
Noise = Float[Array, "child slot"] | float


def information(layout: Layout, outputs: Outputs, noise: Noise = 1.0) -> Float[Array, "child batch"]:
    """Mutual information between the members and their prediction, in nats: `H(mean p_m) − mean H(p_m)`.

    Noise that all members know to be noise has none; what they predict differently has. Of a continuous variable
    it is `½ Σ log(1 + Var_m / noise²)` over its components, with the variance of the members' means: the information
    of a normal distribution of that variance seen through the noise.
    """
    total = jnp.zeros(outputs.shape[1:3] + outputs.shape[-1:], jnp.float32)
    if layout.discrete.any():
        log_p = _each_log_probabilities(layout, outputs)
        p = jnp.exp(log_p)
        mean = jnp.mean(p, axis=0)
        own = jnp.mean(jnp.sum(p * log_p, axis=3), axis=0)
        mixed = jnp.sum(mean * jnp.log(jnp.maximum(mean, 1e-12)), axis=2)
        total = jnp.where(layout.discrete[..., None], jnp.maximum(own - mixed, 0.0), total)
    continuous = layout.slot_mask & ~layout.discrete
    if continuous.any():
        spread = jnp.where(layout.target_mask[..., None], jnp.var(outputs, axis=0), 0.0) / _squared(noise)
        total = jnp.where(continuous[..., None], 0.5 * jnp.sum(jnp.log1p(spread), axis=2), total)
    return jnp.sum(jnp.where(layout.slot_mask[..., None], total, 0.0), axis=1)


def excess_surprise(layout: Layout, outputs: Outputs, batch: Batch, noise: Noise = 1.0) -> Float[Array, "child batch"]:
    """How much more what happened surprises a member than it had expected to be, in nats: `−log p_m(s') − H(p_m)`.

    The mean over members. Of a discrete variable, noise that a member knows to be noise is 0 on average, however
    large; what a member took to be impossible is far above it, also where all members were wrong in the same way. A
    continuous variable has `½ (error² / noise² − 1)` for each component: 0 on average where errors are the noise.

    A child that has variables of both kinds is, for each member, the sum of both, of each no less than 0: that its
    continuous variables were predicted better than expected makes up for nothing that surprised in its discrete ones,
    nor the other way. Variables of one kind do make up for each other: eight components that are exactly right take
    four nats off what a ninth is wrong by.
    """
    continuous = layout.slot_mask & ~layout.discrete
    both = jnp.asarray(layout.discrete.any(-1) & continuous.any(-1))[:, None]

    def one(out: Float[Array, "child slot value batch"]) -> Float[Array, "child batch"]:
        of_values = of_distances = jnp.zeros((out.shape[0], out.shape[-1]), jnp.float32)
        if layout.discrete.any():
            log_p = log_probabilities(layout, out)
            surprise = jnp.sum((jnp.exp(log_p) - batch.target) * log_p, axis=2)
            of_values = jnp.sum(jnp.where(layout.discrete[..., None], surprise, 0.0), axis=1)
        if continuous.any():
            error = (batch.target - batch.current - out) ** 2 / _squared(noise) - 1.0
            counts = layout.target_mask & continuous[..., None]
            of_distances = 0.5 * jnp.sum(jnp.where(counts[..., None], error, 0.0), axis=(1, 2))
        floor = jnp.where(both, 0.0, -jnp.inf)
        return jnp.maximum(of_values, floor) + jnp.maximum(of_distances, floor)

    return jnp.mean(jax.vmap(one)(outputs), axis=0)


def change_surprise(
    layout: Layout, outputs: Outputs, batch: Batch, noise: Noise, still: Float[Array, "*child_slot"]
) -> Float[Array, "child batch"]:
    """How much more *whether* a variable changed surprises a member than expected, in nats: the largest of a child's.

    A member gives `P(stays) = p̂(s' = s)` for nothing. Of a continuous variable it is the probability of a move shorter
    than `still`, which is also what counts as none; of one with several components only the direction of the predicted
    move is looked at, which gives a little more.
    """
    still = jnp.broadcast_to(still, layout.slot_mask.shape)

    def one(out: Float[Array, "child slot value batch"]) -> Float[Array, "child slot batch"]:
        stays = jnp.zeros((*out.shape[:2], out.shape[-1]), jnp.float32)
        if layout.discrete.any():
            log_p = log_probabilities(layout, out)
            stays = jnp.sum(jnp.exp(log_p) * batch.current, axis=2)
        if (layout.slot_mask & ~layout.discrete).any():
            scale = jnp.sqrt(_squared(noise))[..., 0]
            shift = jnp.sqrt(jnp.sum(jnp.where(layout.target_mask[..., None], out, 0.0) ** 2, axis=2))
            inside = jax.scipy.stats.norm.cdf((still[..., None] - shift) / scale)
            outside = jax.scipy.stats.norm.cdf((-still[..., None] - shift) / scale)
            stays = jnp.where(layout.discrete[..., None], stays, inside - outside)
        return jnp.clip(stays, 1e-6, 1.0 - 1e-6)

    distance = jnp.sqrt(
        jnp.sum(jnp.where(layout.target_mask[..., None], batch.target - batch.current, 0.0) ** 2, axis=2)
    )
    changed = distance > jnp.where(layout.discrete, 0.0, still)[..., None]

    def excess(out: Float[Array, "child slot value batch"]) -> Float[Array, "child slot batch"]:
        p = one(out)
        entropy = -(p * jnp.log(p) + (1.0 - p) * jnp.log1p(-p))
        return -jnp.where(changed, jnp.log1p(-p), jnp.log(p)) - entropy

    mean = jnp.mean(jax.vmap(excess)(outputs), axis=0)
    return jnp.max(jnp.where(layout.slot_mask[..., None], mean, -jnp.inf), axis=1)


def mean_square_error(layout: Layout, outputs: Outputs, batch: Batch) -> Float[Array, "child slot"]:
    """The members' mean square error about continuous variables, over components, members and transitions."""
    square = jnp.where(layout.target_mask[..., None], (batch.target - batch.current - outputs) ** 2, 0.0)
    mean = jnp.mean(jnp.sum(square.astype(jnp.float32), axis=3), axis=(0, 3)) / components(layout)
    return jnp.where(layout.slot_mask & ~layout.discrete, mean, 0.0)


def components(layout: Layout) -> Float[Array, "child slot"]:
    """Numbers that each variable is predicted by; 1 where there is no variable."""
    return jnp.maximum(jnp.asarray(layout.target_mask.sum(-1), jnp.float32), 1.0)


def disagreement(layout: Layout, outputs: Outputs) -> Float[Array, "child batch"]:
    """Entropy in nats of the members' votes for the most likely value; of a continuous variable the variance of means.

    The mean over the variables of a child, as in the authors' programs.
    """
    total = jnp.zeros(outputs.shape[1:3] + outputs.shape[-1:], jnp.float32)
    if layout.discrete.any():
        log_p = _each_log_probabilities(layout, outputs)
        values = jnp.arange(outputs.shape[3], dtype=jnp.int32)[:, None]
        votes = jnp.argmax(log_p, axis=3)[:, :, :, None].astype(jnp.int32) == values
        shares = jnp.mean(votes.astype(jnp.float32), axis=0)
        entropy = -jnp.sum(shares * jnp.log(jnp.where(shares > 0, shares, 1.0)), axis=2)
        total = jnp.where(layout.discrete[..., None], entropy, total)
    continuous = layout.slot_mask & ~layout.discrete
    if continuous.any():
        spread = jnp.where(layout.target_mask[..., None], jnp.var(outputs, axis=0, ddof=1), 0.0)
        total = jnp.where(continuous[..., None], jnp.sum(spread, axis=2), total)
    return child_means(layout, total)


def child_means(layout: Layout, values: Float[Array, "child slot batch"]) -> Float[Array, "child batch"]:
    """Means over the variables of each child."""
    variables = jnp.asarray(layout.slot_mask.sum(-1), jnp.float32)
    return jnp.sum(jnp.where(layout.slot_mask[..., None], values, 0.0), axis=1) / variables[:, None]


def _squared(noise: Noise) -> Float[Array, "*child_slot 1 1"]:
    return jnp.square(jnp.asarray(noise, jnp.float32))[..., None, None]


def _each_log_probabilities(layout: Layout, outputs: Outputs) -> Outputs:
    return jnp.stack([log_probabilities(layout, out) for out in outputs])
