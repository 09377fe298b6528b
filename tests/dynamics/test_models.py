"""Stored models: found by what decided them, and by nothing else."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from cases import assert_equal
from dynamics_cases import ACTION, DISCRETE, random_transitions, tiny

from elden.dynamics.config import TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.runs import Run, Speed, StoredModel
from elden.dynamics.training import Model, Trainer
from elden.graphs.pcmi import DropInputs
from elden.storage.arrays import VERSIONS
from elden.studies.models import ModelStore, Recipe

RECIPE = Recipe(Trainer(Layout(DISCRETE, ACTION, tiny()), TrainConfig(batch_size=4)), 10, 5, "abc")
RUN = Run(0, 0.1, 1.0)


@pytest.fixture
def stored() -> StoredModel:
    return StoredModel(RECIPE.trainer.init(jax.random.key(0)).model, 3, Speed(1.0, 2.0, 30))


def test_a_model_comes_back(tmp_path: Path, stored: StoredModel) -> None:
    store = ModelStore(tmp_path)
    assert store.get(RECIPE, RUN) is None
    store.put(RECIPE, RUN, stored)
    found = store.get(RECIPE, RUN)
    assert found is not None
    assert_equal(found.model, stored.model)
    assert (found.skipped, found.speed) == (3, stored.speed)


@pytest.mark.parametrize(
    ("recipe", "run"),
    [
        (RECIPE, replace(RUN, seed=1)),
        (RECIPE, replace(RUN, penalty=0.2)),
        (RECIPE, replace(RUN, mixup=0.5)),
        (replace(RECIPE, updates=11), RUN),
        (replace(RECIPE, data="abd"), RUN),
        (replace(RECIPE, trainer=replace(RECIPE.trainer, members=2)), RUN),
        (replace(RECIPE, trainer=replace(RECIPE.trainer, variant=DropInputs())), RUN),
        (replace(RECIPE, trainer=replace(RECIPE.trainer, config=TrainConfig(batch_size=5))), RUN),
    ],
)
def test_other_settings_are_other_models(tmp_path: Path, stored: StoredModel, recipe: Recipe, run: Run) -> None:
    store = ModelStore(tmp_path)
    store.put(RECIPE, RUN, stored)
    assert store.get(recipe, run) is None


def test_the_penalty_and_mixup_of_the_config_do_not_count(tmp_path: Path) -> None:
    """The run's own do."""
    other = replace(RECIPE, trainer=replace(RECIPE.trainer, config=TrainConfig(batch_size=4, penalty=0.7, mixup=0.3)))
    assert ModelStore(tmp_path).path(other, RUN) == ModelStore(tmp_path).path(RECIPE, RUN)


@pytest.mark.parametrize("name", ["*.npy", "card.json"])
def test_a_damaged_model_counts_as_missing(tmp_path: Path, stored: StoredModel, name: str) -> None:
    store = ModelStore(tmp_path)
    store.put(RECIPE, RUN, stored)
    file = min(store.path(RECIPE, RUN).glob(name))
    file.write_bytes(file.read_bytes()[:-3])
    assert store.get(RECIPE, RUN) is None
    store.put(RECIPE, RUN, stored)
    assert store.get(RECIPE, RUN) is not None


def test_trainings_of_other_runs_keep_their_states_apart(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    assert store.parts(RECIPE, [RUN]) != store.parts(RECIPE, [RUN, replace(RUN, seed=1)])


def test_a_training_that_was_stopped_is_found_by_what_is_missing(tmp_path: Path) -> None:
    """Also when another study has finished some of its runs since."""
    store, runs = ModelStore(tmp_path), tuple(Run(seed, 0.1, 1.0) for seed in range(4))
    assert store.begun(RECIPE, runs[2:], runs) == runs[2:]
    folder = store.begin(RECIPE, runs[1:])
    assert folder == store.parts(RECIPE, runs[1:])
    assert store.begun(RECIPE, runs[2:], runs) == store.begun(RECIPE, runs[3:], runs) == runs[1:]
    assert store.begun(RECIPE, runs[:2], runs) == runs[:2]  # one of them has not begun
    assert store.begun(RECIPE, runs[2:], runs[2:]) == runs[2:]  # another run would be trained that is not wanted
    assert store.begun(replace(RECIPE, updates=20), runs[2:], runs) == runs[2:]
    (folder / "runs.json").write_text("cut o")
    assert store.begun(RECIPE, runs[2:], runs) == runs[2:]


def test_the_version_is_raised_when_training_changes() -> None:
    """The same recipe must make the same model; where this fails on purpose, raise VERSIONS["models"]."""
    trainer = replace(RECIPE.trainer, config=TrainConfig(batch_size=4, penalty_start=0, penalty_stop=2))
    begun = trainer.init(jax.random.key(0))
    data, settings = random_transitions(trainer.layout, 32), trainer.settings(0.1, 1.0)
    state, _ = trainer.train(begun, settings, data, jax.random.key(1), 3)

    def along(model: Model) -> float:
        """The parameters along a fixed direction."""
        leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(model)]
        return float(sum(leaf @ np.cos(np.arange(leaf.size)) for leaf in leaves))

    assert VERSIONS["models"] == 3
    assert along(begun.model) == pytest.approx(22.94785, rel=1e-4)
    assert along(state.model) - along(begun.model) == pytest.approx(0.01697, rel=1e-2)
