"""Training that can stop and go on: the same bits as without a stop, and what is kept meanwhile."""

from dataclasses import replace
from pathlib import Path

import pytest
from cases import assert_equal
from dynamics_cases import ACTION, DISCRETE, random_transitions

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.runs import ModelTraining, Run
from elden.dynamics.training import Trainer
from elden.storage.resumable import Deadline, OutOfTimeError

LAYOUT = Layout(DISCRETE, ACTION, NetworkConfig("entity", "entity", (4,), heads=1, head_size=2, mlp=(4,)))
CONFIG = TrainConfig(batch_size=4, penalty_start=4, penalty_stop=8)
RUNS = (Run(1, 0.1), Run(0, 0.0), Run(0, 0.1))


def training(folder: Path | None, **values: object) -> ModelTraining:
    made = ModelTraining(Trainer(LAYOUT, CONFIG), RUNS, random_transitions(LAYOUT, 64), 8, 2, folder, {"kind": "test"})
    return replace(made, **values)  # type: ignore[arg-type]


def in_sittings(made: ModelTraining) -> tuple[ModelTraining, int]:
    """The training, stopped as early as it can be until it has ended, and how often it was stopped."""
    for stops in range(20):
        try:
            replace(made, deadline=Deadline.after(0)).finish()
        except OutOfTimeError:
            continue
        return made, stops
    raise AssertionError("it never ends")


@pytest.mark.slow
def test_a_training_that_is_stopped_everywhere_ends_with_the_same_bits(tmp_path: Path) -> None:
    expected = training(None).finish()
    stopped, stops = in_sittings(training(tmp_path / "plain"))
    # Two segments for all, two without and two with the penalty; the first of each stage is always trained.
    assert stops == 3
    result = stopped.finish()
    assert_equal(result.models, expected.models)
    assert result.speed.updates == expected.speed.updates == 2 * 4 + 3 * 4
    assert_equal(result.skipped, expected.skipped)
    stopped.forget()
    assert not (tmp_path / "plain").exists()


@pytest.mark.slow
def test_priorities_are_kept_too(tmp_path: Path) -> None:
    trainer = Trainer(LAYOUT, replace(CONFIG, priority=0.5))
    expected = training(None, trainer=trainer, runs=RUNS[1:2]).finish()
    stopped, stops = in_sittings(training(tmp_path / "plain", trainer=trainer, runs=RUNS[1:2]))
    assert stops == 3
    assert_equal(stopped.finish().models, expected.models)


@pytest.mark.slow
def test_progress_and_log(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    logged: list[tuple[str, int, int]] = []
    training(
        None,
        progress=lambda done, total, metrics: told.append((done, total)),
        log=lambda stage, step, metrics: logged.append((stage, step, len(metrics["loss/nll"]))),
    ).finish()
    assert told == [(4, 20), (8, 20), (10, 20), (12, 20), (16, 20), (20, 20)]
    assert logged == [
        ("begin", 2, 2),
        ("begin", 4, 2),
        ("free", 6, 1),
        ("free", 8, 1),
        ("penalised", 6, 2),
        ("penalised", 8, 2),
    ]


def test_where_the_newest_state_is_damaged_the_one_before_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = training(None).finish()
    folder = tmp_path / "plain"
    for _ in range(2):
        with pytest.raises(OutOfTimeError, match="time limit"):
            training(folder, deadline=Deadline.after(0)).finish()
    older, newest = sorted((folder / "begin").iterdir())
    assert (older.name, newest.name) == ("000000002", "000000004")
    file = min(newest.glob("*.npy"))
    file.write_bytes(file.read_bytes()[:-1])
    logged: list[tuple[str, int]] = []
    again = training(folder, log=lambda stage, step, metrics: logged.append((stage, step)))
    assert_equal(again.finish().models, expected.models)
    assert logged[0] == ("begin", 4)
    assert "damaged state of training is not used" in caplog.text


def test_states_of_another_training_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    training(folder).finish()
    with pytest.raises(ValueError, match=r"another training \(kind was 'test', now 'other'\)"):
        training(folder, identity={"kind": "other"}).finish()


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(ValueError, match="0 runs of 8 updates in segments of 2 given"):
        training(None, runs=())
