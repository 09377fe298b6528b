"""The public functions, by the examples in their docstrings, and that everything public explains itself."""

import doctest
import inspect
from pathlib import Path
from typing import Any

import pytest

import elden


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
        assert len(inspect.getdoc(public) or "") > 20


def test_a_bonus_beside_a_config_with_another_is_refused() -> None:
    config = elden.training_preset("plus", "thawing", "rnd")
    with pytest.raises(ValueError, match="bonus='none' given beside a config with 'rnd'"):
        elden.train("thawing", "none", config=config)
    with pytest.raises(ValueError, match="no bonus 'rnds'; did you mean 'rnd'"):
        elden.compare(["thawing"], ["rnds"], "runs/nothing")
