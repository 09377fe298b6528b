"""Attention by kernels against attention by products; without a GPU the kernels are interpreted."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import MIXED, layout_of, random_batch, random_network
from jaxtyping import Array, Float

from elden.dynamics import attention, network
from elden.dynamics.attention import composed, fused, fuses
from elden.dynamics.likelihood import likelihood_and_derivative
from elden.factors import Continuous

Parts: TypeAlias = tuple[Float[Array, "child head size dst batch"], ...]
SHAPES = {
    "all inputs in one program": (3, 3, 32),
    "one query, examples that fill no warp": (1, 7, 40),
    "inputs in groups that do not go even": (11, 13, 32),
}
CHILDREN, HEADS, SIZE = 2, 2, 4


def random_parts(dst: int, src: int, batch: int) -> Parts:
    """Queries, keys and values, large enough that weights differ."""
    keys = jax.random.split(jax.random.key(dst), 3)
    counts = (dst, src, src)
    return tuple(
        1.5 * jax.random.normal(key, (CHILDREN, HEADS, SIZE, count, batch))
        for key, count in zip(keys, counts, strict=True)
    )


def by_products(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, "child head size dst batch"]:
    """Values alone."""
    return composed(*parts)[0]


def slopes(function: Callable[..., Float[Array, "..."]], parts: Parts) -> Parts:
    """Derivatives of a sum in which every value counts differently."""

    def total(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, ""]:
        values = function(*parts)
        return jnp.sum(values * jax.random.normal(jax.random.key(9), values.shape))

    derived: Parts = jax.jit(jax.grad(total, (0, 1, 2)))(*parts)
    return derived


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_kernels_give_the_values_of_products(shape: tuple[int, int, int]) -> None:
    parts = random_parts(*shape)
    np.testing.assert_allclose(jax.jit(fused)(*parts), by_products(*parts), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_kernels_give_the_derivatives_of_products(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_REGISTERS", 2 * 5 * 13)  # groups of five
    parts = random_parts(*shape)
    for got, expected in zip(slopes(fused, parts), slopes(by_products, parts), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_kernels_sum_half_precision_in_full_precision() -> None:
    exact = random_parts(3, 3, 32)
    rounded = tuple(part.astype(jnp.bfloat16) for part in exact)
    got = jax.jit(fused)(*rounded)
    assert got.dtype == jnp.bfloat16
    expected = by_products(*(part.astype(jnp.float32) for part in rounded))
    np.testing.assert_allclose(got.astype(jnp.float32), expected, rtol=2**-8, atol=1e-6)


def test_kernels_have_no_second_derivative() -> None:
    parts = random_parts(1, 2, 32)

    def slope(query: Float[Array, "child head size dst batch"]) -> Float[Array, ""]:
        return jnp.sum(jax.grad(lambda query: jnp.sum(fused(query, *parts[1:])))(query))

    with pytest.raises(Exception, match="does not support reverse-mode"):
        jax.grad(slope)(parts[0])


def test_graphs_by_kernels_are_those_by_products(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layout_of(MIXED, "variable", "entity", "relu", Continuous(2))
    net, batch = random_network(layout), random_batch(layout, 5)
    expected = likelihood_and_derivative(layout, net, batch, "log-probability")
    used = []

    def noted(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, "child head size dst batch"]:
        used.append(parts)
        return fused(*parts)

    monkeypatch.setattr(network, "fuses", lambda inputs, batch: True)
    monkeypatch.setattr(network, "fused", noted)
    got = jax.jit(lambda: likelihood_and_derivative(layout, net, batch, "log-probability", final=True))()
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert len(used) == 2  # both attention layers
    likelihood_and_derivative(layout, net, batch, "log-probability")
    assert len(used) == 2  # what may be differentiated again has no kernels


@pytest.mark.parametrize("inputs", [7, 17])
def test_kernels_can_be_written_for_a_gpu_that_is_not_there(inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    shape = jax.ShapeDtypeStruct((1, 4, 16, inputs, 512), jnp.bfloat16)  # type: ignore[no-untyped-call]

    def total(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, ""]:
        return jnp.sum(fused(*parts).astype(jnp.float32))

    lowered = jax.jit(jax.grad(total, (0, 1, 2))).trace(shape, shape, shape).lower(lowering_platforms=("cuda",))
    names = {7: ("whole_kernel",), 17: ("rows_kernel", "columns_kernel")}[inputs]
    text = lowered.as_text()
    for name in names:
        assert name in text


def test_only_many_examples_of_few_inputs_have_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not fuses(7, 4096)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert fuses(7, 4096)
    assert not fuses(7, 32)
    assert not fuses(65, 4096)
