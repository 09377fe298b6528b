"""Named settings of training runs: the paper's, and ours."""

from dataclasses import replace
from typing import Literal, TypeAlias

from elden.agents.ppo import PpoConfig
from elden.bonuses import BonusConfig, EnsembleConfig, GateConfig
from elden.dynamics.config import KITCHEN_NETWORK, NetworkConfig, TrainConfig
from elden.names import HOST, PREFIX, nearest_names
from elden.training.config import LoopConfig, TrainingConfig
from elden.worlds.registry import WORLDS

TrainingPreset: TypeAlias = Literal["paper", "plus"]

_ROLLOUTS = {"thawing": 60, "carwash": 600, "kitchen": 100}  # the paper's "n steps"; it has none for minecraft

DEFAULT_BONUS = {"paper": "elden", "plus": "influence-count"}
"""The bonus of each preset where no other is asked for."""

_PLAIN = ("disagreement", "curiosity", "cai", "cig", "curiosity-critic")
"""Bonuses of others, which are read from the same ensemble: every child counts, without a gate, as in theirs."""


def training_preset(name: str, world: str, bonus: str | None = None) -> TrainingConfig:
    """The settings of a preset for a world.

    `paper` is the paper's table "Parameters of the Policy Learning", and where it is silent what the authors' programs
    do. `plus` is ours.

    Args:
        name: Which preset.
        world: Name of the world; `gym:ID` for an environment of others, and "" for a world of your own.
        bonus: Name of the bonus; without one `paper` has `elden`, and `plus` has `influence-count`. The same agent
            serves all of them, and the same ensemble all that read one; the gate is ELDEN's alone.

    Raises:
        ValueError: There is no such preset, world or bonus.
    """
    presets = {"paper": _paper, "plus": _plus}
    if name not in presets:
        raise ValueError(f"no preset {name!r}; {nearest_names(name, presets)}")
    if world not in ("", HOST, *WORLDS) and not world.startswith(PREFIX):
        raise ValueError(f"no world {world!r}; {nearest_names(world.lower(), WORLDS)} (give '' for one of your own)")
    bonus = bonus or DEFAULT_BONUS[name]
    config = replace(presets[name](world), bonus_name=bonus)
    if bonus in _PLAIN:
        config = replace(config, bonus=replace(config.bonus, gate=GateConfig("none")))
    if name == "plus" and bonus == DEFAULT_BONUS["plus"]:
        config = replace(config, bonus=_with_models(config.bonus, world))
    return config


def _with_models(bonus: BonusConfig, world: str) -> BonusConfig:
    """One small model beside the bonus, which learns most from what it predicts worst: rare dependencies are few.

    Its learning rate falls over the second half of the training. In thawing it keeps every step, since trained agents
    never show again what parts one cause from another, and learns at length: its training runs are short. Positions, as
    in kitchen, take more updates to learn too.
    """
    train = replace(bonus.ensemble.train, batch_size=256, priority=0.5, mixup=0.0)
    updates = {"thawing": 128, "kitchen": 384}.get(world, 96)
    capacity = 128_000 if world == "thawing" else bonus.ensemble.capacity
    ensemble = replace(bonus.ensemble, members=1, updates=updates, capacity=capacity, train=train, anneal_from=0.5)
    return replace(bonus, models=True, detector="intervention", ensemble=ensemble)


def _paper(world: str) -> TrainingConfig:
    rollout = _ROLLOUTS.get(world, 600)
    loop = LoopConfig(
        num_envs=80 if world == "kitchen" else 20,
        rollout=rollout,
        steps=30_000_000,
        warmup_steps=20_000,
        learn_in_warmup=False,
        discount=1.0,
        intrinsic_discount=1.0,
        intrinsic_weight=1.0,
        normalise="none",
        separate_values=False,
        horizon_ends=True,
    )
    ppo = PpoConfig(learning_rate=1e-4, epochs=10, minibatch_size=32, clip=0.1, gae=0.98, value_weight=1.0, entropy=0.0)
    kitchen, prioritised = world == "kitchen", world in ("minecraft", "kitchen")
    train = TrainConfig(
        learning_rate=1e-5, mixup=0.0 if kitchen else 0.1, penalty=0.0, priority=0.5 if prioritised else 0.0
    )
    network = KITCHEN_NETWORK if kitchen else NetworkConfig()
    ensemble = EnsembleConfig(network=network, train=train, capacity=10_000_000, updates=rollout)
    return TrainingConfig(bonus=BonusConfig(ensemble=ensemble, gate=GateConfig("votes")), ppo=ppo, loop=loop, seeds=3)


def _plus(world: str) -> TrainingConfig:
    train = TrainConfig(learning_rate=1e-3, batch_size=128, mixup=0.1, penalty=0.0)
    network = NetworkConfig(children="entity", features=(32, 32), mlp=(32, 32), heads=2)
    bonus = BonusConfig(
        ensemble=EnsembleConfig(network=network, train=train, capacity=500_000, updates=64, chunk=1024),
        gate=GateConfig("surprise"),
        automatic_threshold=True,
    )
    ppo = PpoConfig(learning_rate=1e-3, anneal_from=0.5, minibatch_size=1600, entropy_target=0.3, clip_apart=True)
    steps = {"minecraft": 2_048_000, "kitchen": 1_280_000}
    loop = LoopConfig(steps=steps.get(world, LoopConfig.steps))
    if world == "kitchen":  # nothing to mix where values are continuous; what is rarely seen is learnt from more often
        bonus = replace(bonus, ensemble=replace(bonus.ensemble, train=replace(train, mixup=0.0, priority=0.5)))
    if world == "thawing":
        bonus = replace(bonus, ensemble=replace(bonus.ensemble, updates=8, capacity=100_000, chunk=512))
        ppo = replace(ppo, minibatch_size=160)
        loop = LoopConfig(num_envs=64, rollout=20, steps=128_000, warmup_steps=1_280)
    return TrainingConfig(bonus=bonus, ppo=ppo, loop=loop)
