"""Attention by kernels against attention by products; without a GPU the kernels are interpreted."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import MIXED, layout_of, random_batch, random_network
from jaxtyping import Array, Float

from elden.dynamics import attention, network
from elden.dynamics.attention import composed, fused, worth_fusing
from elden.dynamics.likelihood import likelihood_and_derivative
from elden.factors import Continuous

Parts: TypeAlias = tuple[
    Float[Array, "child head size dst batch"],
    Float[Array, "child head size src batch"],
    Float[Array, "child head size src batch"],
]
SHAPES = {
    "all inputs in one program": (3, 3, 32),
    "one input": (1, 1, 32),
    "one query, examples that fill no warp": (1, 7, 40),
    "three blocks of examples": (2, 3, 96),
    "inputs in groups that do not go even": (11, 13, 32),
}
CHILDREN, HEADS, SIZE = 2, 2, 4


def random_parts(dst: int, src: int, batch: int) -> Parts:
    """Queries, keys and values, large enough that weights differ."""
    keys = jax.random.split(jax.random.key(dst), 3)
    query, key, value = (
        1.5 * jax.random.normal(key, (CHILDREN, HEADS, SIZE, count, batch))
        for key, count in zip(keys, (dst, src, src), strict=True)
    )
    return query, key, value


kernels = partial(fused, interpret=True)


def by_products(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, "child head size dst batch"]:
    """Values alone."""
    return composed(*parts)[0]


def slopes(function: Callable[..., Float[Array, "..."]], parts: Parts) -> Parts:
    """Derivatives of a sum in which every value counts differently."""

    def total(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, ""]:
        values = function(*parts)
        return jnp.sum(values.astype(jnp.float32) * jax.random.normal(jax.random.key(9), values.shape))

    derived: Parts = jax.jit(jax.grad(total, (0, 1, 2)))(*parts)
    return derived


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_kernels_give_the_values_of_products(shape: tuple[int, int, int]) -> None:
    parts = random_parts(*shape)
    np.testing.assert_allclose(jax.jit(kernels)(*parts), by_products(*parts), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_kernels_give_the_derivatives_of_products(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        attention, "_REGISTERS", 2 * 5 * 13
    )  # of 11 and 13 inputs: groups of four rows, and of five columns
    parts = random_parts(*shape)
    for got, expected in zip(slopes(kernels, parts), slopes(by_products, parts), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_kernels_sum_half_precision_in_full_precision() -> None:
    query, key, value = random_parts(3, 3, 32)
    rounded = query.astype(jnp.bfloat16), key.astype(jnp.bfloat16), value.astype(jnp.bfloat16)
    exact = rounded[0].astype(jnp.float32), rounded[1].astype(jnp.float32), rounded[2].astype(jnp.float32)
    got = jax.jit(kernels)(*rounded)
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), by_products(*exact), rtol=2**-8, atol=1e-6)
    for one, other in zip(slopes(kernels, rounded), slopes(by_products, exact), strict=True):
        assert one.dtype == jnp.bfloat16
        np.testing.assert_allclose(one.astype(jnp.float32), other, rtol=2**-5, atol=2**-6)


def test_kernels_map_over_members_and_runs() -> None:
    stacked = tuple(jnp.stack([part, 0.5 * part, -part, 0.1 + part]) for part in random_parts(2, 3, 64))
    stacked = tuple(part.reshape(2, 2, *part.shape[1:]) for part in stacked)

    def total(function: Callable[..., Float[Array, "..."]]) -> Parts:
        weighed = lambda *parts: jnp.sum(function(*parts) ** 2)  # noqa: E731
        derived: Parts = jax.jit(jax.vmap(jax.vmap(jax.grad(weighed, (0, 1, 2)))))(*stacked)
        return derived

    for one, other in zip(total(kernels), total(by_products), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_elsewhere_products_stand_in_for_kernels() -> None:
    parts = random_parts(2, 3, 40)
    np.testing.assert_allclose(fused(*parts), by_products(*parts), rtol=1e-6, atol=1e-6)
    for one, other in zip(slopes(fused, parts), slopes(by_products, parts), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_kernels_have_no_second_derivative() -> None:
    parts = random_parts(1, 2, 32)

    def slope(query: Float[Array, "child head size dst batch"]) -> Float[Array, ""]:
        return jnp.sum(jax.grad(lambda query: jnp.sum(kernels(query, *parts[1:])))(query))

    with pytest.raises(Exception, match="does not support reverse-mode"):
        jax.grad(slope)(parts[0])


@pytest.mark.slow
def test_graphs_by_kernels_are_those_by_products(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layout_of(MIXED, "entity", "entity", "relu", Continuous(2))
    net, batch = random_network(layout), random_batch(layout, 5)
    expected = likelihood_and_derivative(layout, net, batch, "log-probability")
    used = []

    def noted(*parts: Float[Array, "child head size dst batch"]) -> Float[Array, "child head size dst batch"]:
        used.append(parts)
        return kernels(*parts)

    monkeypatch.setattr(network, "worth_fusing", lambda inputs, batch: True)
    monkeypatch.setattr(network, "fused", noted)
    got = jax.jit(lambda: likelihood_and_derivative(layout, net, batch, "log-probability", final=True))()
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    assert len(used) == 2  # both attention layers
    likelihood_and_derivative(layout, net, batch, "log-probability")
    assert len(used) == 2  # what may be differentiated again has no kernels


@pytest.mark.parametrize("inputs", [7, 17])
def test_kernels_can_be_written_for_a_gpu_that_is_not_there(inputs: int) -> None:
    shape = jax.ShapeDtypeStruct((1, 4, 16, inputs, 512), jnp.bfloat16)  # type: ignore[no-untyped-call]

    def total(
        query: Float[Array, "child head size dst batch"],
        key: Float[Array, "child head size src batch"],
        value: Float[Array, "child head size src batch"],
    ) -> Float[Array, ""]:
        return jnp.sum(fused(query, key, value).astype(jnp.float32))

    traced = jax.jit(jax.grad(total, (0, 1, 2))).trace(shape, shape, shape)
    try:
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    except RuntimeError as error:
        if "Triton compilation handler" not in str(error):
            raise
        pytest.skip("this jax compiles kernels while it lowers, which takes its CUDA plugin")
    for name in {7: ("whole_kernel",), 17: ("rows_kernel", "columns_kernel")}[inputs]:
        assert name in text
    here = traced.lower(lowering_platforms=("cpu",)).as_text()
    assert "_kernel" not in here


@pytest.mark.parametrize(
    ("capability", "expected"), [("9.0", True), ("8.0", True), ("7.5", False), (None, False)], ids=str
)
def test_only_many_examples_of_few_inputs_have_kernels(
    capability: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    attention._has_kernels.cache_clear()
    assert not worth_fusing(7, 4096)
    device = SimpleNamespace() if capability is None else SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    attention._has_kernels.cache_clear()
    assert worth_fusing(7, 4096) == expected
    assert not worth_fusing(7, 32)
    assert not worth_fusing(65, 4096)
    attention._has_kernels.cache_clear()
