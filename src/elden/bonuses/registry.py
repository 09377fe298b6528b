"""The bonuses by name."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elden.bonuses.base import AnyBonus, Space
from elden.bonuses.cai import ActionInfluence
from elden.bonuses.composite import Composite, Mode
from elden.bonuses.counts import GraphCount, StateCount
from elden.bonuses.curiosity import Curiosity
from elden.bonuses.disagreement import Disagreement, Measure
from elden.bonuses.elden import Consensus, Dependencies
from elden.bonuses.ensemble import EnsembleConfig
from elden.bonuses.fitted import FitConfig
from elden.bonuses.icm import Icm
from elden.bonuses.model_based import GateConfig, ModelBonus, Signal
from elden.bonuses.nothing import Nothing
from elden.bonuses.rnd import Rnd
from elden.graphs.registry import detector_named
from elden.worlds.registry import nearest_names


@dataclass(frozen=True)
class BonusConfig:
    """Settings of all bonuses; each takes what it needs."""

    ensemble: EnsembleConfig = field(default_factory=EnsembleConfig)
    """The dynamics models that elden, disagreement, curiosity, cai and graph-count read."""
    fit: FitConfig = field(default_factory=FitConfig)
    """The networks of rnd and icm."""
    gate: GateConfig = field(default_factory=GateConfig)
    """Which children count, of a bonus that is read from an ensemble."""
    once: bool = False
    """Pay an edge (elden) or a child (others that are read from an ensemble) only once in an episode."""
    detector: str = "gradient"
    """What elden and graph-count read local graphs with."""
    threshold: float = 3e-4
    """ε, from which score on an edge is there."""
    automatic_threshold: bool = False
    """Set the threshold anew with every update, from unlabelled steps."""
    measure: Measure = "votes"
    """What disagreement is."""
    parts: tuple[str, ...] = ("elden", "curiosity")
    """The bonuses of a composite."""
    weights: tuple[float, ...] = (1.0, 1.0)
    """Their weights."""
    mode: Mode = "sum"
    """Whether they are added everywhere, or only where the first one pays."""


def _from_models(signal: Callable[[BonusConfig], Signal]) -> Callable[[Space, BonusConfig], AnyBonus]:
    def make(space: Space, config: BonusConfig) -> ModelBonus:
        return ModelBonus(space, signal(config), config.ensemble, config.gate, config.once, config.threshold)

    return make


def _graph_count(space: Space, config: BonusConfig) -> GraphCount:
    signal = Consensus(detector_named(config.detector), config.automatic_threshold)
    return GraphCount(ModelBonus(space, signal, config.ensemble, threshold=config.threshold))


def _composite(space: Space, config: BonusConfig) -> Composite:
    if "composite" in config.parts:
        raise ValueError(f"parts={config.parts} given; a composite cannot be a part of itself")
    return Composite(tuple(make_bonus(part, space, config) for part in config.parts), config.weights, config.mode)


BONUSES: dict[str, Callable[[Space, BonusConfig], AnyBonus]] = {
    "elden": _from_models(lambda c: Dependencies(detector_named(c.detector), c.automatic_threshold)),
    "disagreement": _from_models(lambda c: Disagreement(c.measure)),
    "curiosity": _from_models(lambda _: Curiosity()),
    "cai": _from_models(lambda _: ActionInfluence()),
    "none": lambda _space, _config: Nothing(),
    "rnd": lambda space, config: Rnd(space, config.fit),
    "icm": lambda space, config: Icm(space, config.fit),
    "state-count": lambda space, _config: StateCount(space),
    "graph-count": _graph_count,
    "composite": _composite,
}
"""Every bonus by its name. To add one: write its file and name it here."""


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
    return BONUSES[name](space, replace(config or BonusConfig(), **changes))  # type: ignore[arg-type]
