"""Models on disk."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import jax
import numpy as np
import pytest
from cases import assert_equal
from dynamics_cases import DISCRETE, MIXED, small_layout

from elden.dynamics.checkpoint import VariantCard, load_model, save_model
from elden.dynamics.config import TrainConfig
from elden.dynamics.training import Model, Trainer
from elden.dynamics.variants import Plain
from elden.factors import Continuous
from elden.graphs.attention_mask import Kernel
from elden.graphs.input_mask import LearntMask
from elden.storage.arrays import DamagedDataError, read_arrays, write_arrays

CONFIG = TrainConfig(batch_size=8, clip=3.0, penalty_start=5)
TRAINER = Trainer(small_layout(DISCRETE), CONFIG, members=2)


@lru_cache
def model_of(trainer: Trainer) -> Model:
    model: Model = jax.jit(trainer.init)(jax.random.key(0)).model
    return model


TRAINERS = [
    TRAINER,
    Trainer(replace(small_layout(MIXED, "entity"), action=Continuous(2, -1, 1)), CONFIG, Kernel(signature=4)),
    Trainer(small_layout(DISCRETE), replace(CONFIG, precision="bfloat16"), LearntMask(stop=70_000), members=2),
]


@pytest.mark.parametrize("trainer", TRAINERS, ids=["plain", "kernel", "mask"])
def test_saved_models_come_back_bit_for_bit(trainer: Trainer, tmp_path: Path) -> None:
    model = model_of(trainer)
    save_model(tmp_path / "model", trainer, model, {"world": "thawing"})
    saved = load_model(tmp_path / "model")
    assert jax.tree.structure(saved.model) == jax.tree.structure(model)  # type: ignore[operator]
    assert_equal(saved.model, model)
    assert saved.trainer(trainer.variant) == trainer
    assert saved.card == {"world": "thawing"}
    assert saved.variant == VariantCard.of(trainer.variant)


def test_leading_axes_are_kept(tmp_path: Path) -> None:
    model = jax.jit(jax.vmap(TRAINER.init))(jax.random.split(jax.random.key(0), 3)).model
    save_model(tmp_path / "runs", TRAINER, model)
    assert_equal(load_model(tmp_path / "runs").model, model)
    single: Model = jax.tree.map(lambda leaf: leaf[0, 0], model)
    save_model(tmp_path / "single", TRAINER, single)
    assert_equal(load_model(tmp_path / "single").model, single)


def test_other_models_and_variants_are_refused(tmp_path: Path) -> None:
    other = Trainer(small_layout(MIXED), CONFIG, members=2)
    model = model_of(TRAINER)
    with pytest.raises(ValueError, match="another layout"):
        save_model(tmp_path / "model", other, model)
    save_model(tmp_path / "model", TRAINER, model)
    with pytest.raises(ValueError, match="LearntMask"):
        load_model(tmp_path / "model").trainer(LearntMask())
    assert load_model(tmp_path / "model").trainer(Plain()).members == 2


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    model = model_of(TRAINER)
    save_model(folder, TRAINER, model)
    arrays, card = read_arrays(folder, "models")
    for name, changed, about, message in (
        ("no card", arrays, {}, "does not give 'factors'"),
        ("lost field", arrays, {**card, "network": {"heads": 2}}, "NetworkConfig has heads; expected are"),
        ("bad field", arrays, {**card, "train": {**dict(card["train"]), "clip": -1.0}}, "clip=-1.0"),  # type: ignore[call-overload]
        ("bad variant", arrays, {**card, "variant": {"name": "Plain"}}, "a name and options"),
        ("lost array", {k: v for k, v in arrays.items() if k != "net.head.bias"}, card, "no model of its layout"),
        (
            "other type",
            {**arrays, "net.head.bias": arrays["net.head.bias"].astype(np.float64)},
            card,
            "expected is float32",
        ),
    ):
        write_arrays(tmp_path / name, "models", changed, about)
        with pytest.raises(DamagedDataError, match=message):
            load_model(tmp_path / name)
    with next(folder.glob("net.head.bias.*.npy")).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    with pytest.raises(DamagedDataError, match="changed or cut off"):
        load_model(folder)
