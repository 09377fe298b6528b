"""The public functions, by the examples in their docstrings, and that everything public explains itself."""

import doctest
import inspect
from pathlib import Path
from typing import Any, NoReturn

import pytest

import elden
from elden.storage.files import write_json
from elden.storage.folder import RunFolderError
from elden.studies import detection
from elden.training.run import TrainingRun
from elden.worlds.base import World
from elden.worlds.thawing import Thawing


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the order in which they are written: one begins a run, the next continues it."""
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(verbose=False)
    shared: dict[str, Any] = {"elden": elden}
    for name in ("train", "resume", "evaluate", "detect", "compare"):
        for case in finder.find(getattr(elden, name), name, globs=shared):
            assert case.examples, name
            case.globs = shared
            assert runner.run(case, clear_globs=False).failed == 0
    assert runner.tries > 8


@pytest.mark.parametrize("name", sorted(set(elden.__all__) - {"__version__"}))
def test_everything_public_is_there_and_explains_itself(name: str) -> None:
    public = getattr(elden, name)
    if inspect.isfunction(public) or inspect.isclass(public):
        said = inspect.getdoc(public) or ""
        assert len(said) > 20
        assert not said.startswith(f"{name}("), "what Python makes up for a dataclass without a docstring"


def test_a_bonus_beside_a_config_with_another_is_refused() -> None:
    config = elden.training_preset("plus", "thawing", "rnd")
    with pytest.raises(ValueError, match="bonus='none' given beside a config with 'rnd'"):
        elden.train("thawing", "none", config=config)
    with pytest.raises(ValueError, match="no bonus 'rnds'; did you mean 'rnd'"):
        elden.compare(["thawing"], ["rnds"], "runs/nothing")


def test_a_comparison_refuses_cells_of_another_one(tmp_path: Path) -> None:
    world, config = elden.make("thawing", max_steps=5), elden.training_preset("plus", "thawing", "none")
    TrainingRun(world, config, tmp_path / "short-none")
    with pytest.raises(RunFolderError, match="seeds"):
        elden.compare({"short": world}, ["none"], tmp_path, seeds=4)
    write_json(tmp_path / "short-none" / "summary.json", {"seeds": []})  # finished or not
    with pytest.raises(RunFolderError, match="seeds"):
        elden.compare({"short": world}, ["none"], tmp_path, seeds=4)
    with pytest.raises(ValueError, match="two cells have the folder 'a-b-none'"):
        elden.compare({"a b": world, "a-b": world}, ["none"], tmp_path)


def test_detection_in_a_continuous_world_mixes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[elden.DetectConfig] = []

    def stop(_world: World, config: elden.DetectConfig, **_options: object) -> NoReturn:
        configs.append(config)
        raise StopIteration

    monkeypatch.setattr(detection, "detect", stop)
    for continuous in (False, True):
        with pytest.raises(StopIteration):
            elden.detect(elden.make("chain", continuous=continuous))
    assert [config.train.mixup for config in configs] == [1.0, 0.0]


def test_comparisons_that_cannot_be_are_refused(tmp_path: Path) -> None:
    class Mine(Thawing):
        pass

    for worlds, bonuses, at_once, words in (
        ([], ["none"], 1, "each needs one at least"),
        (["thawing"], [], 1, "each needs one at least"),
        (["thawing"], ["none"], 0, "each needs one at least"),
        (["thawing --max-steps 5"], ["none"], 1, "a world with options has a title"),
        ({"mine": Mine()}, ["none"], 1, "'mine' is a world of your own"),
    ):
        with pytest.raises(ValueError, match=words):
            elden.compare(worlds, bonuses, tmp_path, at_once=at_once)
    assert not list(tmp_path.iterdir())
