"""ELDEN: exploration via local dependencies, on JAX.

`import elden` registers the Gymnasium environments. The public names are imported when first used, so that the import
itself stays quick.
"""

from typing import TYPE_CHECKING

from elden.lazy import lazily
from elden.registration import register_all

if TYPE_CHECKING:
    from elden.agents.ppo import PpoConfig
    from elden.api import compare, detect, evaluate, resume, train
    from elden.bonuses.base import Space
    from elden.bonuses.ensemble import EnsembleConfig
    from elden.bonuses.intrinsic import IntrinsicReward
    from elden.bonuses.model_based import GateConfig
    from elden.bonuses.registry import BONUSES, BonusConfig, make_bonus
    from elden.dynamics.config import NetworkConfig, TrainConfig
    from elden.factors import Continuous, Discrete, Entity, Factors, Variable
    from elden.graphs.registry import DETECTORS
    from elden.hosts.world import HostConfig, HostWorld
    from elden.studies.config import DetectConfig
    from elden.studies.dataset import CollectConfig, collect, load_dataset
    from elden.studies.presets import detection_preset
    from elden.studies.reading import GraphReader, learn_reader, load_reader
    from elden.training.config import LoopConfig, TrainingConfig
    from elden.training.evaluation import EvaluationConfig
    from elden.training.host import on_host
    from elden.training.presets import training_preset
    from elden.transitions import Steps, Transitions
    from elden.worlds.registry import WORLDS, make

__version__ = "0.2.0"

__all__ = [
    "BONUSES",
    "DETECTORS",
    "WORLDS",
    "BonusConfig",
    "CollectConfig",
    "Continuous",
    "DetectConfig",
    "Discrete",
    "EnsembleConfig",
    "Entity",
    "EvaluationConfig",
    "Factors",
    "GateConfig",
    "GraphReader",
    "HostConfig",
    "HostWorld",
    "IntrinsicReward",
    "LoopConfig",
    "NetworkConfig",
    "PpoConfig",
    "Space",
    "Steps",
    "TrainConfig",
    "TrainingConfig",
    "Transitions",
    "Variable",
    "__version__",
    "collect",
    "compare",
    "detect",
    "detection_preset",
    "evaluate",
    "learn_reader",
    "load_dataset",
    "load_reader",
    "make",
    "make_bonus",
    "on_host",
    "resume",
    "train",
    "training_preset",
]

_HOMES = {
    "load_dataset": "elden.studies.dataset",
    "HostWorld": "elden.hosts.world",
    "HostConfig": "elden.hosts.world",
    "learn_reader": "elden.studies.reading",
    "GraphReader": "elden.studies.reading",
    "make_bonus": "elden.bonuses.registry",
    "Space": "elden.bonuses.base",
    "BONUSES": "elden.bonuses.registry",
    "BonusConfig": "elden.bonuses.registry",
    "CollectConfig": "elden.studies.dataset",
    "Continuous": "elden.factors",
    "DETECTORS": "elden.graphs.registry",
    "DetectConfig": "elden.studies.config",
    "Discrete": "elden.factors",
    "EnsembleConfig": "elden.bonuses.ensemble",
    "Entity": "elden.factors",
    "EvaluationConfig": "elden.training.evaluation",
    "Factors": "elden.factors",
    "GateConfig": "elden.bonuses.model_based",
    "IntrinsicReward": "elden.bonuses.intrinsic",
    "LoopConfig": "elden.training.config",
    "NetworkConfig": "elden.dynamics.config",
    "PpoConfig": "elden.agents.ppo",
    "Steps": "elden.transitions",
    "TrainConfig": "elden.dynamics.config",
    "TrainingConfig": "elden.training.config",
    "Transitions": "elden.transitions",
    "Variable": "elden.factors",
    "WORLDS": "elden.worlds.registry",
    "collect": "elden.studies.dataset",
    "compare": "elden.api",
    "detect": "elden.api",
    "detection_preset": "elden.studies.presets",
    "evaluate": "elden.api",
    "load_reader": "elden.studies.reading",
    "make": "elden.worlds.registry",
    "on_host": "elden.training.host",
    "resume": "elden.api",
    "train": "elden.api",
    "training_preset": "elden.training.presets",
}
__getattr__, _names = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)


register_all()
