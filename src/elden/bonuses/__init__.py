"""Intrinsic rewards: of a step, beside that of the task."""

from typing import TYPE_CHECKING

from elden.lazy import lazily

if TYPE_CHECKING:
    from elden.bonuses.base import AnyBonus, Bonus, Space
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
    "make_bonus",
]

_HOMES = {
    "AnyBonus": "elden.bonuses.base",
    "BONUSES": "elden.bonuses.registry",
    "Bonus": "elden.bonuses.base",
    "BonusConfig": "elden.bonuses.registry",
    "EnsembleConfig": "elden.bonuses.ensemble",
    "FitConfig": "elden.bonuses.fitted",
    "GateConfig": "elden.bonuses.model_based",
    "IntrinsicReward": "elden.bonuses.intrinsic",
    "Space": "elden.bonuses.base",
    "make_bonus": "elden.bonuses.registry",
}
__getattr__, __dir__ = lazily(__name__, _HOMES)
