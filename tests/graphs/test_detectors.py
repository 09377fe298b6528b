"""Detectors: what they compute, against plain loops, and what they find in worlds whose graphs are known."""

from collections.abc import Callable
from functools import lru_cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import (
    ACTION,
    GRANULARITIES,
    MIXED,
    layout_of,
    numbers_of,
    plain_log_p,
    plain_output,
    random_batch,
    random_network,
    random_transitions,
    small_layout,
)
from jaxtyping import Array, Float
from scipy import stats
from sklearn.metrics import roc_auc_score

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode, forward, likelihood_and_derivative, log_likelihood
from elden.dynamics.network import first_layer, input_features
from elden.dynamics.training import Model, Trainer
from elden.dynamics.variants import Variant
from elden.factors import Continuous, Discrete, Entity, Factors, Granularity, Variable
from elden.graphs.attention import Attention
from elden.graphs.attention_mask import AttentionMask, Kernel
from elden.graphs.base import Detector, Reference
from elden.graphs.gradient import Entries, Gradient
from elden.graphs.input_mask import InputMask, LearntMask
from elden.graphs.pcmi import DropInputs, Pcmi
from elden.graphs.pcmi_sampled import PcmiSampled
from elden.transitions import Transitions

SIZE = 3
REFERENCE = jax.jit(Reference.of, static_argnums=0)


def reference_of(layout: Layout, data: Transitions) -> Reference:
    made: Reference = REFERENCE(layout, data.obs, data.action, data.next_obs)
    return made


def scores_of(
    detector: Detector, layout: Layout, model: Model, batch: Batch, reference: Reference
) -> Float[np.ndarray, "batch dst src"]:
    return np.asarray(jax.jit(partial(detector.scores, layout))(model, batch, reference))


# Each score against its definition.


@pytest.mark.slow
def test_gradient_takes_the_entries_of_each_source() -> None:
    layout = layout_of(MIXED, "variable", "entity", action=Continuous(2))
    net, batch = random_network(layout), random_batch(layout, SIZE)
    data = random_transitions(layout, SIZE)
    derive = jax.jit(lambda: likelihood_and_derivative(layout, net, batch, "log-probability")[1])
    derivative = np.asarray(derive())
    wholes: dict[Entries, Callable[[np.ndarray], np.ndarray]] = {
        "active": lambda x: np.asarray(np.abs(x).sum(1)),
        "norm": lambda x: np.asarray(np.linalg.norm(x, axis=1)),
    }
    for entries, whole in wholes.items():
        detector = Gradient(entries=entries)
        got = scores_of(detector, layout, Model(net, {}), batch, reference_of(layout, data))
        assert got.shape == (SIZE, 5, 6)
        for example in range(SIZE):
            # lamp.on is the third variable, alone in input 1: of its entries one is that of the value that it has.
            value = int(data.obs[example, 3])
            counted = slice(value, value + 1) if entries == "active" else slice(0, 2)
            np.testing.assert_allclose(got[example, :, 2], whole(derivative[1, :, counted, example]), rtol=1e-4)
            # ball.place is continuous, the first two entries of input 0; the action is the last input.
            np.testing.assert_allclose(got[example, :, 0], whole(derivative[0, :, :2, example]), rtol=1e-4)
            np.testing.assert_allclose(got[example, :, 5], whole(derivative[3, :, :2, example]), rtol=1e-4)


@pytest.mark.parametrize("inputs", GRANULARITIES)
def test_pcmi_compares_with_what_is_predicted_without_an_input(inputs: Granularity) -> None:
    layout = layout_of(MIXED, "entity", inputs)
    net, batch, data = random_network(layout), random_batch(layout, SIZE), random_transitions(layout, SIZE)
    got = scores_of(Pcmi(), layout, Model(net, {}), batch, reference_of(layout, data))
    assert got.shape == (SIZE, layout.num_children, layout.num_inputs)
    plain, x = numbers_of(net), np.asarray(batch.inputs, np.float64)
    for child in range(layout.num_children):
        obs, after = np.asarray(data.obs[1]), np.asarray(data.next_obs[1])

        def log_p(lost: int | None, child: int = child, obs: np.ndarray = obs, after: np.ndarray = after) -> float:
            return plain_log_p(layout, plain_output(layout, plain, child, x[..., 1], lost), child, obs, after)

        expected = [log_p(None) - log_p(lost) for lost in range(layout.num_inputs)]
        np.testing.assert_allclose(got[1, child], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("inputs", GRANULARITIES)
def test_pcmi_sampled_averages_over_the_values_of_a_source(inputs: Granularity) -> None:
    layout = layout_of(MIXED, "variable", inputs)
    net, batch, data = random_network(layout), random_batch(layout, SIZE), random_transitions(layout, SIZE)
    seen = random_transitions(layout, 4, seed=9)
    got = scores_of(PcmiSampled(samples=4), layout, Model(net, {}), batch, reference_of(layout, seen))
    plain, obs, after = numbers_of(net), np.asarray(data.obs[0]), np.asarray(data.next_obs[0])

    encode_one = jax.jit(layout.encode)

    def chance(state: np.ndarray, action: int, child: int) -> float:
        """Of what was observed, had the state or the action been this one."""
        x = encode_one(jnp.asarray(state)[None], jnp.array([action], jnp.int32))[..., 0]
        out = plain_output(layout, plain, child, np.asarray(x, np.float64))
        return float(np.exp(plain_log_p(layout, out, child, state, after)))

    action = int(data.action[0])
    for source, kind in enumerate([*(variable.kind for variable in MIXED.variables), ACTION]):
        states, actions = [obs.copy() for _ in range(4)], [action] * 4
        if source == MIXED.num_variables:
            states, actions = [obs] * ACTION.n, list(range(ACTION.n))
        elif isinstance(kind, Discrete):
            states, actions = [obs.copy() for _ in range(kind.n)], [action] * kind.n
            for value, state in enumerate(states):
                state[MIXED.offsets[source]] = value
        else:
            for state, other in zip(states, np.asarray(seen.obs), strict=True):
                state[MIXED.flat_slice(source)] = other[MIXED.flat_slice(source)]
        for child in (0, 2):
            tried = [chance(state, act, child) for state, act in zip(states, actions, strict=True)]
            expected = np.log(chance(obs, action, child)) - np.log(np.mean(tried))
            np.testing.assert_allclose(got[0, child, source], expected, rtol=1e-3, atol=1e-4)


def test_attention_follows_all_ways_to_the_prediction() -> None:
    layout = layout_of(MIXED)
    net, batch = random_network(layout), random_batch(layout, SIZE)
    reference = reference_of(layout, random_transitions(layout, SIZE))
    got = scores_of(Attention(), layout, Model(net, {}), batch, reference)
    output = jax.jit(partial(forward, layout))(net, batch.inputs)
    mix, read = np.asarray(output.mix).mean(1), np.asarray(output.read).mean(1)
    expected = np.zeros_like(got)
    for example, child, source in np.ndindex(got.shape):
        for between in range(layout.num_inputs):
            expected[example, child, source] += read[child, between, example] * mix[child, between, source, example]
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    np.testing.assert_allclose(got.sum(-1), 1.0, rtol=1e-4)


def test_training_for_pcmi_loses_one_input_or_none_with_equal_chance() -> None:
    layout = small_layout()
    features = jnp.ones((layout.num_children, 8, layout.num_inputs, 4000))
    inputs = jnp.zeros((layout.num_inputs, layout.input_entries, 4000))
    lose = jax.jit(partial(DropInputs().modulate, layout, {}, inputs))
    modulation, cost = lose(features, jax.random.key(0), jnp.int32(0))
    kept = np.asarray(modulation.features)
    assert (kept == kept[:1]).all()
    lost = (1 - kept[0]).astype(int)
    assert set(lost.sum(0)) == {0, 1}
    counts = [*lost.sum(1), (lost.sum(0) == 0).sum()]
    assert stats.chisquare(counts).pvalue > 1e-3
    assert float(cost) == 0
    unused, _ = DropInputs().modulate(layout, {}, inputs, features, None, jnp.int32(0))
    assert unused.features is None


def test_a_closed_mask_hides_an_input_and_an_open_one_does_nothing() -> None:
    layout, mask = small_layout(), LearntMask()
    extra = jax.jit(mask.init, static_argnums=1)(jax.random.key(0), layout)
    extra["out"] = jnp.zeros_like(extra["out"])
    bias = jnp.full_like(extra["bias"], 50.0)
    batch, net = random_batch(layout, SIZE), random_network(layout)
    other = random_batch(layout, SIZE, seed=5)
    reference = reference_of(layout, random_transitions(layout, SIZE))

    @jax.jit
    def predicted(
        bias: Float[Array, "child input"], inputs: Float[Array, "input entry batch"]
    ) -> Float[Array, "child batch"]:
        own = {**extra, "bias": bias}
        features = jnp.zeros((layout.num_children, 8, layout.num_inputs, SIZE))
        modulation, _ = mask.modulate(layout, own, inputs, features, None, jnp.int32(0))
        return log_likelihood(layout, forward(layout, net, inputs, modulation).out, batch)

    plain = jax.jit(lambda: log_likelihood(layout, forward(layout, net, batch.inputs).out, batch))()
    np.testing.assert_allclose(predicted(bias, batch.inputs), plain, rtol=1e-5)
    closed = bias.at[:, -1].set(-50.0)
    changed = batch.inputs.at[-1].set(other.inputs[-1])
    assert np.abs(changed - batch.inputs).max() == 1
    np.testing.assert_allclose(predicted(closed, changed), predicted(closed, batch.inputs), rtol=1e-6)
    assert np.abs(predicted(bias, changed) - plain).max() > 1e-4
    scores = scores_of(InputMask(mask), layout, Model(net, {**extra, "bias": closed}), batch, reference)
    np.testing.assert_allclose(scores, np.broadcast_to([1.0, 1.0, 0.0], scores.shape), atol=1e-6)


def test_seeing_inputs_has_a_price_that_rises() -> None:
    layout, mask = small_layout(), LearntMask(coefficient=0.5, start=10, stop=20)
    extra = jax.jit(mask.init, static_argnums=1)(jax.random.key(0), layout)
    extra = {**extra, "out": jnp.zeros_like(extra["out"]), "bias": jnp.full_like(extra["bias"], 50.0)}
    features = jnp.ones((layout.num_children, 8, layout.num_inputs, SIZE))
    pay = jax.jit(partial(mask.modulate, layout, extra, random_batch(layout, SIZE).inputs, features, jax.random.key(0)))
    seen = layout.num_children * layout.num_inputs
    for step, part in ((10, 0.0), (15, 0.5), (20, 1.0)):
        np.testing.assert_allclose(pay(jnp.int32(step))[1], 0.5 * part * seen, rtol=1e-5)


def test_links_are_those_of_the_kernel() -> None:
    """Unit signatures at angles of 0, 90 and 180 degrees to the first input's."""
    kernel = Kernel(signature=2, bandwidth=2.0)
    extra = {"signature": jnp.eye(2)[None], "bandwidth": jnp.log(jnp.array([2.0]))}
    features = jnp.array([[3.0, 0.5, 0.0, -2.0], [0.0, 0.0, 1.0, 0.0]])[None, :, :, None]
    links = np.asarray(kernel.links(extra, features))[0, 0, :, 0]
    np.testing.assert_allclose(links, [1.0, 1.0, np.exp(-0.5), np.exp(-1.0)], rtol=1e-4)
    alone = Factors((Entity("a", (Variable("x", Discrete(2)),)),))
    layout = Layout(alone, Discrete(2), NetworkConfig(features=(2,), mlp=(2,)))
    modulation, _ = kernel.modulate(layout, extra, jnp.zeros((2, 2, 1)), features[:, :, :2], None, jnp.int32(0))
    assert modulation.mix is not None
    np.testing.assert_allclose(jnp.exp(modulation.mix).sum(2), 1.0, rtol=1e-4)


def test_an_attention_mask_follows_all_linked_ways_to_the_prediction() -> None:
    """Links, normalised over sources, from the child's own input to every other one and from there to the source."""
    layout, detector = layout_of(MIXED), AttentionMask(Kernel(signature=8))
    net, batch = random_network(layout), random_batch(layout, SIZE)
    extra = detector.kernel.init(jax.random.key(0), layout)
    reference = reference_of(layout, random_transitions(layout, SIZE))
    got = scores_of(detector, layout, Model(net, extra), batch, reference)
    features = input_features(layout, net, first_layer(net, batch.inputs))
    links = np.asarray(detector.kernel.links(extra, features))
    assert links.std() > 0.01
    expected = np.zeros_like(got)
    for example, child, source in np.ndindex(got.shape):
        here = links[child, :, :, example]
        (own,) = np.flatnonzero(layout.query[child])
        for between in range(layout.num_inputs):
            first, second = here[own, between] / here[own].sum(), here[between, source] / here[between].sum()
            expected[example, child, source] += first * second
    np.testing.assert_allclose(got, expected, rtol=1e-4)


# A world whose dependencies are switched on and off.

NUM_UPDATES = 500
MEMBERS = 4
"""A score is the mean over members: a single small network can end up in a bad place."""
SWITCHED = Factors(
    (
        Entity("switch", (Variable("on", Discrete(2)),)),
        Entity("box", (Variable("value", Discrete(3)), Variable("colour", Discrete(2)))),
        Entity("dial", (Variable("value", Discrete(3)),)),
    )
)
TURNED = Factors(
    (
        Entity("switch", (Variable("on", Continuous(1, -1, 1)),)),
        Entity("box", (Variable("value", Continuous(1, -5, 5)), Variable("colour", Discrete(2)))),
        Entity("dial", (Variable("value", Continuous(1, -2, 2)),)),
    )
)
INPUTS = ["entity", pytest.param("variable", marks=pytest.mark.slow)]
BOX, DIAL = 1, 3  # as destinations; the dial is the last source but one at both granularities


def switched_world(size: int, seed: int) -> tuple[Transitions, np.ndarray]:
    """The switch becomes what the action says; the box copies the dial where the switch is on; the rest stays."""
    rng = np.random.default_rng(seed)
    on, value, colour, dial = (rng.integers(0, n, size) for n in (2, 3, 2, 3))
    action = rng.integers(0, 2, size)
    after = [action, np.where(on == 1, dial, value), colour, dial]
    obs, next_obs = (jnp.asarray(np.stack(x, -1), jnp.int32) for x in ([on, value, colour, dial], after))
    return Transitions(obs, jnp.asarray(action, jnp.int32), next_obs), on == 1


def turned_world(size: int, seed: int) -> tuple[Transitions, np.ndarray]:
    """The same with real numbers: where the switch is above 0, the dial's double is added to the box."""
    rng = np.random.default_rng(seed)
    on, value, dial, action = (rng.uniform(-1, 1, size) for _ in range(4))
    dial, colour = 2 * dial, rng.integers(0, 2, size)
    after = [action, value + 2 * dial * (on > 0), colour, dial]
    obs, next_obs = (jnp.asarray(np.stack(x, -1), jnp.float32) for x in ([on, value, colour, dial], after))
    return Transitions(obs, jnp.asarray(action, jnp.float32), next_obs), on > 0


def true_graph(on: np.ndarray, copies: bool) -> np.ndarray:
    """Variables by variables and the action. A box that copies the dial does not depend on its own past."""
    graph = np.zeros((len(on), 4, 5), bool)
    graph[:, 0, 4] = graph[:, 2, 2] = graph[:, DIAL, 3] = True
    graph[:, BOX, 1] = ~on if copies else True
    graph[:, BOX, 3] = on
    return graph


def switch_layout(inputs: Granularity, factors: Factors = SWITCHED) -> Layout:
    action = Discrete(2) if factors == SWITCHED else Continuous(1, -1, 1)
    network = NetworkConfig(inputs=inputs, features=(16, 16), heads=2, head_size=4, mlp=(16, 16))
    return Layout(factors, action, network)


@lru_cache
def trained(layout: Layout, variant: Variant, penalised: bool, learns: bool = True) -> Model:
    """A model of the switched or of the turned world, or what it was before it learnt."""
    discrete = layout.factors == SWITCHED
    config = TrainConfig(
        learning_rate=2e-2 if discrete else 1e-2,
        mixup=0.5 if discrete else 0.0,
        penalty=0.01,
        penalty_start=NUM_UPDATES // 4,
        penalty_stop=NUM_UPDATES // 2,
    )
    trainer = Trainer(layout, config, variant, MEMBERS)
    data, _ = (switched_world if discrete else turned_world)(2048, 0)
    train = partial(trainer.train, num_updates=NUM_UPDATES, derivatives=penalised, mixup=discrete)
    state = jax.jit(trainer.init)(jax.random.key(0))
    if learns:
        state, metrics = jax.jit(train)(state, trainer.settings(), data, jax.random.key(1))
        assert float(metrics["loss/skipped"]) == 0
    model: Model = state.model
    return model


@lru_cache
def program_of(detector: Detector, layout: Layout, learns: bool = True) -> jax.stages.Wrapped:
    model = trained(layout, detector.variant, detector.penalised, learns)  # type: ignore[arg-type]  # variants are frozen
    seen, _ = (switched_world if layout.factors == SWITCHED else turned_world)(32, 7)
    reference = reference_of(layout, seen)

    def scores(data: Transitions) -> Float[Array, "time dst src"]:
        batch = encode(layout, data.obs, data.action, data.next_obs)
        by_member = jax.vmap(lambda model: detector.scores(layout, model, batch, reference))(model)
        return jnp.mean(by_member, axis=0)

    return jax.jit(scores)


def measured(
    detector: Detector, layout: Layout, own: bool = True, learns: bool = True
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """ROC-AUC over all edges; that of box ← dial alone; its scores where the switch is on, and where it is off.

    `own` says whether edges from a node to itself count, `learns` whether the model has learnt anything.

    Whether the box depends on the switch itself is a matter of definition (its value matters, but only if the box and
    the dial differ), so this edge is left out. Where the box's change is predicted, as with real numbers, its own past
    is no input to the prediction, so then the diagonal is left out as well.
    """
    copies = layout.factors == SWITCHED
    data, on = (switched_world if copies else turned_world)(256, 1)
    scores = np.asarray(program_of(detector, layout, learns)(data))  # type: ignore[arg-type]  # detectors are frozen
    sources = detector.sources(layout)
    truth = np.asarray(layout.factors.reduce_graph(true_graph(on, copies), "variable", sources))
    kept = np.ones(truth.shape[1:], bool)
    kept[BOX, 0] = False
    if not (copies and own):
        owners = layout.factors.entity_of if sources == "entity" else range(4)
        kept[range(4), list(owners)] = False
    edge = scores[:, BOX, -2]
    auc = roc_auc_score(truth[:, kept].ravel(), scores[:, kept].ravel())
    return float(auc), float(roc_auc_score(on, edge)), edge[on], edge[~on]


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("detector", [Gradient(), Gradient(of="probability"), Gradient(entries="norm")])
def test_gradient_finds_the_switched_graph(detector: Detector, inputs: Granularity) -> None:
    auc, edge, on, off = measured(detector, switch_layout(inputs))
    assert auc > 0.95
    assert edge > 0.95
    assert np.median(on) > 2 * np.median(off)


@pytest.mark.parametrize("inputs", INPUTS)
@pytest.mark.parametrize("detector", [Pcmi(), pytest.param(PcmiSampled(), marks=pytest.mark.slow)])
def test_mutual_information_switches_exactly_with_the_switch(detector: Detector, inputs: Granularity) -> None:
    auc, edge, on, off = measured(detector, switch_layout(inputs))
    assert auc > 0.99
    assert edge == 1
    assert on.min() > off.max()


@pytest.mark.slow
@pytest.mark.parametrize("inputs", INPUTS)
def test_attention_is_better_than_chance(inputs: Granularity) -> None:
    """It says where the network looks, which is not always what it uses: no better bound can be given."""
    before, after = (
        measured(Attention(), switch_layout(inputs), own=False, learns=learns)[0] for learns in (False, True)
    )
    assert after > max(0.8, before + 0.3)


MASK = LearntMask(coefficient=0.05, start=NUM_UPDATES // 4, stop=NUM_UPDATES // 2, cooling=NUM_UPDATES)


@pytest.mark.slow
def test_a_mask_with_a_price_closes_what_is_not_needed() -> None:
    auc, _, on, off = measured(InputMask(MASK), switch_layout("entity"))
    assert auc > 0.95
    assert np.median(on) > 0.9 > np.median(off)


@pytest.mark.slow
def test_an_attention_mask_puts_links_in_order() -> None:
    """Nothing but noise pushes links apart; they stay near each other, in the right order."""
    before, after = (
        measured(AttentionMask(), switch_layout("entity"), own=False, learns=learns)[0] for learns in (False, True)
    )
    assert after > max(0.9, before + 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", GRANULARITIES)
@pytest.mark.parametrize("detector", [Gradient(), Pcmi(), PcmiSampled()])
def test_real_numbers_switch_too(detector: Detector, inputs: Granularity) -> None:
    auc, edge, on, off = measured(detector, switch_layout(inputs, TURNED))
    assert auc > 0.9
    assert edge > 0.9
    assert np.median(on) > 10 * np.median(off)


@pytest.mark.parametrize(
    "detector",
    [
        Gradient(),
        Pcmi(),
        Attention(),
        *(
            pytest.param(detector, marks=pytest.mark.slow)
            for detector in (PcmiSampled(), InputMask(MASK), AttentionMask())
        ),
    ],
)
def test_a_graph_is_of_its_own_transition_only(detector: Detector) -> None:
    """Graphs are read on unmixed data: what else is in the batch does not matter."""
    program = program_of(detector, switch_layout("entity"))  # type: ignore[arg-type]  # detectors are frozen
    (data, _), (other, _) = switched_world(256, 1), switched_world(256, 2)
    both: Transitions = jax.tree.map(lambda a, b: jnp.concatenate([a[:128], b[128:]])[::-1], data, other)
    np.testing.assert_allclose(program(both)[::-1][:128], program(data)[:128], rtol=1e-4, atol=1e-5)
