"""ELDEN: exploration via local dependencies, on JAX.

`import elden` registers the Gymnasium environments. The public names are imported when first used, so that the import
itself stays quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from elden.registration import register_all

if TYPE_CHECKING:
    from elden.bonuses.intrinsic import IntrinsicReward
    from elden.bonuses.registry import BonusConfig
    from elden.factors import Continuous, Discrete, Entity, Factors, Variable
    from elden.training.presets import training_preset
    from elden.worlds.registry import make

__version__ = "0.1.0"

_HOMES = {
    "BonusConfig": "elden.bonuses.registry",
    "Continuous": "elden.factors",
    "Discrete": "elden.factors",
    "Entity": "elden.factors",
    "Factors": "elden.factors",
    "IntrinsicReward": "elden.bonuses.intrinsic",
    "Variable": "elden.factors",
    "make": "elden.worlds.registry",
    "training_preset": "elden.training.presets",
}

__all__ = [
    "BonusConfig",
    "Continuous",
    "Discrete",
    "Entity",
    "Factors",
    "IntrinsicReward",
    "Variable",
    "__version__",
    "make",
    "training_preset",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'elden' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


register_all()
