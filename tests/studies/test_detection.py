"""The study of detectors: what is trained, what is measured on what, what is left behind, and going on after a stop."""

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_equal
from dynamics_cases import DISCRETE, layout_of, random_transitions

import elden
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.runs import ModelTraining, Run
from elden.factors import Discrete, Entity, Factors, Variable
from elden.graphs.evaluate import default_chunk
from elden.graphs.gradient import Gradient
from elden.graphs.input_mask import InputMask
from elden.graphs.metrics import f1_at
from elden.graphs.registry import DETECTORS
from elden.storage.folder import OtherRunError, RunFolder, RunFolderError, read_config
from elden.storage.plain import differences, plain
from elden.storage.resumable import Deadline, OutOfTimeError
from elden.studies.config import DetectConfig, method_rows
from elden.studies.dataset import CollectConfig, Dataset, collect
from elden.studies.detection import detect, groups_of
from elden.studies.errors import StudyError
from elden.studies.measuring import (
    all_into_changed,
    entities_changed,
    held_out,
    measure_granularity,
    sample,
    self_edges_alone,
)
from elden.studies.paper import METRICS, TABLE_1, TABLE_2, paper_cells, row_name
from elden.studies.presets import detection_preset
from elden.studies.reading import learn_reader, load_reader
from elden.studies.reproduce import reproduce, table_rows
from elden.studies.results import Detection, slug
from elden.studies.tables import cells_of, comparison_table, detection_table, skipped_lines
from elden.transitions import Transitions
from elden.viewing import Cell, markdown_table
from elden.viewing.style import ALL_INTO_CHANGED, SELF_EDGES_ALONE
from elden.worlds.base import World
from elden.worlds.registry import WORLDS

TINY = DetectConfig(
    network=NetworkConfig(children="entity", features=(8,), heads=1, head_size=4, mlp=(8,)),
    train=TrainConfig(learning_rate=3e-3, batch_size=16, penalty_start=50, penalty_stop=100),
    methods=("gradient", "attention"),
    seeds=2,
    updates=200,
    segment=50,
    eval_episodes=4,
    threshold_transitions=60,
    reference=8,
    granularity=("entity",),
)


@lru_cache
def thawing() -> World:
    return elden.make("thawing")


@lru_cache
def data() -> Dataset:
    return collect(thawing(), CollectConfig(transitions=1200, held_out=0.2, chunk_episodes=32))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Detection, Path]:
    folder = tmp_path_factory.mktemp("runs") / "thawing"
    return detect(thawing(), TINY, dataset=data(), folder=folder, command="a command"), folder


# A whole study.


def test_every_method_and_seed_is_measured(finished: tuple[Detection, Path]) -> None:
    result, folder = finished
    summary = json.loads((folder / "summary.json").read_text())
    assert list(summary["methods"]) == ["gradient", "attention"]
    for method in summary["methods"].values():
        assert [seed["seed"] for seed in method["seeds"]] == [0, 1]
        for seed in method["seeds"]:
            assert {"roc_auc", "f1", "threshold", "positive_rate", "updates_per_s", "auto_f1"} <= set(seed)
            assert 0 <= seed["auto_f1"] <= seed["f1"] <= 1
            assert 0 <= seed["auto_f1_between"] <= seed["f1_between"] <= 1
            assert 0 < seed["positive_rate_between"] < seed["positive_rate"] < 1
        mean = method["levels"]["entity"]["mean"]["roc_auc"]
        assert mean == pytest.approx(np.mean([seed["roc_auc"] for seed in method["seeds"]]))
    assert summary["methods"]["gradient"]["penalty"] == TINY.train.penalty
    assert summary["methods"]["attention"]["penalty"] == 0
    assert summary["methods"]["gradient"]["relative_cost"] == 1
    assert summary["provenance"]["command"] == "a command"
    assert summary["world"]["name"] == "thawing"
    assert summary["training"]["plain"]["skipped"] == [0] * 4
    assert summary["eval_transitions"] == 4 * (thawing().max_steps - 1) == result.num_transitions
    # A model that has learnt something is better than chance.
    assert result.rows[0].statistics("entity")["roc_auc"][0] > 0.6


def test_the_folder_has_all_its_parts(finished: tuple[Detection, Path]) -> None:
    _, folder = finished
    config = json.loads((folder / "config.json").read_text())
    assert config["detect"]["updates"] == 200
    assert config["detect"]["chunk"] == default_chunk()  # what was taken, where nothing was said
    assert config["rows"]["gradient"]["class"] == "Gradient"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    begun = [line for line in lines if "plain-begin/loss/nll" in line]
    assert [line["step"] for line in begun] == [50]
    penalised = [line for line in lines if "plain-penalised/loss/nll" in line]
    assert [line["step"] for line in penalised] == [100, 150, 200]
    assert all(len(line["plain-penalised/loss/nll"]) == 2 for line in penalised)
    assert {"0", "1"} <= {file.parent.name for file in (folder / "tb").rglob("events*")}
    assert len(lines[-1]["attention/entity/roc_auc"]) == 2
    kinds = ("heatmap", "histogram", "edges", "episode")
    expected = {f"{method}-{kind}.png" for method in TINY.methods for kind in kinds}
    assert {file.name for file in (folder / "media").iterdir()} == expected
    with (folder / "tables" / "gradient-edges.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == thawing().factors.edge_mask("entity", "entity").sum()
    assert all(int(row["found"]) + int(row["missed"]) == int(row["positives"]) for row in rows)
    assert skipped_lines(finished[0]) == []
    row = replace(finished[0].rows[0], skipped=(0, 7))
    assert skipped_lines(replace(finished[0], rows=(row,))) == [
        "thawing, gradient: 7 of 400 updates were not finite and were skipped"
    ]
    types = json.loads((folder / "tables" / "gradient.json").read_text())["types"]
    assert {"goto", "open"} & {row["event"] for row in types}
    models = [path.name for path in (folder / "checkpoints").iterdir()]
    assert len(models) == 4
    assert all(name.startswith("plain-") for name in models)


def test_graphs_can_be_read_with_what_a_run_leaves(finished: tuple[Detection, Path]) -> None:
    result, folder = finished
    held = held_out(data(), TINY.eval_episodes)
    truth = held.truth(thawing().factors, "entity")
    for seed in (None, 1):
        reader = load_reader(folder, "gradient", seed)
        graphs = reader.graphs(held.transitions)
        expected = result.rows[0].seeds[seed or 0]["entity"]
        assert reader.threshold == expected.auto_threshold
        assert f1_at(graphs.astype(np.float32), truth, 1.0).f1 == pytest.approx(expected.auto_f1)
    assert reader.names == (("agent", "fish", "sink", "fridge"), ("agent", "fish", "sink", "fridge", "action"))
    with pytest.raises(StudyError, match="has no method 'gradien'; did you mean 'gradient'"):
        load_reader(folder, "gradien")
    with pytest.raises(StudyError, match=r"seed=7 given; the run in .* has 0, 1"):
        load_reader(folder, "gradient", 7)
    with pytest.raises(StudyError, match="holds no finished run"):
        load_reader(folder / "media", "gradient")
    with pytest.raises(StudyError, match=f"there are {re.escape(str(folder))}"):
        load_reader(folder.parent, "gradient")


@pytest.mark.parametrize(
    ("content", "message"),
    [("[" * 99_999, "holds no finished run"), ("[]", "does not hold the results"), ("{}", "does not hold the results")],
)
def test_damaged_results_are_no_run(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(StudyError, match=message):
        load_reader(tmp_path, "gradient")


def test_a_reader_reads_only_what_its_model_has_learnt(finished: tuple[Detection, Path]) -> None:
    reader = load_reader(finished[1], "gradient")
    assert len(repr(reader)) < 200
    steps = held_out(data(), 4).transitions
    with pytest.raises(StudyError, match=r"obs of shape \(11,\) given; the model reads \[time, 11\]: agent.x"):
        reader.graphs(Transitions(steps.obs[0], steps.action[0], steps.next_obs[0]))
    with pytest.raises(StudyError, match=r"next_obs: agent\.x is observed as 1"):
        reader.graphs(replace(steps, next_obs=steps.next_obs + 100))


@pytest.mark.slow
def test_a_step_is_read_alone_as_among_others(tmp_path: Path) -> None:
    """How far continuous variables move, and which values they have, is known from the training data alone."""
    kitchen = elden.make("kitchen")
    collected = collect(kitchen, CollectConfig(transitions=1200, held_out=0.3, chunk_episodes=8))
    detect(
        kitchen,
        replace(TINY, methods=("intervention",), seeds=1, updates=20, segment=20, eval_episodes=2),
        dataset=collected,
        folder=tmp_path / "run",
        figures=False,
    )
    reader = load_reader(tmp_path / "run", "intervention")
    steps = held_out(collected, 2).transitions
    together = reader.scores(steps[jnp.arange(8)])
    alone = np.concatenate([reader.scores(steps[jnp.arange(i, i + 1)]) for i in range(8)])
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_a_folder_that_is_written_to_is_refused(finished: tuple[Detection, Path]) -> None:
    folder = finished[1]
    with (
        RunFolder(folder, read_config(folder)).locked(),
        pytest.raises(RunFolderError, match="another process is writing"),
    ):
        detect(thawing(), TINY, dataset=data(), folder=folder)


def test_a_folder_of_something_else_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="holds something else than a run"):
        detect(thawing(), TINY, folder=tmp_path, progress=lambda *_: pytest.fail("it has begun"))


def test_the_table_of_a_world(finished: tuple[Detection, Path]) -> None:
    table = detection_table(finished[0])
    assert [row[0] for row in table.rows] == ["gradient", "attention", "(self-edges alone)", "(all into what changed)"]
    assert table.rows[-2][2:] == (f"{finished[0].self_edges_alone['entity'][1]:.3f}",) * 2 + ("–",)
    assert table.columns == ("method", "ROC-AUC", "best F1", "automatic F1", "cost")
    between = detection_table(finished[0], edges="between")
    assert between.rows[-1][0] == "(all into what changed)"
    assert between.rows[-1][1] == f"{finished[0].all_into_changed['entity']['roc_auc_between']:.3f}"
    assert "±" in table.rows[0][1]
    assert table.rows[0][-1] == "1×"
    assert all(place < 2 for place, _ in table.bold)
    between = detection_table(finished[0], edges="between")
    assert "self-edges left out" in between.title
    assert between.rows[0][1] != table.rows[0][1]


def test_finished_models_are_taken_from_the_folder(
    finished: tuple[Detection, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, folder = finished

    def refuse(self: ModelTraining) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(ModelTraining, "_train", refuse)
    again = detect(thawing(), TINY, dataset=data(), folder=folder, figures=False)
    assert_equal(again.groups["plain"].models, first.groups["plain"].models)
    assert again.rows[1].seeds == first.rows[1].seeds
    assert again.groups["plain"].speed == first.groups["plain"].speed


def test_a_folder_of_another_run_is_refused(finished: tuple[Detection, Path], tmp_path: Path) -> None:
    with pytest.raises(OtherRunError, match=r"another run \(.*; detect.updates was 200, now 400\); choose"):
        detect(thawing(), TINY.changed(updates=400), dataset=data(), folder=finished[1])
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(ValueError, match="something else than a run"):
        RunFolder(tmp_path, {})


def test_data_of_another_world_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the data are of another world \(.*max_steps was 20"):
        detect(elden.make("thawing", max_steps=10), TINY, dataset=data())


# Which models are trained.


def test_rows_share_models_where_they_can() -> None:
    config = replace(TINY, methods=tuple(DETECTORS), seeds=3)
    groups = {group.name: group for group in groups_of(method_rows(config), range(3))}
    assert set(groups) == {"plain", "dropinputs", "learntmask", "kernel"}
    penalised = [run for run in groups["plain"].runs if run.penalty > 0]
    assert penalised == [Run(seed, TINY.train.penalty, 1.0) for seed in range(3)]
    assert len(groups["plain"].runs) == 6
    assert groups["kernel"].runs == tuple(Run(seed, 0.0, 1.0) for seed in range(3))


def test_without_penalty_all_plain_methods_share_their_models() -> None:
    config = replace(TINY, train=replace(TINY.train, penalty=0.0))
    assert [len(group.runs) for group in groups_of(method_rows(config), range(2))] == [2]


def test_the_mask_is_scheduled_by_the_length_of_the_training() -> None:
    (row,) = method_rows(DetectConfig(methods=("input-mask",)))
    assert row.detector == InputMask()
    (row,) = method_rows(DetectConfig(methods=("input-mask",)).changed(updates=1000))
    assert isinstance(row.detector, InputMask)
    assert (row.detector.mask.start, row.detector.mask.stop, row.detector.mask.cooling) == (100, 200, 4000)


def test_all_lambdas_are_one_group() -> None:
    rows = table_rows("table2", TINY)
    assert [row.name for row in rows] == [row_name(coefficient) for coefficient in TABLE_2]
    (group,) = groups_of(rows, range(3))
    assert len(group.runs) == 21
    assert (rows[0].penalty, rows[0].mixup) == (0.0, 0.0)
    assert all(isinstance(row.detector, Gradient) for row in rows)
    unmixed = TINY.changed(mixup=0.0)
    assert len(table_rows("table2", unmixed)) == 6


# What is measured.


def test_episodes_are_measured_without_their_last_step() -> None:
    held = held_out(data(), 3)
    split = data().held_out
    assert split.graph is not None
    steps = thawing().max_steps
    expected = np.concatenate([np.arange(start, start + steps - 1) for start in (0, steps, 2 * steps)])
    np.testing.assert_array_equal(held.transitions.obs, split.obs[expected])
    np.testing.assert_array_equal(held.graph, split.graph[expected])
    with pytest.raises(ValueError, match=r"eval_episodes=500 given, but the data hold out \d+ episodes only"):
        held_out(data(), 500)


@pytest.mark.slow
def test_the_automatic_threshold_sees_training_data_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other held-out episodes, with other truths, leave it as it is."""
    split = data().held_out
    assert split.graph is not None
    chosen = split.episode > np.unique(split.episode)[3]
    assert split.events is not None
    fields = ("obs", "action", "next_obs", "episode", "step", "graph", "events")
    other = replace(split, **{name: getattr(split, name)[chosen] for name in fields})
    card = json.loads(json.dumps(plain(data().card)))
    card["held_out"] = {**card["held_out"], "transitions": len(other), "episodes": other.num_episodes}
    config = replace(TINY, methods=("attention",), updates=50, seeds=1)
    first = detect(thawing(), config, dataset=data())
    second = detect(thawing(), config, dataset=Dataset(data().train, other, card))
    one, two = (result.rows[0].seeds[0]["entity"] for result in (first, second))
    assert one.measures != two.measures
    assert one.auto_threshold == two.auto_threshold


def test_the_sample_for_thresholds_is_of_the_training_part() -> None:
    drawn = sample(data().train, 50)
    rows = {row.tobytes() for row in np.concatenate([data().train.obs, data().train.next_obs], axis=1)}
    both = np.concatenate([np.asarray(drawn.obs), np.asarray(drawn.next_obs)], axis=1)
    assert all(row.tobytes() in rows for row in both)
    assert len(sample(data().train, 10**6).action) == len(data().train)


def test_measures_by_hand() -> None:
    truth = np.zeros((2, 2, 3), bool)
    truth[:, 0, 0] = truth[:, 1, 1] = truth[0, 0, 2] = truth[1, 0, 1] = True
    scores = np.full((2, 2, 3), 0.1, np.float32)
    scores[0, 0, 2], scores[1, 0, 1], scores[1, 1, 2] = 0.9, 0.3, 0.4
    mask = np.array([[False, True, True], [True, False, True]])
    unlabelled = np.concatenate([scores, scores])
    changed = np.tile(np.array([[True, False], [True, False]]), (2, 1))
    result = measure_granularity(scores, truth, unlabelled, changed, mask, "change")
    # Six of twelve edges are there; four of them, on the diagonal, score no more than most that are not.
    assert result.measures.positive_rate == 6 / 12
    assert result.measures.roc_auc == pytest.approx((6 + 5 + 4 * 2.5) / 36)
    assert result.measures.f1 == pytest.approx(12 / 18)
    assert result.between.positive_rate == 2 / 8
    assert result.between.roc_auc == pytest.approx((6 + 5) / 12)
    assert result.between.f1 == pytest.approx(4 / 5)
    # The first entity changed in both steps, the second never: neither says anything, so the scores are cut in two.
    assert result.between.auto_threshold == pytest.approx(0.65, abs=1e-2)
    assert result.between.auto_f1 == pytest.approx(2 / 3)
    # What did not change is caused by itself, and the self-edges of the second entity score 0.1.
    assert result.auto_threshold == pytest.approx(0.1)
    assert result.auto_f1 == pytest.approx(12 / 18)


def test_all_edges_into_what_changed() -> None:
    """What the knowledge of what changed is worth without a model, between different nodes."""
    held = held_out(data(), 4)
    factors = thawing().factors
    changed = entities_changed(factors, held.transitions)
    mask, truth = factors.edge_mask("entity", "entity"), held.truth(factors, "entity")
    called = (changed[..., None] & mask)[:, mask]
    true = truth[:, mask]
    found = all_into_changed(factors, held, "entity")
    assert found["f1_between"] == pytest.approx(2 * (called & true).sum() / (called.sum() + true.sum()))
    assert found["roc_auc_between"] == pytest.approx(0.5 * (1 + called[true].mean() - called[~true].mean()))
    assert 0.2 < found["f1_between"] < 0.9
    # All edges: self-edges, with or without the others.
    both = changed[..., None] | ~mask
    f1 = 2 * (both & truth).sum() / (both.sum() + truth.sum())
    assert found["f1"] == pytest.approx(max(f1, self_edges_alone(factors, held, "entity")[1]))
    assert found["roc_auc"] > self_edges_alone(factors, held, "entity")[0]
    assert 0.5 < all_into_changed(factors, held, "variable")["roc_auc_between"] < 1


def test_self_edges_alone() -> None:
    """What a graph of self-edges is worth: they are nearly always on, and all other edges are missed."""
    held = held_out(data(), 4)
    factors = thawing().factors
    truth = held.truth(factors, "entity")
    own = truth[:, np.arange(4), np.arange(4)].sum()
    auc, f1 = self_edges_alone(factors, held, "entity")
    assert f1 == pytest.approx(2 * own / (own + 4 * len(truth) - own + truth.sum()))
    negatives = truth.size - truth.sum()
    assert auc == pytest.approx(0.5 * (1 + own / truth.sum() - (4 * len(truth) - own) / negatives))
    assert f1 > 0.7


def test_entities_that_changed() -> None:
    layout = layout_of(DISCRETE)
    transitions = random_transitions(layout, 3)
    obs = jnp.array([[0, 0, 0], [1, 1, 1], [2, 0, 1]], jnp.int32)
    next_obs = jnp.array([[0, 1, 0], [1, 1, 1], [0, 0, 0]], jnp.int32)
    changed = entities_changed(DISCRETE, replace(transitions, obs=obs, next_obs=next_obs))
    np.testing.assert_array_equal(changed, [[True, False], [False, False], [True, True]])


# Stopping and going on; `test_runs` has more.


def test_a_study_stops_and_goes_on(tmp_path: Path) -> None:
    config = replace(TINY, methods=("attention",), updates=100, seeds=1)
    expected = detect(thawing(), config, dataset=data())
    folder = tmp_path / "run"
    with pytest.raises(OutOfTimeError, match="the time limit is over, after 50 of 100 updates of stage 'begin'"):
        detect(thawing(), config, dataset=data(), folder=folder, deadline=Deadline.after(0))
    # A run that was killed may have logged more than it kept.
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 100, "plain-begin/loss/nll": [7.0]}\n{"step": 100, "attention/entity/f1": [7.0]}\n')
    result = detect(thawing(), config, dataset=data(), folder=folder, figures=False)
    logged = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in logged if "plain-begin/loss/nll" in line] == [50, 100]
    assert [line["step"] for line in logged if "attention/entity/f1" in line] == [100]
    assert [7.0] not in [value for line in logged for value in line.values()]
    assert_equal(result.groups["plain"].models, expected.groups["plain"].models)
    assert result.rows[0].seeds == expected.rows[0].seeds
    lines = (folder / "metrics.jsonl").read_text()
    detect(thawing(), config, dataset=data(), folder=folder, figures=False)
    assert (folder / "metrics.jsonl").read_text() == lines


@pytest.mark.slow
def test_a_stopped_study_goes_on_after_another_one_has_done_a_part_of_it(tmp_path: Path) -> None:
    config = replace(TINY, methods=("attention",), updates=100, seeds=2)
    with pytest.raises(OutOfTimeError):
        detect(thawing(), config, dataset=data(), folder=tmp_path / "two", models=tmp_path, deadline=Deadline.after(0))
    one = detect(thawing(), replace(config, seeds=1), dataset=data(), models=tmp_path)
    told: list[int] = []
    both = detect(
        thawing(),
        config,
        dataset=data(),
        folder=tmp_path / "two",
        models=tmp_path,
        progress=lambda what, done, total: told.append(done) if what.startswith("updates") else None,
        figures=False,
    )
    assert told == [0, 200]  # the first half of both was there
    assert both.rows[0].seeds[0] == one.rows[0].seeds[0]
    assert not list(tmp_path.glob("part-*"))


def test_other_held_out_data_make_another_run(tmp_path: Path) -> None:
    config, given = replace(TINY, methods=("attention",), updates=2, seeds=1), data()
    detect(thawing(), config, dataset=given, folder=tmp_path, figures=False)
    other = replace(given, held_out=replace(given.held_out, action=given.held_out.action[::-1].copy()))
    with pytest.raises(OtherRunError, match=r"data\.held_out was"):
        detect(thawing(), config, dataset=other, folder=tmp_path, figures=False)


# Settings.


def test_the_paper_preset_is_the_papers_table() -> None:
    config = detection_preset("paper", "carwash")
    assert config.network == NetworkConfig("variable", "entity", (64, 64), 4, 16, (64, 64), "relu")
    train = config.train
    assert (train.learning_rate, train.batch_size, train.mixup, train.priority) == (3e-4, 32, 1.0, 0.0)
    assert (train.penalty, train.penalty_start, train.penalty_stop) == (1e-3, 50_000, 100_000)
    assert (config.updates, config.seeds, config.transitions, config.eval_episodes) == (500_000, 3, 500_000, 50)
    assert detection_preset("paper", "thawing").train.penalty == 1e-2
    kitchen = detection_preset("paper", "kitchen")
    assert (kitchen.network.features, kitchen.train.penalty_stop, kitchen.updates) == ((128, 128), 200_000, 500_000)
    assert detection_preset("paper", "a world of tomorrow") == config
    assert detection_preset("paper", "a world of tomorrow", continuous=True) == config.changed(mixup=0.0)
    for world in WORLDS:
        assert detection_preset("quick", world).updates < 10_000
    with pytest.raises(ValueError, match="no preset 'papr'; did you mean 'paper'"):
        detection_preset("papr", "carwash")


def test_settings_are_changed_by_name() -> None:
    config = detection_preset("paper", "carwash").changed(updates=1000, features=(16, 64), batch_size=8, seeds=1)
    assert (config.train.penalty_start, config.train.penalty_stop) == (100, 200)
    assert (config.network.features, config.train.batch_size, config.seeds) == ((16, 64), 8, 1)
    assert detection_preset("paper", "carwash").changed(updates=1000, penalty_stop=900).train.penalty_stop == 900
    assert detection_preset("paper", "carwash").changed(children="entity").granularities == ("entity",)
    for name, value, answer in [
        ("sedes", 3, "no setting 'sedes'; did you mean 'seeds'"),
        ("methods", ("gradeint",), "no detector 'gradeint'; did you mean 'gradient'"),
        ("methods", ("pcmi", "pcmi"), "each may be named once"),
        ("methods", (), "no methods given; name one or more of gradient"),
        ("members", 0, "members=0 given; it must be 1 or more"),
        ("chunk", -1, "chunk=-1 given; it must be 1 or more, or 0"),
    ]:
        with pytest.raises(ValueError, match=answer):
            detection_preset("paper", "carwash").changed(**{name: value})
    with pytest.raises(ValueError, match="can only be measured at the granularity entity"):
        replace(TINY, granularity=("variable",))


# Tables beside the paper's.


def test_the_papers_numbers() -> None:
    assert TABLE_1["gradient"]["carwash"] == (0.78, 0.02, 0.66, 0.02)
    assert TABLE_2[None]["thawing"] == (0.48, 0.01, 0.42, 0.01)
    # The two tables share the row of the best λ.
    best = {"thawing": 1e-2, "carwash": 1e-3, "kitchen": 1e-4}
    for world, coefficient in best.items():
        assert TABLE_2[coefficient][world][0] == TABLE_1["gradient"][world][0]
        assert detection_preset("paper", world).train.penalty == coefficient
    assert len(paper_cells()) == 5 * 3 * 2
    assert list(METRICS) == ["roc_auc", "f1"]


def test_a_table_beside_the_papers() -> None:
    ours = [
        Cell("thawing", "gradient", "roc_auc", 0.9, 0.01),
        Cell("thawing", "ours", "roc_auc", 0.95),
        Cell("thawing", "ours", "f1", 0.8, 0.02),
        Cell("minecraft", "ours", "f1", 0.7, 0.02),
    ]
    assert markdown_table(comparison_table(ours, paper_cells(), "A table")) == "\n".join(
        [
            "**A table**",
            "",
            "| method | thawing ROC-AUC | paper | thawing F1 | paper | minecraft ROC-AUC | minecraft F1 |",
            "| :--- | ---: | ---: | ---: | ---: | ---: | ---: |",
            "| gradient | 0.90 ± 0.01 | 0.71 ± 0.01 | – | 0.57 ± 0.00 | – | – |",
            "| ours | **0.95** | – | **0.80 ± 0.02** | – | – | **0.70 ± 0.02** |",
        ]
    )


def stub(world: World, config: DetectConfig, rows: Sequence[object], *args: object, **options: object) -> Detection:
    """A study that takes no time: the models of another one, under the names that are asked for."""
    small = detect(thawing(), replace(TINY, updates=10, segment=10, seeds=1, methods=("gradient",)), dataset=data())
    results = tuple(replace(small.rows[0], row=row) for row in rows)  # type: ignore[arg-type]
    return replace(small, world=world, rows=results)


@pytest.mark.parametrize(("name", "figure"), [("table1", "method_bars.png"), ("table2", "lambda_curve.png")])
def test_a_reproduced_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, figure: str) -> None:
    monkeypatch.setattr("elden.studies.reproduce.detect", stub)
    made = reproduce(name, "quick", ["thawing", "carwash"], tmp_path, command="a command")
    rows = list(TABLE_2) if name == "table2" else list(DETECTORS)
    assert [row[0] for row in made.table().rows][-2:] == [SELF_EDGES_ALONE, ALL_INTO_CHANGED]
    assert len(made.table().rows) == len(rows) + 2
    content = json.loads((tmp_path / "table.json").read_text())
    assert (content["kind"], content["preset"], content["provenance"]["command"]) == (name, "quick", "a command")
    assert set(content["worlds"]) == {"thawing", "carwash"}
    assert len(content["ours"]["entity"]) == len(rows) * 2 * 2
    text = (tmp_path / "table.md").read_text()
    assert text.startswith(f"**Table {name[-1]}: ")
    assert "0.71 ± 0.01" in text
    assert "Made by `a command`" in text
    assert (tmp_path / figure).stat().st_size > 1000
    assert cells_of(made.detections)[0].world == "thawing"


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no table 'table3'; did you mean 'table2' or 'table1'"):
        reproduce("table3", "quick", ["thawing"], tmp_path)


# Files.


def test_only_the_first_differences_are_told() -> None:
    assert differences({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}) == "b.c was 2, now 3"
    said = differences({}, {str(i): i for i in range(6)})
    assert said == "; ".join([*(f"{i} was None, now {i}" for i in range(4)), "and 2 more"])


def test_what_json_can_hold() -> None:
    assert plain({1: (np.float32(0.5), float("nan"), np.arange(2)), "p": Path("x")}) == {
        "1": [0.5, None, [0, 1]],
        "p": "x",
    }
    with pytest.raises(TypeError, match="set cannot be written"):
        plain({1, 2})


def test_file_names() -> None:
    assert slug("λ = 0.01") == "lambda-0.01"
    assert slug("no mixup, no penalty") == "no-mixup-no-penalty"
    assert len({slug(row_name(coefficient)) for coefficient in TABLE_2}) == len(TABLE_2)


def test_a_reader_learns_from_transitions_of_somebody_else() -> None:
    """Two lamps: each flips by an action of its own, the second one only while the first is lit."""
    rng = np.random.default_rng(0)
    obs, action = rng.integers(0, 2, (2000, 2)), rng.integers(0, 2, 2000)
    flips = np.stack([action == 0, (action == 1) & (obs[:, 0] == 1)], axis=1)
    lit = Variable("lit", Discrete(2))
    factors = Factors((Entity("first", (lit,)), Entity("second", (lit,))))
    steps = Transitions(jnp.asarray(obs), jnp.asarray(action), jnp.asarray(obs ^ flips))
    network = NetworkConfig(features=(16,), heads=1, head_size=8, mlp=(16,))
    reader = learn_reader(factors, 2, steps, updates=600, network=network)
    graphs = reader.graphs(steps)
    assert reader.names == (("first.lit", "second.lit"), ("first.lit", "second.lit", "action"))
    np.testing.assert_allclose(graphs[flips[:, 0], 0][:, [1, 2]].mean(0), [0.0, 1.0], atol=0.05)
    np.testing.assert_allclose(graphs[flips[:, 1], 1][:, [0, 2]].mean(0), [1.0, 1.0], atol=0.05)
    assert not graphs[~flips[:, 1], 1][:, [0, 2]].any()
