"""Runs over devices: what is learnt does not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import assert_equal
from dynamics_cases import random_transitions, small_layout
from jaxtyping import Array, Float

from elden.dynamics.config import TrainConfig
from elden.dynamics.runs import ModelTraining, Run
from elden.dynamics.spread import Spread
from elden.dynamics.training import Trainer

LAYOUT = small_layout()
TRAINER = Trainer(LAYOUT, TrainConfig(batch_size=4, penalty=0.1, penalty_start=2, penalty_stop=4))


@pytest.mark.parametrize(("runs", "devices"), [(1, 1), (2, 2), (3, 2), (4, 2), (5, 1)])
def test_runs_are_dealt_out_and_collected(runs: int, devices: int) -> None:
    spread = Spread(runs, devices)
    tree = {"a": jnp.arange(runs * 2.0).reshape(runs, 2), "b": jax.random.split(jax.random.key(0), runs)}
    dealt = spread.deal(tree)
    assert len(dealt["a"].devices()) == devices
    assert dealt["a"].shape[0] == -(-runs // devices) * devices

    def both(x: Float[Array, "run 2"], shared: Float[Array, ""]) -> Float[Array, "run 2"]:
        return x * shared

    function = jax.jit(spread.over(both, (True, False)))
    made = spread.collect(function(dealt["a"], spread.copy(jnp.float32(3))))
    np.testing.assert_array_equal(made, 3 * np.asarray(tree["a"]))
    assert len(made.devices()) == 1
    assert_equal(jax.random.key_data(spread.collect(dealt)["b"]), jax.random.key_data(tree["b"]))


def test_no_more_devices_than_runs() -> None:
    assert Spread.here(1) == Spread(1, 1)
    assert Spread.here(7) == Spread(7, jax.local_device_count()) == Spread(7, 2)


@pytest.mark.slow
def test_a_run_is_the_same_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    training = ModelTraining(TRAINER, tuple(Run(seed, 0.1) for seed in range(3)), random_transitions(LAYOUT, 32), 6)
    spread = training.finish()
    monkeypatch.setattr(Spread, "here", classmethod(lambda cls, runs: cls(runs, 1)))
    alone = training.finish()
    for one, other in zip(jax.tree.leaves(spread.models), jax.tree.leaves(alone.models), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    assert spread.skipped.tolist() == [0, 0, 0]
