"""The products that networks are made of, with derivatives that are such products again.

Left to itself, automatic differentiation transposes operands and results to and fro: a second derivative of a few
layers then spends more time on moving than on multiplying. Each product here states its own derivatives, in the
order of axes in which they are used, so that no derivative of any order transposes its operands.
"""

from collections.abc import Callable
from functools import partial, reduce

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_UNROLL = 64
"""Sums of up to this many terms are written out: compilers then keep the batch as the innermost loop. CPUs sum more of
them in a loop; their compiler's own reductions over an axis that is not the last take twenty times as long."""

Matrix = Float[Array, "*stack row column"]


def _contract(a: Float[Array, "..."], b: Float[Array, "..."], axis_a: int, axis_b: int) -> Float[Array, "..."]:
    batch = tuple(range(a.ndim - 2))
    return jax.lax.dot_general(a, b, (((a.ndim + axis_a,), (b.ndim + axis_b,)), (batch, batch)))


@jax.custom_vjp
def times(a: Float[Array, "*stack row inner"], b: Float[Array, "*stack inner column"]) -> Matrix:
    """`a · b` of stacked matrices."""
    return _contract(a, b, -1, -2)


@jax.custom_vjp
def transpose_times(a: Float[Array, "*stack inner row"], b: Float[Array, "*stack inner column"]) -> Matrix:
    """`aᵀ · b`."""
    return _contract(a, b, -2, -2)


@jax.custom_vjp
def times_transpose(a: Float[Array, "*stack row inner"], b: Float[Array, "*stack column inner"]) -> Matrix:
    """`a · bᵀ`."""
    return _contract(a, b, -1, -1)


times.defvjp(
    lambda a, b: (times(a, b), (a, b)),
    lambda saved, g: (times_transpose(g, saved[1]), transpose_times(saved[0], g)),
)
transpose_times.defvjp(
    lambda a, b: (transpose_times(a, b), (a, b)),
    lambda saved, g: (times_transpose(saved[1], g), times(saved[0], g)),
)
times_transpose.defvjp(
    lambda a, b: (times_transpose(a, b), (a, b)),
    lambda saved, g: (times(g, saved[1]), transpose_times(g, saved[0])),
)

PerDst = Float[Array, "child head size dst batch"]
PerSrc = Float[Array, "child head size src batch"]
PerPair = Float[Array, "child head dst src batch"]


def _sum_products(a: Float[Array, "..."], b: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """`sum(a * b, axis)` with broadcasting, the axis being of equal length in both."""

    def term(i: int | Int[Array, ""]) -> Float[Array, "..."]:
        one, other = (jax.lax.dynamic_index_in_dim(x, i, axis, keepdims=False) for x in (a, b))
        product: Float[Array, "..."] = one * other
        return product

    return _sum_terms(term, a.shape[axis], lambda: jnp.sum(a * b, axis=axis))


def _sum_terms(
    term: Callable[[int | Int[Array, ""]], Float[Array, "..."]],
    length: int,
    otherwise: Callable[[], Float[Array, "..."]],
) -> Float[Array, "..."]:
    """The sum of so many terms, written out or in a loop, or by a reduction that gives the same."""
    if length <= _UNROLL:
        return _tree_sum([term(i) for i in range(length)])

    def loop() -> Float[Array, "..."]:
        total: Float[Array, "..."] = jax.lax.fori_loop(1, length, lambda i, total: total + term(i), term(0))
        return total

    total: Float[Array, "..."] = jax.lax.platform_dependent(cpu=loop, default=otherwise)
    return total


def _tree_sum(parts: list[Float[Array, "..."]]) -> Float[Array, "..."]:
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[::2], parts[1::2], strict=False)] + (
            parts[-1:] if len(parts) % 2 else []
        )
    return parts[0]


@jax.custom_vjp
def _materialised(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """The same array, which the CPU compiler may not fuse into what reads it.

    It would compute a sum of products again wherever it is read: a pair's weight for each of the values that it
    multiplies, a value for each of the three parts that are put on top of each other. A loop that never runs, on a
    condition that only the data can tell, stands in its way. GPUs need no such thing.
    """

    def held(x: Float[Array, "..."]) -> Float[Array, "..."]:
        start = jnp.isnan(x.ravel()[0]).astype(jnp.int32)
        kept: Float[Array, "..."] = jax.lax.while_loop(lambda c: c[0] < 0, lambda c: (c[0] + 1, -c[1]), (start, x))[1]
        return kept

    same: Float[Array, "..."] = jax.lax.platform_dependent(x, cpu=held, default=lambda x: x)
    return same


_materialised.defvjp(lambda x: (_materialised(x), None), lambda _, g: (g,))


@jax.custom_vjp
def pair_products(query: PerDst, key: PerSrc) -> PerPair:
    """`Σ_size query[dst] · key[src]` for every pair of inputs."""
    return _materialised(_sum_products(query[:, :, :, :, None], key[:, :, :, None], 2))


@jax.custom_vjp
def attended(weights: PerPair, value: PerSrc) -> PerDst:
    """`Σ_src weights[dst, src] · value[src]`."""
    return _materialised(_sum_products(weights[:, :, None], value[:, :, :, None], 4))


@jax.custom_vjp
def attended_back(weights: PerPair, value: PerDst) -> PerSrc:
    """`Σ_dst weights[dst, src] · value[dst]`."""
    return _materialised(_sum_products(weights[:, :, None], value[:, :, :, :, None], 3))


pair_products.defvjp(
    lambda query, key: (pair_products(query, key), (query, key)),
    lambda saved, g: (attended(g, saved[1]), attended_back(g, saved[0])),
)
attended.defvjp(
    lambda weights, value: (attended(weights, value), (weights, value)),
    lambda saved, g: (pair_products(g, saved[1]), attended_back(saved[0], g)),
)
attended_back.defvjp(
    lambda weights, value: (attended_back(weights, value), (weights, value)),
    lambda saved, g: (pair_products(saved[1], g), attended(saved[0], g)),
)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def spread_sum(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """The sum along an axis in every place of that axis; its derivative is the same function."""

    def term(i: int | Int[Array, ""]) -> Float[Array, "..."]:
        part: Float[Array, "..."] = jax.lax.dynamic_index_in_dim(x, i, axis)
        return part

    return jnp.broadcast_to(_sum_terms(term, x.shape[axis], lambda: jnp.sum(x, axis, keepdims=True)), x.shape)


spread_sum.defvjp(lambda x, axis: (spread_sum(x, axis), None), lambda axis, _, g: (spread_sum(g, axis),))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def softmax(logits: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    """Softmax along an axis, computed in float32 whatever the type of the logits."""
    exact = logits.astype(jnp.float32)
    powers = jnp.exp(exact - _largest(exact, axis))
    return _materialised((powers / spread_sum(powers, axis)).astype(logits.dtype))


def _largest(x: Float[Array, "..."], axis: int) -> Float[Array, "..."]:
    if x.shape[axis] > _UNROLL:
        return jnp.max(x, axis, keepdims=True)
    return reduce(jnp.maximum, [jax.lax.index_in_dim(x, i, axis) for i in range(x.shape[axis])])


def _softmax_forward(logits: Float[Array, "..."], axis: int) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    weights = softmax(logits, axis)
    return weights, weights


def _softmax_back(axis: int, weights: Float[Array, "..."], g: Float[Array, "..."]) -> tuple[Float[Array, "..."]]:
    exact = weights.astype(jnp.float32) * g.astype(jnp.float32)
    return (_materialised((exact - weights.astype(jnp.float32) * spread_sum(exact, axis)).astype(weights.dtype)),)


softmax.defvjp(_softmax_forward, _softmax_back)


def pick_by_sum(
    x: Float[Array, "child feature input batch"], chosen: tuple[int, ...]
) -> Float[Array, "child feature batch"]:
    """What `pick` does, with zeros in the place of the others."""
    mask = np.array(chosen)[:, None] == np.arange(x.shape[2])
    return jnp.sum(jnp.where(mask[:, None, :, None], x, jnp.zeros((), x.dtype)), axis=2)


def pick_by_index(
    x: Float[Array, "child feature input batch"], chosen: tuple[int, ...]
) -> Float[Array, "child feature batch"]:
    """What `pick` does, without reading the others."""
    return x[np.arange(len(chosen)), :, np.array(chosen)]


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def pick(x: Float[Array, "child feature input batch"], chosen: tuple[int, ...]) -> Float[Array, "child feature batch"]:
    """Of every child the features of one input."""
    by_sum, by_index = (partial(function, chosen=chosen) for function in (pick_by_sum, pick_by_index))
    picked: Float[Array, "child feature batch"] = jax.lax.platform_dependent(x, cpu=by_sum, default=by_index)
    return picked


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def place(
    x: Float[Array, "child feature batch"], chosen: tuple[int, ...], inputs: int
) -> Float[Array, "child feature input batch"]:
    """These features as those of one input of every child, 0 elsewhere."""
    mask = np.array(chosen)[:, None] == np.arange(inputs)
    return jnp.where(mask[:, None, :, None], x[:, :, None], jnp.zeros((), x.dtype))


pick.defvjp(
    lambda x, chosen: (pick(x, chosen), x.shape[2]),
    lambda chosen, inputs, g: (place(g, chosen, inputs),),
)
place.defvjp(
    lambda x, chosen, inputs: (place(x, chosen, inputs), None),
    lambda chosen, inputs, _, g: (pick(g, chosen),),
)
