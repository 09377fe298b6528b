"""Named settings of the study of detectors: the paper's, and one for a quick look.

Worlds are named here only where the paper has settings of their own for them; any other world takes the default.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from elden.dynamics.config import KITCHEN_NETWORK
from elden.names import nearest_names
from elden.studies.config import DetectConfig

Preset: TypeAlias = Literal["quick", "paper"]

_Changes: TypeAlias = Mapping[str, object]


@dataclass(frozen=True)
class _Settings:
    """What all worlds share, and what is of one world alone."""

    common: _Changes
    of_world: Mapping[str, _Changes]


_KITCHEN_SIZES: _Changes = {name: getattr(KITCHEN_NETWORK, name) for name in ("features", "mlp", "head_size")}

_PRESETS: dict[str, _Settings] = {
    "paper": _Settings(
        common={},
        of_world={
            "thawing": {"penalty": 1e-2},
            "kitchen": {
                **_KITCHEN_SIZES,
                "mixup": 0.0,
                "penalty": 1e-4,
                "penalty_start": 100_000,
                "penalty_stop": 200_000,
            },
        },
    ),
    "quick": _Settings(
        common={
            "children": "entity",
            "features": (32, 32),
            "mlp": (32, 32),
            "heads": 2,
            "updates": 5000,
            "segment": 500,
            "learning_rate": 1e-3,
            "seeds": 2,
            "transitions": 100_000,
            "eval_episodes": 25,
        },
        of_world={"thawing": {"penalty": 1e-2}, "kitchen": {"mixup": 0.0, "penalty": 1e-4}},
    ),
}


def detection_preset(name: str, world: str, continuous: bool = False) -> DetectConfig:
    """The settings of a preset for a world.

    `paper` is the paper's table "Parameters of the dynamics model training", with the λ that its Table 2 finds best for
    the world (10⁻³ where the paper says nothing). `quick` takes smaller networks whose children are entities, and few
    updates.

    Args:
        name: Which preset.
        world: Name of the world.
        continuous: Whether no variable of it is discrete; then there is nothing to mix, and no mixup.

    Raises:
        ValueError: There is no such preset.
    """
    if name not in _PRESETS:
        raise ValueError(f"no preset {name!r}; {nearest_names(name, _PRESETS)}")
    settings = _PRESETS[name]
    mixup: _Changes = {"mixup": 0.0} if continuous else {}
    return DetectConfig().changed(**{**settings.common, **mixup, **settings.of_world.get(world, {})})
