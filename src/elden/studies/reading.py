"""Graphs of any transitions, read with a model that a run has left."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num

from elden.dynamics.checkpoint import load_model
from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.dynamics.runs import ModelTraining, Run
from elden.dynamics.training import Model, Trainer
from elden.factors import Discrete, Factors, Kind
from elden.graphs.base import Detector, Reference, Scheduled, changed
from elden.graphs.evaluate import convert, score_transitions
from elden.graphs.registry import detector_named
from elden.graphs.thresholds import automatic
from elden.names import nearest_names
from elden.storage.arrays import DamagedDataError, read_arrays, remove_damaged, write_arrays
from elden.storage.files import StorageError, read_json, refuse_links
from elden.storage.folder import SUMMARY
from elden.studies.config import GRANULARITIES, GraphGranularity
from elden.studies.errors import StudyError
from elden.transitions import Transitions

_EXAMPLES = 256
"""Transitions whose values detectors try."""
_MOST = 4096
"""Transitions from which a threshold is chosen."""
_REFERENCE = "reference"
_PARTS = ("obs", "action", "next_obs")


@runtime_checkable
class Steps(Protocol):
    """Transitions: those that a buffer holds, a part of collected data, or anything else that has these."""

    @property
    def obs(self) -> Num[np.ndarray | Array, "time width"]:
        """Flat observations, as the world's factors lay them out."""

    @property
    def action(self) -> Num[np.ndarray | Array, "time *components"]:
        """The actions taken."""

    @property
    def next_obs(self) -> Num[np.ndarray | Array, "time width"]:
        """Flat observations after the step."""


@dataclass(frozen=True, repr=False)
class GraphReader:
    """A detector with one trained model.

    Attributes:
        detector: How graphs are read.
        layout: What the model predicts and reads.
        model: Every leaf begins with the axis member.
        reference: What the training data show of continuous variables: how far they move, and which values they have.
        granularity: What destinations and sources of the graphs are.
        threshold: An edge is there where its score is at least this; the run's automatic threshold for all edges.
    """

    detector: Detector
    layout: Layout
    model: Model
    reference: Reference
    granularity: GraphGranularity
    threshold: float

    def __repr__(self) -> str:
        return f"GraphReader({self.detector!r}, granularity={self.granularity!r}, threshold={self.threshold:.3g})"

    @property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of destinations and sources."""
        dst, src = GRANULARITIES[self.granularity]
        return self.layout.names(dst), self.layout.factors.source_names(src)

    def scores(self, steps: Steps, chunk: int | None = None) -> Float[np.ndarray, "time dst src"]:
        """Scores of all edges of some transitions: the higher, the more likely a dependency.

        The action is the last source. They are scored `chunk` at a time; None takes what suits the devices.

        Raises:
            StudyError: They are not transitions of the factors that the model has learnt.
        """
        self._check(steps)
        given = Transitions(*map(jnp.asarray, (steps.obs, steps.action, steps.next_obs)))
        models: Model = jax.tree.map(lambda leaf: leaf[None], self.model)
        scored = score_transitions(self.detector, self.layout, models, given, self.reference, chunk)[0]
        return convert(scored, self.layout, self.detector.sources(self.layout), *GRANULARITIES[self.granularity])

    def graphs(self, steps: Steps, chunk: int | None = None) -> Bool[np.ndarray, "time dst src"]:
        """Which edges are there; see `scores`."""
        return self.scores(steps, chunk) >= self.threshold

    def _check(self, steps: Steps) -> None:
        factors = self.layout.factors
        for name, obs in (("obs", steps.obs), ("next_obs", steps.next_obs)):
            if obs.ndim != 2 or obs.shape[1] != factors.width:
                known = f"[time, {factors.width}]: {', '.join(factors.variable_names)}"
                raise StudyError(f"{name} of shape {obs.shape} given; the model reads {known}")
            try:
                factors.checked(np.asarray(obs))
            except ValueError as error:
                raise StudyError(f"{name}: {error}") from None


def load_reader(folder: Path | str, method: str, seed: int | None = None) -> GraphReader:
    """The detector, as it is registered, and a model of a run, ready to read graphs.

    Args:
        folder: Run folder that `elden detect` has left, or that of one world of `elden reproduce`.
        method: Which row of its table: a detector, or a λ of table 2.
        seed: Which of its models; None takes the first.

    Raises:
        StudyError: There is no finished run, method or seed of this name, or its models were not kept.
        DamagedDataError: The model is not as it was written.
    """
    path = Path(folder)
    refuse_links(path)
    try:
        summary: Any = read_json(path / SUMMARY)
    except StorageError:
        inside = sorted(str(other.parent) for other in path.glob(f"*/{SUMMARY}"))
        there = f"; there are {', '.join(inside)}" if inside else ""
        raise StudyError(f"{path} holds no finished run: it has no readable {SUMMARY}{there}") from None
    methods = summary.get("methods") if isinstance(summary, dict) else None
    if not isinstance(methods, dict):
        raise StudyError(f"{path / SUMMARY} does not hold the results of detectors")
    if method not in methods:
        raise StudyError(f"the run in {path} has no method {method!r}; {nearest_names(method, methods)}")
    seeds = {known["seed"]: known for known in methods[method]["seeds"]}
    chosen = seeds.get(next(iter(seeds)) if seed is None else seed)
    if chosen is None:
        raise StudyError(f"seed={seed} given; the run in {path} has {', '.join(map(str, seeds))}")
    if summary.get("models") is None or chosen.get("model") is None:
        raise StudyError(f"the models of the run in {path} were not kept")
    saved = load_model(path / summary["models"] / chosen["model"])
    detector = detector_named(methods[method]["detector"])
    reference = load_reference(path, saved.layout)
    return GraphReader(detector, saved.layout, saved.model, reference, summary["level"], chosen["auto_threshold"])


def learn_reader(
    factors: Factors,
    actions: Kind | int,
    steps: Steps,
    detector: Detector | str = "intervention",
    *,
    network: NetworkConfig | None = None,
    train: TrainConfig | None = None,
    updates: int = 2000,
    seed: int = 0,
) -> GraphReader:
    """A detector with a model that has learnt from transitions of your own, at its automatic threshold.

    Args:
        factors: What observations are made of.
        actions: What kind actions are, or how many there are.
        steps: The transitions.
        detector: What reads graphs, or its name.
        network: The network; None takes small ones, one for each variable.
        train: How it learns; None takes settings for few updates.
        updates: Updates of the model.
        seed: Decides its first weights and the order of transitions.
    """
    chosen = detector_named(detector) if isinstance(detector, str) else detector
    config = train or TrainConfig(learning_rate=1e-3, mixup=0.0, penalty=1e-3 if chosen.penalised else 0.0)
    config = config.within(updates)
    if isinstance(chosen, Scheduled):
        chosen = chosen.fitted(config, updates)
    sizes = network or NetworkConfig(features=(32,), heads=2, head_size=8, mlp=(32, 32))
    layout = Layout(factors, Discrete(actions) if isinstance(actions, int) else actions, sizes)
    seen = Transitions(*map(jnp.asarray, (steps.obs, steps.action, steps.next_obs)))
    run = Run(seed, config.penalty if chosen.penalised else 0.0, config.mixup)
    trained = ModelTraining(Trainer(layout, config, chosen.variant), (run,), seen, num_updates=updates).finish().models
    model: Model = jax.tree.map(lambda leaf: leaf[0], trained)
    reference = Reference.of(layout, seen.obs, seen.action, seen.next_obs, _EXAMPLES)
    granularity: GraphGranularity = "entity" if sizes.children == "entity" else "variable"
    reader = GraphReader(chosen, layout, model, reference, granularity, 0.0)
    some = seen[jnp.asarray(np.random.default_rng(seed).permutation(seen.action.shape[0])[:_MOST])]
    happened = changed(layout, encode(layout, some.obs, some.action, some.next_obs), reference)
    mask = factors.edge_mask(*GRANULARITIES[granularity])
    threshold = automatic(reader.scores(some), np.asarray(happened), mask, chosen.threshold_rule)
    return replace(reader, threshold=threshold)


def save_reference(folder: Path, seen: Transitions, values: int) -> None:
    """Keep the transitions of the training data that detectors know continuous variables by.

    Args:
        folder: Run folder.
        seen: The transitions, from which it is learnt how far continuous variables move.
        values: How many of them show which values these have.
    """
    arrays = {name: np.asarray(getattr(seen, name)) for name in _PARTS}
    remove_damaged(folder / _REFERENCE, "transitions")
    write_arrays(folder / _REFERENCE, "transitions", arrays, {"values": values})


def load_reference(folder: Path, layout: Layout) -> Reference:
    """What `save_reference` has kept, as detectors read it.

    Raises:
        DamagedDataError: It is not as it was written.
    """
    arrays, card = read_arrays(folder / _REFERENCE, "transitions")
    values = card.get("values")
    if set(arrays) != set(_PARTS) or not isinstance(values, int):
        raise DamagedDataError(f"{folder / _REFERENCE} does not hold transitions")
    obs, action, next_obs = (jnp.asarray(arrays[name]) for name in _PARTS)
    return Reference.of(layout, obs, action, next_obs, values)
