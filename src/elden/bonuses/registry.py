"""The bonuses by name."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elden.bonuses.base import AnyBonus, Space
from elden.bonuses.beside import Beside
from elden.bonuses.cai import ActionInfluence
from elden.bonuses.changes import ChangeConfig, ChangeSurprise
from elden.bonuses.cig import InformationGain
from elden.bonuses.composite import Composite, Mode
from elden.bonuses.counts import GraphCount, StateCount
from elden.bonuses.curiosity import Curiosity
from elden.bonuses.curiosity_critic import CuriosityCritic
from elden.bonuses.dependency import DependencyConfig, DependencySurprise, EdgeCount
from elden.bonuses.disagreement import Disagreement, Measure
from elden.bonuses.e3b import E3b
from elden.bonuses.elden import Consensus, Dependencies
from elden.bonuses.ensemble import UPDATES, EnsembleConfig
from elden.bonuses.fitted import FitConfig
from elden.bonuses.icm import Icm
from elden.bonuses.influence import ChangeCount, CountConfig, InfluenceCount
from elden.bonuses.model_based import GateConfig, ModelBonus, Signal
from elden.bonuses.nothing import Nothing
from elden.bonuses.noveld import NovelD
from elden.bonuses.rnd import Rnd
from elden.graphs.base import Detector, Scheduled
from elden.graphs.registry import DETECTORS, detector_named
from elden.names import nearest_names


@dataclass(frozen=True)
class BonusConfig:
    """Settings of all bonuses; each takes what it needs."""

    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    """The dynamics models that a bonus reads, or those beside it (`models`)."""
    models: bool = False
    """Let dynamics models (`ensemble`) learn beside a bonus that reads none, for local graphs to be read from them."""
    fit: FitConfig = field(default_factory=FitConfig)
    """The networks of rnd, icm, e3b, noveld and the critic of curiosity-critic."""
    change: ChangeConfig = field(default_factory=ChangeConfig)
    """The questions and networks of change-surprise."""
    count: CountConfig = field(default_factory=CountConfig)
    """How influence-count and change-count count."""
    dependency: DependencyConfig = field(default_factory=DependencyConfig)
    """The networks of dependency-surprise, and how it and edge-count read graphs."""
    gate: GateConfig = field(default_factory=GateConfig)
    """Which children count, of a bonus that is read from an ensemble."""
    once: bool = False
    """Reward an edge (elden) or a child (others that are read from an ensemble) only once in an episode."""
    detector: str = "gradient"
    """What reads local graphs."""
    threshold: float = 3e-4
    """ε, from which score on an edge is there."""
    automatic_threshold: bool = False
    """Set the threshold again with every update, from unlabelled steps."""
    measure: Measure = "votes"
    """What disagreement is."""
    parts: tuple[str, ...] = ("elden", "curiosity")
    """The bonuses of a composite."""
    weights: tuple[float, ...] = (1.0, 1.0)
    """Their weights."""
    mode: Mode = "sum"
    """Whether they are added everywhere, or only where the reward of the first one is above 0."""

    def __post_init__(self) -> None:
        if not all(map(math.isfinite, (self.threshold, *self.weights))):
            raise ValueError(f"threshold={self.threshold}, weights={self.weights} given; they must be finite")
        if self.detector not in DETECTORS:
            raise ValueError(f"detector={self.detector!r} given; {nearest_names(self.detector.lower(), DETECTORS)}")
        for part in self.parts:
            if part not in BONUSES or part == "composite":
                others = [name for name in BONUSES if name != "composite"]
                raise ValueError(f"parts={self.parts} given, with {part!r}; {nearest_names(part.lower(), others)}")
        if not self.parts or len(self.parts) != len(self.weights):
            raise ValueError(f"parts={self.parts}, weights={self.weights} given; a mix needs a weight for each part")


def _from_models(signal: Callable[[BonusConfig], Signal]) -> Callable[[Space, BonusConfig], AnyBonus]:
    def make(space: Space, config: BonusConfig) -> ModelBonus:
        return ModelBonus(space, signal(config), config.ensemble, config.gate, config.once, config.threshold)

    return make


def _check_members(config: BonusConfig) -> None:
    if config.ensemble.members < 2:
        raise ValueError(f"ensemble.members={config.ensemble.members} given; one member alone cannot disagree")


def _detector(config: BonusConfig) -> Detector:
    """What reads graphs, its schedules fitted to the training.

    Inputs get their price when derivatives would, but no later than over the second tenth of the updates, as in the
    paper.
    """
    detector = detector_named(config.detector)
    if not isinstance(detector, Scheduled):
        return detector
    updates = config.ensemble.schedule or UPDATES
    return detector.fitted(config.ensemble.train.within(updates), updates)


def _elden(config: BonusConfig) -> Dependencies:
    _check_members(config)
    return Dependencies(_detector(config), config.automatic_threshold)


def _disagreement(config: BonusConfig) -> Disagreement:
    _check_members(config)
    return Disagreement(config.measure)


def _cig(space: Space, config: BonusConfig) -> ModelBonus:
    _check_members(config)
    return ModelBonus(space, InformationGain(), config.ensemble, config.gate, config.once)


def _curiosity_critic(space: Space, config: BonusConfig) -> CuriosityCritic:
    return CuriosityCritic(ModelBonus(space, Curiosity(), config.ensemble, config.gate, config.once), config.fit)


def _graph_count(space: Space, config: BonusConfig) -> GraphCount:
    signal = Consensus(_detector(config), config.automatic_threshold)
    return GraphCount(ModelBonus(space, signal, config.ensemble, threshold=config.threshold))


def _dependency(space: Space, config: BonusConfig) -> DependencySurprise:
    return DependencySurprise(_graph_count(space, config).consensus, config.dependency)


def _composite(space: Space, config: BonusConfig) -> Composite:
    alone = replace(config, models=False)  # models beside a mix are beside all of it
    return Composite(tuple(make_bonus(part, space, alone) for part in config.parts), config.weights, config.mode)


@dataclass(frozen=True)
class Entry:
    """A bonus in the registry.

    Attributes:
        make: Makes it.
        reads: The settings of `BonusConfig` that it reads.
        by_episode: Whether its rewards depend on what the episode has already shown.
    """

    make: Callable[[Space, BonusConfig], AnyBonus]
    reads: tuple[str, ...] = ()
    by_episode: Callable[[BonusConfig], bool] = lambda _: False


_MODELS = ("ensemble", "gate", "once")
_EDGES = ("detector", "threshold", "automatic_threshold")


def _once(config: BonusConfig) -> bool:
    return config.once


def _always(_: BonusConfig) -> bool:
    return True


BONUSES: dict[str, Entry] = {
    "elden": Entry(_from_models(_elden), (*_MODELS, *_EDGES), _once),
    "disagreement": Entry(_from_models(_disagreement), (*_MODELS, "measure"), _once),
    "curiosity": Entry(_from_models(lambda _: Curiosity()), _MODELS, _once),
    "cai": Entry(_from_models(lambda _: ActionInfluence()), _MODELS, _once),
    "cig": Entry(_cig, _MODELS, _once),
    "curiosity-critic": Entry(_curiosity_critic, (*_MODELS, "fit"), _once),
    "none": Entry(lambda _space, _config: Nothing()),
    "rnd": Entry(lambda space, config: Rnd(space, config.fit), ("fit",)),
    "icm": Entry(lambda space, config: Icm(space, config.fit), ("fit",)),
    "change-surprise": Entry(
        lambda space, config: ChangeSurprise(space, config.change), ("change",), lambda config: config.change.once
    ),
    "influence-count": Entry(lambda space, config: InfluenceCount(space, config.count), ("count",), _always),
    "change-count": Entry(lambda space, config: ChangeCount(space, config.count), ("count",), _always),
    "dependency-surprise": Entry(
        _dependency, ("dependency", "ensemble", *_EDGES), lambda config: config.dependency.once
    ),
    "edge-count": Entry(
        lambda space, config: EdgeCount(_dependency(space, config)), ("dependency", "ensemble", *_EDGES), _always
    ),
    "e3b": Entry(lambda space, config: E3b(space, config.fit), ("fit",), _always),
    "noveld": Entry(lambda space, config: NovelD(space, config.fit), ("fit",), _always),
    "state-count": Entry(lambda space, _config: StateCount(space)),
    "graph-count": Entry(_graph_count, ("ensemble", *_EDGES)),
    "composite": Entry(_composite, ("parts", "weights", "mode")),
}
"""Every bonus by its name. To add one: write its file and name it here."""


def settings_read(name: str, config: BonusConfig) -> frozenset[str]:
    """The settings of `BonusConfig` that a bonus reads; a composite also those of its parts."""
    parts = config.parts if name == "composite" else ()
    read = frozenset(BONUSES[name].reads).union(*(BONUSES[part].reads for part in parts))
    if "ensemble" in read:
        return read
    return read | {"models"} | ({"ensemble", "detector"} if config.models else frozenset())


def depends_on_episode(name: str, config: BonusConfig) -> bool:
    """Whether the rewards of a bonus depend on what the episode has already shown, and not only on the step."""
    parts = config.parts if name == "composite" else (name,)
    return any(BONUSES[part].by_episode(config) for part in parts)


def make_bonus(name: str, space: Space, config: BonusConfig | None = None, **changes: object) -> AnyBonus:
    """A bonus by its name.

    Args:
        name: Which one.
        space: What states and actions are.
        config: Its settings.
        changes: Settings of `BonusConfig` that differ.

    Raises:
        ValueError: There is no such bonus, or a setting is impossible.
    """
    if name not in BONUSES:
        raise ValueError(f"no bonus {name!r}; {nearest_names(name.lower(), BONUSES)}")
    settings = replace(config or BonusConfig(), **changes)  # type: ignore[arg-type]
    bonus = BONUSES[name].make(space, settings)
    if not settings.models or _reads_models(name, settings):
        return bonus
    return Beside(bonus, ModelBonus(space, Consensus(_detector(settings)), settings.ensemble))


def _reads_models(name: str, config: BonusConfig) -> bool:
    return "ensemble" in settings_read(name, replace(config, models=False))
