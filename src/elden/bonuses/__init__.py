"""Intrinsic rewards: what a step is worth beyond what the task pays for it."""

from elden.bonuses.base import AnyBonus, Bonus, Space, Steps
from elden.bonuses.ensemble import EnsembleConfig
from elden.bonuses.fitted import FitConfig
from elden.bonuses.intrinsic import IntrinsicReward
from elden.bonuses.model_based import GateConfig
from elden.bonuses.registry import BONUSES, BonusConfig, make_bonus

__all__ = [
    "BONUSES",
    "AnyBonus",
    "Bonus",
    "BonusConfig",
    "EnsembleConfig",
    "FitConfig",
    "GateConfig",
    "IntrinsicReward",
    "Space",
    "Steps",
    "make_bonus",
]
