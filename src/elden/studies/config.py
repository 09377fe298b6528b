"""What a study of detectors is: its settings, and the rows of the table that it makes."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal, TypeAlias

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.factors import Granularity
from elden.graphs.base import Detector, Scheduled
from elden.graphs.registry import DETECTORS, detector_named
from elden.names import nearest_names
from elden.studies.dataset import CollectConfig

GraphGranularity: TypeAlias = Literal["entity", "variable", "variable-from-entity"]
"""What destinations and sources are when scores are measured: both entities, both variables, or variables that depend
on entities."""

GRANULARITIES: dict[GraphGranularity, tuple[Granularity, Granularity]] = {
    "entity": ("entity", "entity"),
    "variable-from-entity": ("variable", "entity"),
    "variable": ("variable", "variable"),
}
"""Destination and source of each granularity."""


@dataclass(frozen=True)
class DetectConfig:
    """How detectors are trained and measured."""

    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The networks."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Their training."""
    methods: tuple[str, ...] = tuple(DETECTORS)
    """The detectors to compare."""
    seeds: int = 3
    """Independent models of each kind."""
    seed: int = 0
    """First of their seeds; it also decides which data are collected."""
    members: int = 1
    """Members of an ensemble; their scores are averaged."""
    updates: int = 500_000
    """Updates of each model. Where they differ from the preset's, λ's rise and the schedules of masks keep their places
    within the training."""
    segment: int = 1000
    """Updates made by one call of the compiled program: progress, saving and the time limit come between two calls.
    Their batches are in memory at the same time."""
    transitions: int = 500_000
    """Transitions to collect, held-out ones included, where no data are given."""
    epsilon: float = CollectConfig.epsilon
    """Share of random actions in the training data, where no data are given; in measured episodes it is 0.1."""
    eval_episodes: int = 50
    """Held-out episodes that are measured; the last transition of each is left out."""
    threshold_transitions: int = 1000
    """Unlabelled transitions of the training data from whose scores the automatic threshold comes."""
    reference: int = 256
    """Transitions of the training data that show detectors which values continuous variables have."""
    granularity: tuple[GraphGranularity, ...] = ()
    """At which granularities to measure, the first being that of the tables and figures; where none is named, all that
    the networks allow."""
    chunk: int = 0
    """Transitions that are scored at a time; 0 takes 256 on CPUs and 1,024 on GPUs."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name in (
            "seeds",
            "members",
            "updates",
            "segment",
            "transitions",
            "eval_episodes",
            "threshold_transitions",
            "reference",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} given; it must be 1 or more")
        if self.chunk < 0:
            raise ValueError(f"chunk={self.chunk} given; it must be 1 or more, or 0 for what suits the devices")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} given; it must lie between 0 and 2**31 - 1")
        if not 0 <= self.epsilon <= 1:
            raise ValueError(f"epsilon={self.epsilon} given; it must be a share, from 0 to 1")
        if not self.methods:
            raise ValueError(f"no methods given; name one or more of {', '.join(DETECTORS)}")
        for name in self.methods:
            detector_named(name)
        _check_distinct("methods", self.methods)
        _check_distinct("granularity", self.granularity)
        for granularity in self.granularity:
            if granularity not in GRANULARITIES:
                raise ValueError(f"no granularity {granularity!r}; {nearest_names(granularity, GRANULARITIES)}")
            if self.network.children == "entity" and GRANULARITIES[granularity][0] == "variable":
                raise ValueError(
                    f"granularity={in_words(self.granularity)} with children=entity given; networks whose children are"
                    " entities can only be measured at the granularity entity: take children=variable, or that"
                )

    @property
    def all_seeds(self) -> range:
        """The seeds of the models of each kind."""
        return range(self.seed, self.seed + self.seeds)

    @property
    def main_granularity(self) -> GraphGranularity:
        """The granularity of the tables and figures."""
        return self.granularities[0]

    @property
    def granularities(self) -> tuple[GraphGranularity, ...]:
        """All granularities that are measured."""
        coarse = self.network.children == "entity"
        return self.granularity or tuple(
            granularity for granularity in GRANULARITIES if not coarse or GRANULARITIES[granularity][0] == "entity"
        )

    def value(self, name: str) -> object:
        """The value of a setting by its own name, wherever it stands.

        Raises:
            ValueError: There is no such setting.
        """
        home = _home(name)
        return getattr(getattr(self, home) if home else self, name)

    def changed(self, **values: object) -> "DetectConfig":
        """The same with other values, each by its own name, wherever it stands.

        The penalty's rise keeps its place within the training when only `updates` is changed.

        Raises:
            ValueError: A name that is not there, or a value that is not allowed.
        """
        parts: dict[str, dict[str, object]] = {"": {}, "network": {}, "train": {}}
        for name, value in values.items():
            parts[_home(name)][name] = value
        updates = values.get("updates")
        if isinstance(updates, int) and updates > 0:
            share = updates / self.updates
            for name in ("penalty_start", "penalty_stop"):
                parts["train"].setdefault(name, round(getattr(self.train, name) * share))
        network = replace(self.network, **parts["network"])  # type: ignore[arg-type]
        train = replace(self.train, **parts["train"])  # type: ignore[arg-type]
        return replace(self, **{"network": network, "train": train, **parts[""]})  # type: ignore[arg-type]


SETTINGS: Mapping[str, str] = {
    **{option.name: "train" for option in fields(TrainConfig)},
    **{option.name: "network" for option in fields(NetworkConfig)},
    **{option.name: "" for option in fields(DetectConfig) if option.name not in ("train", "network")},
}
"""Every setting by its own name, and the part of a config that it stands in; "" is the config itself."""


def _home(name: str) -> str:
    if name not in SETTINGS:
        raise ValueError(f"no setting {name!r}; {nearest_names(name, SETTINGS)}")
    return SETTINGS[name]


def in_words(value: object) -> str:
    """A setting's value as it is written on a command line."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Row:
    """One row of a table: a detector, and how its models are trained."""

    name: str
    detector: Detector
    penalty: float
    mixup: float


def method_rows(config: DetectConfig) -> tuple[Row, ...]:
    """A row for each method, as the paper's Table 1 has it; only penalised methods have λ above 0."""
    rows = []
    for name in config.methods:
        detector = scheduled(detector_named(name), config)
        rows.append(Row(name, detector, config.train.penalty if detector.penalised else 0.0, config.train.mixup))
    return tuple(rows)


def scheduled(detector: Detector, config: DetectConfig) -> Detector:
    """The detector with the schedules of its variant, if it has any, fitted to the training."""
    return detector.fitted(config.train, config.updates) if isinstance(detector, Scheduled) else detector


def _check_distinct(name: str, values: tuple[str, ...]) -> None:
    if len(set(values)) < len(values):
        raise ValueError(f"{name}={values} given; each may be named once")
