"""The networks against plain loops, and their derivatives against finite differences."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import (
    GRANULARITIES,
    MIXED,
    Numbers,
    layout_of,
    numbers_of,
    plain_log_p,
    plain_output,
    random_batch,
    random_network,
    random_transitions,
)
from jaxtyping import Array, Float, Int

from elden.dynamics import products
from elden.dynamics.config import DerivativeOf
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import (
    Batch,
    forward,
    likelihood_and_derivative,
    log_likelihood,
    slot_errors,
    slot_log_likelihood,
)
from elden.dynamics.network import Network
from elden.factors import Continuous, Granularity
from elden.nn import Activation

SIZE = 3
States = tuple[np.ndarray, np.ndarray]
"""One flat state and the next one."""

CASES: list[tuple[Granularity, Granularity, Activation]] = [
    ("variable", "entity", "relu"),
    ("entity", "entity", "tanh"),
    ("variable", "variable", "silu"),
    ("entity", "variable", "relu"),
]


@pytest.mark.parametrize(("children", "inputs", "activation"), CASES)
def test_outputs_are_those_of_plain_loops(children: Granularity, inputs: Granularity, activation: Activation) -> None:
    layout = layout_of(MIXED, children, inputs, activation, Continuous(2))
    net, batch = random_network(layout), random_batch(layout, SIZE)
    got = np.asarray(jax.jit(partial(forward, layout))(net, batch.inputs).out)
    plain = numbers_of(net)
    for child in range(layout.num_children):
        for example in range(SIZE):
            expected = plain_output(layout, plain, child, np.asarray(batch.inputs[..., example], np.float64))
            np.testing.assert_allclose(got[child, ..., example], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("children", GRANULARITIES)
def test_likelihoods_and_errors_are_those_of_plain_loops(children: Granularity) -> None:
    layout = layout_of(MIXED, children)
    batch, transitions = random_batch(layout, SIZE), random_transitions(layout, SIZE)
    rng = np.random.default_rng(1)
    shape = (layout.num_children, layout.num_slots, layout.num_entries, SIZE)
    out = jnp.asarray(rng.normal(size=shape), jnp.float32)
    got = log_likelihood(layout, out, batch)
    errors = slot_errors(layout, slot_log_likelihood(layout, out, batch))
    for example in range(SIZE):
        obs, after = (np.asarray(x[example], np.float64) for x in (transitions.obs, transitions.next_obs))
        one = np.asarray(out[..., example], np.float64)
        for child in range(layout.num_children):
            np.testing.assert_allclose(got[child, example], plain_log_p(layout, one[child], child, obs, after), 1e-5)
        # The place of the ball is variable 0 (two components, columns 0 and 1), held is variable 1 (three values).
        squared = ((after[:2] - obs[:2] - one[0, 0, :2]) ** 2).sum()
        np.testing.assert_allclose(errors[0, 0, example], squared, rtol=1e-4)
        child, slot = layout.child_of[1]
        logits = one[child, slot, :3]
        chance = np.exp(logits[int(after[2])]) / np.exp(logits).sum()
        np.testing.assert_allclose(errors[child, slot, example], 1 - chance, rtol=1e-4)
    assert not np.asarray(errors)[~layout.slot_mask].any()


def log_p_of(layout: Layout, net: Numbers, child: int, inputs: np.ndarray, states: States) -> float:
    """`log p̂` of one child; continuous variables are taken from the inputs, not from the state."""
    obs, next_obs = states
    read = obs.copy()
    for index, (row, first, size) in enumerate(layout.source_entries[:-1]):
        if isinstance(layout.factors.variables[index].kind, Continuous):
            read[layout.factors.flat_slice(index)] = inputs[row, first : first + size]
    return plain_log_p(layout, plain_output(layout, net, child, inputs), child, read, next_obs)


def differences(
    value: Callable[[np.ndarray], float], x: np.ndarray, chosen: np.ndarray, step: float = 1e-5
) -> np.ndarray:
    """Central finite differences of a number with respect to the chosen entries of an array."""
    slopes = np.zeros_like(x)
    for index in map(tuple, np.argwhere(chosen)):
        up, down = x.copy(), x.copy()
        up[index] += step
        down[index] -= step
        slopes[index] = (value(up) - value(down)) / (2 * step)
    return slopes


def derivative_of(
    layout: Layout,
    net: Numbers,
    child: int,
    inputs: np.ndarray,
    states: States,
    of: DerivativeOf,
) -> np.ndarray:
    """What `likelihood_and_derivative` should say of one child and one example, by finite differences in float64."""

    def value(x: np.ndarray) -> float:
        log_p = log_p_of(layout, net, child, x, states)
        return float(np.exp(log_p)) if of == "probability" else log_p

    return differences(value, inputs, layout.input_source >= 0)


@pytest.mark.parametrize(
    ("children", "inputs", "activation", "of"),
    [(*CASES[0], "probability"), (*CASES[1], "log-probability"), (*CASES[2], "probability")],
)
def test_derivatives_are_those_of_finite_differences(
    children: Granularity, inputs: Granularity, activation: Activation, of: DerivativeOf
) -> None:
    layout = layout_of(MIXED, children, inputs, activation)
    net, batch, transitions = random_network(layout), random_batch(layout, 2), random_transitions(layout, 2)
    log_p, derivative = jax.jit(lambda net, batch: likelihood_and_derivative(layout, net, batch, of))(net, batch)
    assert derivative.shape == (layout.num_inputs, layout.num_children, layout.input_entries, 2)
    plain = numbers_of(net)
    for example in range(2):
        states = tuple(np.asarray(x[example], np.float64) for x in (transitions.obs, transitions.next_obs))
        inputs_64 = np.asarray(batch.inputs[..., example], np.float64)
        for child in range(layout.num_children):
            expected = derivative_of(layout, plain, child, inputs_64, (states[0], states[1]), of)
            scale = np.abs(expected).max()
            assert scale > 1e-4
            np.testing.assert_allclose(derivative[:, child, :, example], expected, rtol=1e-3, atol=1e-3 * scale)
            expected_log = log_p_of(layout, plain, child, inputs_64, (states[0], states[1]))
            np.testing.assert_allclose(log_p[child, example], expected_log, rtol=1e-4)


@pytest.mark.parametrize("of", ["probability", "log-probability"])
def test_second_derivatives_are_those_of_finite_differences(of: DerivativeOf) -> None:
    """The gradient of `Σ|∂p̂/∂s|` with respect to parameters, along random directions of every array."""
    layout = layout_of(MIXED, "entity", "entity", "tanh")
    net, batch, transitions = random_network(layout), random_batch(layout, 1), random_transitions(layout, 1)

    def slopes(net: Network) -> Float[Array, ""]:
        return jnp.sum(jnp.abs(likelihood_and_derivative(layout, net, batch, of)[1]))

    gradient = numbers_of(jax.jit(jax.grad(slopes))(net))
    states = (np.asarray(transitions.obs[0], np.float64), np.asarray(transitions.next_obs[0], np.float64))
    inputs = np.asarray(batch.inputs[..., 0], np.float64)
    real = (layout.input_source >= 0)[:, None]  # the derivative with respect to padding is not a part of the network

    def plain_slopes(net: Numbers) -> float:
        parts = (derivative_of(layout, net, child, inputs, states, of) for child in range(layout.num_children))
        return float(sum(np.abs(part).sum() for part in parts))

    rng = np.random.default_rng(0)
    plain, step = numbers_of(net), 1e-4
    for name, array in plain.items():
        direction = rng.normal(size=array.shape) * (real if name == "first.weight" else 1.0)
        direction /= np.linalg.norm(direction)
        up, down = ({**plain, name: array + sign * step * direction} for sign in (1, -1))
        expected = (plain_slopes(up) - plain_slopes(down)) / (2 * step)
        scale = float(np.linalg.norm(gradient[name]))
        np.testing.assert_allclose((gradient[name] * direction).sum(), expected, rtol=1e-2, atol=1e-3 * scale + 1e-6)


def test_one_backward_pass_is_one_for_each_child() -> None:
    layout = layout_of(MIXED, "entity")
    net, batch = random_network(layout), random_batch(layout, SIZE)
    _, derivative = jax.jit(lambda: likelihood_and_derivative(layout, net, batch, "log-probability"))()

    row, entry, *place = layout.own_components

    @jax.jit
    def of_child(inputs: Float[Array, "input entry batch"], child: Int[Array, ""]) -> Float[Array, ""]:
        read = replace(batch, current=batch.current.at[tuple(place)].set(inputs[row, entry]))
        return jnp.sum(log_likelihood(layout, forward(layout, net, inputs).out, read)[child])

    for child in range(layout.num_children):
        alone = jax.grad(of_child)(batch.inputs, jnp.int32(child))
        np.testing.assert_allclose(derivative[:, child], alone, rtol=1e-4, atol=1e-6)


def test_children_share_nothing() -> None:
    """Neither a child's likelihood nor its derivative moves with another child's parameters."""
    layout = layout_of(MIXED)
    net, batch = random_network(layout), random_batch(layout, SIZE)
    child = 1

    def both(net: Network) -> Float[Array, ""]:
        log_p, derivative = likelihood_and_derivative(layout, net, batch, "probability")
        return jnp.sum(log_p[child]) + jnp.sum(jnp.abs(derivative[:, child]))

    gradient = numbers_of(jax.jit(jax.grad(both))(net))
    for name, array in gradient.items():
        if name.startswith("first"):
            by_child = array.reshape(layout.num_inputs, layout.num_children, -1).swapaxes(0, 1)
        elif name.startswith("features"):
            by_child = array.swapaxes(0, 1)
        else:
            by_child = array
        size = np.abs(by_child).reshape(layout.num_children, -1).max(axis=1)
        assert size[child] > 0, name
        assert not np.delete(size, child).any(), name


def test_attention_is_a_distribution_over_inputs() -> None:
    layout = layout_of(MIXED)
    output = jax.jit(partial(forward, layout))(random_network(layout), random_batch(layout, SIZE).inputs)
    np.testing.assert_allclose(output.mix.sum(3), 1.0, rtol=1e-5)
    np.testing.assert_allclose(output.read.sum(2), 1.0, rtol=1e-5)


def test_soft_targets_give_the_expectation_of_log_likelihoods() -> None:
    layout = layout_of(children="entity")
    first, second = random_batch(layout, SIZE, 1), random_batch(layout, SIZE, 2)
    shape = (layout.num_children, layout.num_slots, layout.num_entries, SIZE)
    out = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    between = Batch(first.inputs, 0.3 * first.target + 0.7 * second.target, first.current)
    got = slot_log_likelihood(layout, out, between)
    mean = 0.3 * slot_log_likelihood(layout, out, first) + 0.7 * slot_log_likelihood(layout, out, second)
    chosen = layout.discrete
    assert chosen.sum() == 3
    np.testing.assert_allclose(np.asarray(got)[chosen], np.asarray(mean)[chosen], rtol=1e-5)


Product = Callable[[Float[Array, "..."], Float[Array, "..."]], Float[Array, "..."]]
PRODUCTS: dict[str, tuple[Product, str, tuple[int, ...], tuple[int, ...]]] = {
    "times": (products.times, "sij,sjk->sik", (2, 3, 4), (2, 4, 5)),
    "transpose_times": (products.transpose_times, "sji,sjk->sik", (2, 4, 3), (2, 4, 5)),
    "times_transpose": (products.times_transpose, "sij,skj->sik", (2, 3, 4), (2, 5, 4)),
    "pair_products": (products.pair_products, "chidb,chisb->chdsb", (2, 2, 3, 1, 4), (2, 2, 3, 5, 4)),
    "pair_products-long": (products.pair_products, "chidb,chisb->chdsb", (1, 1, 66, 2, 2), (1, 1, 66, 3, 2)),
    "attended": (products.attended, "chdsb,chisb->chidb", (2, 2, 1, 5, 4), (2, 2, 3, 5, 4)),
    "attended-long": (products.attended, "chdsb,chisb->chidb", (1, 1, 2, 70, 2), (1, 1, 2, 70, 2)),
    "attended_back": (products.attended_back, "chdsb,chidb->chisb", (2, 2, 4, 5, 4), (2, 2, 3, 4, 4)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_and_their_first_two_derivatives_are_those_of_einsum(name: str) -> None:
    product, formula, left, right = PRODUCTS[name]
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in (left, right))

    def scalar(product: Product, a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, ""]:
        return jnp.sum(jnp.sin(product(a, b)))

    def second(product: Product, a: Float[Array, "..."], b: Float[Array, "..."]) -> Float[Array, ""]:
        slopes = jax.grad(partial(scalar, product), argnums=(0, 1))(a, b)
        return sum((jnp.sum(jnp.cos(3 * slope)) for slope in slopes), start=jnp.zeros(()))

    plain = partial(jnp.einsum, formula, precision="highest")
    np.testing.assert_allclose(product(a, b), plain(a, b), rtol=1e-5, atol=1e-5)
    for function in (scalar, second):
        got, expected = (jax.jit(jax.grad(partial(function, each), argnums=(0, 1)))(a, b) for each in (product, plain))
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * (1 + float(np.abs(other).max())))


def test_a_child_reads_its_own_input_by_any_way() -> None:
    chosen = (2, 0, 2, 1)
    x, g, other = (
        jax.random.normal(jax.random.key(i), shape) for i, shape in enumerate(((4, 5, 3, 6), (4, 5, 6), (4, 5, 3, 6)))
    )
    expected = np.stack([np.asarray(x)[child, :, input_] for child, input_ in enumerate(chosen)])
    for way in (products.pick, products.pick_by_sum, products.pick_by_index):
        np.testing.assert_array_equal(way(x, chosen), expected)
    placed = products.place(g, chosen, 3)
    assert float(jnp.sum(placed * x)) == pytest.approx(float(jnp.sum(g * expected)), rel=1e-5)

    def slope(x: Float[Array, "child feature input batch"]) -> Float[Array, ""]:
        return jnp.sum(other * jax.grad(lambda x: jnp.sum(products.pick(x, chosen) ** 3))(x))

    # Of Σ other · 3 x² over what is picked: 6 x other there, and 0 elsewhere.
    picked = products.place(products.pick(6 * x * other, chosen), chosen, 3)
    np.testing.assert_allclose(jax.grad(slope)(x), picked, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("length", [1, 5, 70])
def test_softmax_has_the_derivatives_of_softmax(length: int) -> None:
    rng = np.random.default_rng(0)
    logits, slope = (jnp.asarray(rng.normal(size=(2, length, 3)), jnp.float32) for _ in range(2))

    def curved(function: Callable[..., Float[Array, "..."]], x: Float[Array, "..."]) -> Float[Array, ""]:
        """Depends on the first derivative, so that its own is a second one."""
        back = jax.grad(lambda x: jnp.sum(slope * function(x, 1) ** 2))(x)
        return jnp.sum(back**2)

    for function in (lambda f, x: f(x, 1), curved, jax.grad(curved, argnums=1)):
        ours, theirs = (function(each, logits) for each in (products.softmax, jax.nn.softmax))
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert np.isfinite(products.softmax(logits * 1e4, 1)).all()


def test_softmax_keeps_its_precision_in_half_precision() -> None:
    rng = np.random.default_rng(0)
    logits, slope = (jnp.asarray(rng.normal(size=(1, 12, 64)), jnp.bfloat16) for _ in range(2))
    back = jax.vjp(lambda x: products.softmax(x, 1), logits)[1](slope)[0]
    assert back.dtype == jnp.bfloat16
    exact = jax.vjp(lambda x: jax.nn.softmax(x, 1), logits.astype(jnp.float32))[1](slope.astype(jnp.float32))[0]
    # Half precision has eight bits; a sum of twelve in it would lose three more.
    np.testing.assert_allclose(back.astype(jnp.float32), exact, atol=6e-3 * float(jnp.abs(exact).max()))
