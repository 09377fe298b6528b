"""Evaluation: rates and edges against a slow count of the same episodes, what is written, and what is refused."""

import csv
import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Bool, Int, Key
from PIL import Image

import elden
from elden.agents import PpoConfig
from elden.agents.ppo import ActorCritic
from elden.bonuses import BonusConfig, EnsembleConfig, Space, make_bonus
from elden.bonuses.model_based import ModelState
from elden.bonuses.reading import MajorityReader, models_of, reader_of
from elden.cli import main, steps
from elden.cli.demo import Demo
from elden.cli.evaluate import density_warning
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.factors import Discrete
from elden.storage.folder import RunFolderError
from elden.storage.resumable import Deadline, OutOfTimeError
from elden.training import evaluation
from elden.training.algorithm import Loop
from elden.training.config import LoopConfig, TrainingConfig
from elden.training.edges import Edge, Edges
from elden.training.evaluation import Evaluation, EvaluationConfig, Models, Outcomes, evaluate, play
from elden.training.run import TrainingRun
from elden.transitions import Transitions
from elden.viewing.curves import Curve, learning_curves
from elden.viewing.video import graph_video
from elden.worlds.base import Transition, WorldState

WORLD = elden.make("chain", depth=2, inert=0, noisy=1, intricate=0, max_steps=10, terminate_on_success=True)
TINY = TrainingConfig(
    bonus=BonusConfig(
        ensemble=EnsembleConfig(
            network=NetworkConfig(children="entity", features=(8,), mlp=(8,), heads=1, head_size=4),
            train=TrainConfig(mixup=0.0, penalty=0.0, batch_size=8),
            members=3,
            capacity=64,
            updates=2,
            chunk=16,
        ),
        threshold=0.1,
    ),
    ppo=PpoConfig(minibatch_size=8, epochs=1, hidden=(8,)),
    loop=LoopConfig(num_envs=4, rollout=6, steps=4 * 6 * 2, warmup_steps=0),
    seeds=2,
    seed=5,
)
EPISODES = 5


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> TrainingRun:
    """A training run that was stopped halfway; what it has kept is read once."""
    folder = tmp_path_factory.mktemp("evaluating") / "run"
    with pytest.raises(OutOfTimeError):
        TrainingRun(WORLD, TINY, folder, deadline=Deadline.after(0)).run()
    training = TrainingRun.open(folder)
    kept = training.kept()
    training.kept = lambda: kept  # type: ignore[method-assign]
    return training


@pytest.fixture
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two episodes of both agents be played at a time."""
    monkeypatch.setattr(evaluation, "_MOST_STEPS", 2 * 2 * WORLD.max_steps)


@partial(jax.jit, static_argnums=0)
def choose(loop: Loop[Any], network: ActorCritic, key: Key[Array, ""], state: WorldState) -> Int[Array, ""]:
    """What an agent does, by its probabilities."""
    elapsed = state.elapsed.astype(jnp.float32) / loop.world.max_steps
    inputs = loop.actor.inputs(WORLD.observe(state), elapsed)
    action: Int[Array, ""] = loop.agent.actions.sample(key, network.numbers(inputs))
    return action


def one_by_one(training: TrainingRun, agent: int, number: int) -> list[tuple[WorldState, Transition]]:
    """An episode step by step, with what was there before each step."""
    kept = training.kept()
    assert kept is not None
    network: ActorCritic = jax.tree.map(lambda leaf: leaf[agent], kept.tree.policy.network)
    key = jax.random.fold_in(jax.random.key(0), evaluation._APART)
    reset_key, step_key = jax.random.split(jax.random.fold_in(key, number))
    state, taken = steps.reset(WORLD, reset_key), []
    for time in range(WORLD.max_steps):
        act, chance = jax.random.split(jax.random.fold_in(step_key, time))
        after, transition = steps.step(WORLD, chance, state, choose(training.loop, network, act, state))
        taken.append((state, transition))
        if transition.done:
            break
        state = after
    return taken


@partial(jax.jit, static_argnums=0)
def votes_of(reader: MajorityReader, state: ModelState, seen: Transitions) -> Bool[Array, "member step dst src"]:
    """What each member sees, one after the other."""
    ensemble = reader.models.ensemble
    batch, reference = ensemble.encode(seen), ensemble.reference(state.ensemble)
    members = [jax.tree.map(lambda leaf, m=m: leaf[m], state.ensemble.train.model) for m in range(3)]
    scores = [reader.detector.scores(ensemble.layout, member, batch, reference) for member in members]
    return jnp.stack(scores) >= 0.1


def majority(training: TrainingRun, agent: int, taken: list[Transition]) -> Bool[np.ndarray, "step dst src"]:
    """The graphs that more than half of an agent's models see."""
    kept = training.kept()
    assert kept is not None
    found = models_of(training.loop.bonus, jax.tree.map(lambda leaf: leaf[agent], kept.tree.bonus))
    assert found is not None
    reader = reader_of(found[0], "gradient")
    assert reader is not None
    filled = [*taken, *taken[-1:] * (EPISODES * WORLD.max_steps - len(taken))]  # of one shape for both agents
    parts = (np.stack([getattr(step, part) for step in filled]) for part in ("obs", "action", "next_obs"))
    votes = votes_of(reader, found[1], Transitions(*map(jnp.asarray, parts)))
    return np.asarray(np.sum(votes, axis=0)[: len(taken)] >= 2)


@pytest.mark.usefixtures("few_at_a_time")
def test_rates_and_edges_are_those_of_a_slow_count(stopped: TrainingRun) -> None:
    told: list[tuple[str, int, int]] = []
    found = evaluate(stopped, EvaluationConfig(EPISODES), lambda *words: told.append(words))
    assert (found.env_steps, found.seeds) == (24, (5, 6))
    assert told[-1] == ("playing", EPISODES, EPISODES)
    factors, names = WORLD.factors, WORLD.factors.source_names("entity")
    solved = []
    for agent in range(2):
        episodes = [one_by_one(stopped, agent, number) for number in range(EPISODES)]
        success = [bool(episode[-1][1].success) for episode in episodes]
        solved += success
        rates: dict[str, Any] = found.rates(agent)
        assert rates["success_rate"] == rates["success_rate_solvable"] == np.mean(success)
        assert rates["mean_length"] == np.mean([len(episode) for episode in episodes])
        for stage, name in enumerate(WORLD.stage_names):
            assert rates["stages"][name] == np.mean([episode[-1][1].stages[stage] for episode in episodes])
        flat = [step for episode in episodes for _, step in episode]
        seen = majority(stopped, agent, flat)
        graphs = np.stack([step.graph for step in flat])
        truth = np.asarray(factors.reduce_graph(graphs, "entity", "variable"))
        for edge in found.finest.rows(agent):
            i, j = factors.entity_index(edge.dst), factors.source_names("variable").index(edge.src)
            assert (edge.steps, edge.true, edge.predicted) == (len(flat), truth[:, i, j].sum(), seen[:, i, j].sum())
            assert edge.both == (truth & seen)[:, i, j].sum()
            assert edge.agreement == pytest.approx(np.mean(truth[:, i, j] == seen[:, i, j]))
        between = np.asarray(factors.reduce_graph(graphs))
        ends = np.cumsum([len(episode) for episode in episodes])
        for edge in found.entities.rows(agent):
            i, j = factors.entity_index(edge.dst), names.index(edge.src)
            assert edge.true == between[:, i, j].sum()
            assert edge.true_episodes == sum(part.any() for part in np.split(between[:, i, j], ends[:-1]))
    assert 0 < sum(solved) < len(solved), "the case shows both"
    together: dict[str, Any] = found.rates()
    assert together["success_rate"] == np.mean(solved)
    assert found.entities.true is not None
    assert sum(edge.true or 0 for edge in found.entities.rows()) == found.entities.true.sum()


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.parametrize("counted", [1, 4])
def test_edges_are_counted_in_the_first_episodes_alone(stopped: TrainingRun, counted: int) -> None:
    some = evaluate(stopped, EvaluationConfig(EPISODES, graph_episodes=counted))
    first = evaluate(stopped, EvaluationConfig(counted))
    assert (some.entities.rows(), some.finest.rows(1)) == (first.entities.rows(), first.finest.rows(1))
    assert some.outcomes.success.shape == (2, EPISODES)
    assert some.example is not None
    assert some.example.number < counted
    assert some.to_json()["graph_episodes"] == counted
    with pytest.raises(ValueError, match="graph_episodes=0 given"):
        EvaluationConfig(5, graph_episodes=0)


@pytest.mark.usefixtures("few_at_a_time")
def test_the_first_solved_episode_is_shown(stopped: TrainingRun) -> None:
    found = evaluate(stopped, EvaluationConfig(EPISODES))
    shown, success = found.example, found.outcomes.success
    assert shown is not None
    assert shown.success
    earlier = [success[a, n] for n in range(EPISODES) for a in range(2) if (n, a) < (shown.number, shown.agent)]
    assert not any(earlier)
    episode = one_by_one(stopped, shown.agent, shown.number)
    np.testing.assert_array_equal(shown.steps.action, [step.action for _, step in episode])
    np.testing.assert_array_equal(shown.states.values[:-1], [state.values for state, _ in episode])
    assert shown.predicted is not None
    assert shown.predicted.shape == (len(episode), 4, 5)


def test_greedy_agents_do_what_is_most_likely_and_may_never_succeed(stopped: TrainingRun) -> None:
    kept = stopped.kept()
    assert kept is not None
    network, loop = kept.tree.policy.network, stopped.loop
    *layers, last = network.policy.layers
    # Both agents prefer to touch, wherever they are: nowhere.
    touch = jnp.zeros_like(last.bias).at[:, WORLD.action("touch")].set(50.0)
    stubborn = replace(network, policy=replace(network.policy, layers=(*layers, replace(last, bias=touch))))
    played = play(
        loop, True, replace(kept.tree.policy, network=stubborn), jax.random.key(0), jnp.arange(2, dtype=jnp.int32)
    )
    assert (played.steps.action == WORLD.action("touch")).all()
    outcomes = Outcomes.of(played)
    rates: dict[str, Any] = outcomes.rates(WORLD.stage_names)
    assert (rates["success_rate"], rates["normalized_stage"], rates["solvable_rate"]) == (0.0, 0.0, 1.0)
    assert (rates["mean_length"], rates["mean_length_solved"]) == (WORLD.max_steps, None)
    usual = play(loop, True, kept.tree.policy, jax.random.key(0), jnp.arange(2, dtype=jnp.int32))
    elapsed = jnp.arange(WORLD.max_steps, dtype=jnp.float32) / WORLD.max_steps
    shape = usual.steps.action.shape
    inputs = loop.actor.inputs(usual.steps.obs, jnp.broadcast_to(elapsed[:, None, None], shape))
    for agent in range(2):
        one = jax.tree.map(lambda leaf, agent=agent: leaf[agent], network)
        np.testing.assert_array_equal(jnp.argmax(one.numbers(inputs[:, agent]), -1), usual.steps.action[:, agent])
    np.testing.assert_array_equal(played.first.values, usual.first.values)


def test_rates_over_solvable_layouts_leave_the_others_out() -> None:
    success = np.array([[True, False, False, True], [False, False, False, False]])
    solvable = np.array([[True, True, False, True], [False, False, False, False]])
    stages = np.stack([success, np.ones_like(success)], -1)
    outcomes = Outcomes(success, solvable, stages, np.array([[3, 9, 9, 5], [9, 9, 9, 9]]))
    one: dict[str, Any] = outcomes.rates(("a", "b"), 0)
    assert (one["success_rate"], one["success_rate_solvable"]) == (0.5, pytest.approx(2 / 3))
    assert (one["mean_length"], one["mean_length_solved"]) == (6.5, 4.0)
    assert one["stages"] == {"a": 0.5, "b": 1.0}
    none: dict[str, Any] = outcomes.rates(("a", "b"), 1)
    assert (none["success_rate_solvable"], none["mean_length_solved"]) == (None, None)
    both: dict[str, Any] = outcomes.rates(("a", "b"))
    assert (both["success_rate"], both["normalized_stage"]) == (0.25, pytest.approx(10 / 16))


def test_numbers_of_an_edge() -> None:
    edge = Edge("fish", "sink", steps=10, episodes=4, true=4, true_episodes=1, predicted=5, both=3)
    assert (edge.true_rate, edge.episode_rate, edge.predicted_rate) == (0.4, 0.25, 0.5)
    assert (edge.recall, edge.precision) == (0.75, 0.6)
    assert edge.agreement == pytest.approx(0.7)
    never = Edge("fish", "sink", 10, 4, 0, 0, 0, 0)
    assert (never.recall, never.precision, never.agreement) == (None, None, 1.0)
    assert Edge("fish", "sink", 10, 4, 4, 1, None, None).agreement is None
    owned = [
        Edge(dst, src, 1, 1, 0, 0, None, None).is_self_edge for dst, src in (("a", "a.x"), ("a.x", "a.y"), ("a", "b"))
    ]
    assert owned == [True, False, False]


def some_edges(predicted: np.ndarray | None, truth: np.ndarray | None) -> Edges:
    """Of 2 agents, one episode and 100 steps of entities a, b and the action."""
    counts = np.ones((100, 2, 1), bool)
    shown = tuple(None if part is None else np.broadcast_to(part, (100, 2, 1, 2, 3)) for part in (truth, predicted))
    return Edges.count((("a", "b"), ("a", "b", "action")), counts, *shown)


def test_measures_between_entities_leave_own_edges_out() -> None:
    truth, predicted = np.zeros((100, 2, 1, 2, 3), bool), np.zeros((100, 2, 1, 2, 3), bool)
    truth[..., [0, 1], [0, 1]] = predicted[:50, ..., [0, 1], [0, 1]] = True  # self-edges
    truth[:40, :, :, 0, 1], predicted[10:60, 0, :, 0, 1] = True, True
    edges = some_edges(predicted, truth)
    first, second, both = edges.between(0), edges.between(1), edges.between()
    assert (first.edges, first.true, first.predicted, first.both) == (400, 40, 50, 30)
    assert (first.true_rate, first.predicted_rate) == (0.1, 0.125)
    assert (first.precision, first.recall) == (0.6, 0.75)
    assert first.f1 == pytest.approx(2 * 0.6 * 0.75 / (0.6 + 0.75))
    assert (second.precision, second.recall, second.f1) == (None, 0.0, 0.0)
    assert (both.edges, both.f1) == (800, 60 / 130)
    assert [part.density for part in (first, second, both)] == ["some", "nearly none", "some"]
    blind = some_edges(None, truth).between()
    assert (blind.predicted_rate, blind.f1, blind.density) == (None, None, None)
    alone = some_edges(np.ones_like(predicted), None).between()
    assert (alone.predicted_rate, alone.true_rate, alone.f1, alone.density) == (1.0, None, None, "nearly all")


@pytest.mark.parametrize(
    ("seen", "detector", "automatic", "answer"),
    [
        (
            (1.0, 0.95),
            "gradient",
            False,
            "all agents predict nearly all of the edges between different entities (95.00% to",
        ),
        ((1.0, 0.5), "gradient", False, "seed 5 predict nearly all of the edges between different entities (100.00%)"),
        ((0.5, 0.0), "gradient", False, "--automatic-threshold or a training run with --bonus.detector intervention."),
        ((0.0, 0.0), "gradient", True, "(0.00%), so their graphs say little. Try a training run with --bonus.detector"),
        ((0.0, 0.0), "intervention", False, "Try elden evaluate with --automatic-threshold."),
        ((0.0, 1.0), "intervention", True, "Try a longer training of the models."),
        ((0.5, 0.1), "gradient", False, None),
    ],
)
def test_graphs_that_are_full_or_empty_are_named(
    stopped: TrainingRun, seen: tuple[float, float], detector: str, automatic: bool, answer: str | None
) -> None:
    predicted = np.arange(100)[:, None, None] < 100 * np.array(seen)[:, None]
    edges = some_edges(predicted[..., None, None], None)
    models = Models(detector, 3, (0.1, 0.1), automatic, ("entity", "entity"))
    config = EvaluationConfig(5, automatic_threshold=automatic)
    never = np.zeros((2, 1), bool)
    outcomes = Outcomes(never, never, never[..., None], np.ones((2, 1), int))
    found = Evaluation(config, (5, 6), ("a",), 24, outcomes, edges, edges, models, None)
    warning = density_warning(found, stopped)
    assert (warning is None) if answer is None else (warning is not None and answer in warning)
    assert density_warning(replace(found, models=None), stopped) is None


@pytest.mark.parametrize(
    ("bonus", "detector", "read_by"),
    [
        ("none", "gradient", None),
        ("icm", "gradient", None),
        ("elden", "pcmi", "pcmi"),
        ("curiosity", "gradient", "gradient"),
        ("curiosity", "pcmi", None),
        ("cai", "pcmi", "pcmi"),
        ("graph-count", "gradient", "gradient"),
        ("cig", "gradient", "gradient"),
        ("curiosity-critic", "gradient", "gradient"),
        ("dependency-surprise", "pcmi", "pcmi"),
        ("edge-count", "gradient", "gradient"),
        ("influence-count", "gradient", None),
        ("composite", "gradient", "gradient"),
    ],
)
def test_models_behind_a_bonus_are_found(bonus: str, detector: str, read_by: str | None) -> None:
    space = Space(WORLD.factors, Discrete(WORLD.num_actions))
    made = make_bonus(bonus, space, TINY.bonus, detector=detector, parts=("curiosity", "elden"))
    found = models_of(made, jax.eval_shape(lambda key: made.init(key, 2), jax.random.key(0)))
    reader = None if found is None else reader_of(found[0], detector)
    assert (None if reader is None else reader.detector.name) == read_by
    if bonus == "composite":
        assert found is not None
        assert (found[0].name, type(found[1])) == ("elden", ModelState)


# The command line.


@pytest.mark.usefixtures("few_at_a_time")
def test_a_training_is_evaluated_from_the_command_line(
    stopped: TrainingRun, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = stopped.folder.path
    assert main(["evaluate", str(folder), "--episodes", "5", "--automatic-threshold"]) == 0
    said = capsys.readouterr().out
    assert "sampled policy after 24 steps, 5 episodes of each agent" in " ".join(said.split())
    assert "automatic threshold" in said
    results = json.loads((folder / "evaluation.json").read_text())
    assert results["command"].startswith("elden evaluate")
    assert (results["policy"], results["finished"], results["env_steps"]) == ("sampled", False, 24)
    assert [one["seed"] for one in results["seeds"]] == [5, 6]
    assert results["together"]["episodes"] == 10
    assert results["models"]["members"] == 3
    assert results["models"]["thresholds"] != pytest.approx([0.1, 0.1])
    between = results["between_entities"]
    assert [part["seed"] for part in between["seeds"]] == [5, 6]
    for name in ("precision", "recall", "f1"):
        known = [part[name] for part in between["seeds"] if part[name] is not None]  # none where no edge was seen
        assert between["median"][name] == (pytest.approx(np.median(known)) if known else None)
    rows = [edge for edge in results["edges"] if not edge["self_edge"]]
    seen, true = (sum(row[name] for row in rows) for name in ("predicted_steps", "true_steps"))
    found = sum((row["recall"] or 0) * row["true_steps"] for row in rows)
    assert between["together"]["f1"] == pytest.approx(2 * found / (seen + true))
    words = " ".join(said.split())
    assert "all edges between different entities, over all steps" in words
    assert "F1" in words
    assert (results["warning"] is not None) == ("so their graphs say little" in words)
    assert results["warning"] is None or results["warning"] in words
    # Four entities depend on four and the action, or on five variables' worth; of two agents and of both together.
    with (folder / "tables" / "edges.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2 * 3 * 4 * 5
    assert len(results["edges"]) == 4 * 5
    with Image.open(folder / "media" / "episode.gif") as video:
        assert getattr(video, "n_frames") > 1  # noqa: B009
    with Image.open(folder / "media" / "curves.png") as picture:
        assert picture.width > 500
    assert all(str(folder / name) in said.replace("\n", "") for name in ("media/curves.png", "evaluation.json"))
    assert stopped.folder.finished is False


@pytest.mark.usefixtures("few_at_a_time")
@pytest.mark.slow
def test_a_demo_trains_with_and_without_a_bonus_and_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Demo, "config", lambda self, bonus: replace(TINY, bonus_name=bonus))
    monkeypatch.setattr("elden.cli.demo._BONUSES", ("elden", "none"))
    monkeypatch.setattr("elden.cli.demo.demo_world", lambda: WORLD)
    monkeypatch.setattr("elden.cli.demo.EvaluationConfig", lambda **options: EvaluationConfig(EPISODES, **options))
    out = tmp_path / "run"
    words = ["demo", "--out", str(out)]
    assert main(words) == 0
    first = capsys.readouterr().out
    assert "Look at" in first
    assert "the demo took" in first
    results = json.loads((out / "elden" / "evaluation.json").read_text())
    assert (results["finished"], results["env_steps"]) == (True, 48)
    assert json.loads((out / "none" / "summary.json").read_text())["env_steps"] == 48
    (out / "curves.png").unlink()
    shutil.rmtree(out / "none")  # stopped before its second half
    kept = (out / "elden" / "metrics.jsonl").stat().st_mtime_ns
    assert main(words) == 0
    assert "which continues" in " ".join(capsys.readouterr().out.split())
    assert (out / "elden" / "metrics.jsonl").stat().st_mtime_ns == kept
    assert main(words) == 0
    assert "which is removed and made again" in " ".join(capsys.readouterr().out.split())
    assert (out / "curves.png").exists()
    again = json.loads((out / "elden" / "evaluation.json").read_text())
    assert again["seeds"] == results["seeds"]
    other = tmp_path / "other" / "elden"
    other.mkdir(parents=True)
    (other / "letter.txt").write_text("precious")
    assert main(["demo", "--out", str(other.parent)]) == 2
    assert "holds something else than a run" in capsys.readouterr().err
    assert (other / "letter.txt").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("evaluate",), "elden evaluate needs the folder of a run"),
        (("evaluate", "nowhere"), "there is no folder nowhere"),
        (("evaluate", "nowhere", "--episodes", "0"), "--episodes 0 given; it takes 1 to"),
        (("evaluate", "nowhere", "--episodes", "many"), "--episodes: 'many' is not a whole number"),
        (("evaluate", "nowhere", "--seed", "-1"), "--seed -1 given"),
        (("evaluate", "nowhere", "--gready"), "no option '--gready'; did you mean '--greedy'"),
        (("demo", "--seed", "-1"), "--seed -1 given"),
    ],
)
def test_mistakes_are_answered_with_a_line(
    words: tuple[str, ...], answer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert answer in said
    assert said.count("\n") == 1


def test_a_training_without_a_state_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training = TrainingRun(WORLD, TINY, tmp_path / "run")
    with pytest.raises(RunFolderError, match="has kept no state yet"):
        evaluate(training, EvaluationConfig())
    assert main(["evaluate", str(tmp_path / "run")]) == 2
    assert "has kept no state yet" in capsys.readouterr().err
    with pytest.raises(ValueError, match="episodes=0 given"):
        EvaluationConfig(0)


# Figures.


@pytest.mark.parametrize("entities", [3, 21])
def test_films_show_the_world_beside_its_graphs(entities: int) -> None:
    names = [f"thing{i}" for i in range(entities)]
    pictures = [np.full((300, 200, 3), 40, np.uint8)] * 3
    truths = np.zeros((2, entities, entities + 1), bool)
    truths[1, 0, 1] = True
    frames = graph_video(pictures, truths, truths if entities == 3 else None, names, [*names, "action"])
    assert len({frame.shape for frame in frames}) == 1
    assert (frames[0][:300, :200] == 40).all()
    assert (frames[1] != frames[2]).any(), "an edge shows"
    with pytest.raises(ValueError, match="3 pictures of 1 shapes for 1 steps"):
        graph_video(pictures, truths[:1], None, names, [*names, "action"])


def test_learning_curves_leave_out_what_is_not_there() -> None:
    values = np.array([[0.0, np.nan], [0.5, 1.0], [1.0, np.nan]])
    nothing = Curve("loss", "nats", np.full((3, 2), np.nan))
    figure = learning_curves([1, 2, 3], [Curve("success", "share", values, share=True), nothing], "t", ["a", "b"])
    (axes,) = figure.axes
    *_, mean = axes.lines
    np.testing.assert_allclose(np.asarray(mean.get_ydata(), float), np.array([0.0, 0.75, 1.0]))
    with pytest.raises(ValueError, match="no numbers"):
        learning_curves([1, 2, 3], [nothing], "t", ["a", "b"])
    with pytest.raises(ValueError, match="expected is"):
        learning_curves([1, 2], [Curve("success", "share", values)], "t", ["a", "b"])
