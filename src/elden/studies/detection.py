"""The study of detectors in one world: train, measure on unseen episodes, and leave a run folder.

Rows whose models have the same variant of the network are trained side by side in one program, with seeds and values of
λ as one axis; a row that needs the same models as another one shares them. Only the held-out episodes have labels, and
only the measures see them: thresholds that are called automatic come from unlabelled training transitions.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from elden.dynamics.layout import Layout
from elden.dynamics.runs import ModelTraining, Run, StoredModel, Trained
from elden.dynamics.training import Model, Trainer
from elden.dynamics.variants import Variant
from elden.factors import Discrete
from elden.graphs.base import Detector, Reference
from elden.graphs.evaluate import Scored, convert, default_chunk, time_scores
from elden.graphs.gradient import Gradient
from elden.provenance import provenance
from elden.storage.files import refuse_links, write_csv, write_json
from elden.storage.folder import RunFolder, check_same
from elden.storage.plain import differences, plain
from elden.storage.resumable import Deadline
from elden.studies.config import GRANULARITIES, DetectConfig, Row, method_rows
from elden.studies.dataset import CollectConfig, Dataset, Split, collect
from elden.studies.errors import StudyError
from elden.studies.measuring import (
    all_into_changed,
    all_transitions,
    break_down,
    entities_changed,
    file_rows,
    held_out,
    measure_all,
    sample,
    self_edges_alone,
)
from elden.studies.models import ModelStore, Recipe
from elden.studies.reading import save_reference
from elden.studies.results import Detection, RowResult, slug
from elden.transitions import Transitions
from elden.worlds.base import World
from elden.worlds.registry import world_card

TYPICAL_OF = 8192
"""Transitions from which it is learnt how far continuous variables move."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told what is being done, how much of it has been done, and how much there is."""


@dataclass(frozen=True)
class Group:
    """Models that are trained side by side.

    Attributes:
        name: Names the group's checkpoint.
        variant: The variant of the network.
        runs: Seeds and settings.
    """

    name: str
    variant: Variant
    runs: tuple[Run, ...]


def groups_of(rows: Sequence[Row], seeds: Sequence[int]) -> tuple[Group, ...]:
    """Which models are trained together: all seeds and settings of one variant."""
    runs: dict[Variant, dict[Run, None]] = {}
    for row in rows:
        runs.setdefault(row.detector.variant, {}).update(dict.fromkeys(_runs(row, seeds)))
    names: list[str] = []
    for variant in runs:
        name = type(variant).__name__.lower()
        names.append(name if name not in names else f"{name}-{len(names)}")
    return tuple(Group(name, variant, tuple(runs[variant])) for name, variant in zip(names, runs, strict=True))


def _runs(row: Row, seeds: Sequence[int]) -> list[Run]:
    return [Run(seed, row.penalty, row.mixup) for seed in seeds]


def detect(
    world: World,
    config: DetectConfig,
    rows: Sequence[Row] | None = None,
    dataset: Dataset | None = None,
    folder: Path | None = None,
    *,
    models: Path | None = None,
    deadline: Deadline = Deadline(),  # noqa: B008 (frozen)
    progress: Progress | None = None,
    command: str | None = None,
    figures: bool = True,
) -> Detection:
    """Train the rows' models, and measure the rows.

    Args:
        world: Where the data come from; it knows the true graphs.
        config: How to train and measure.
        rows: What to compare; None compares the methods of the config.
        dataset: Collected transitions of this world; None collects them now, in memory.
        folder: Where the run folder is, or will be; None leaves nothing behind.
        models: Where models are kept; None takes the run folder's checkpoints. Models that are already there, from
            whatever study, are not trained again.
        deadline: When to stop; what has been done is in the folder then.
        progress: Told what is going on.
        command: Command line for the records; None takes the one of this process.
        figures: Whether figures are drawn into the folder.

    Raises:
        OutOfTimeError: The deadline has passed; call again to continue.
        StudyError: Data of another world, a folder of another run, too few held-out episodes.
    """
    began = time.perf_counter()
    config, rows = _settled(config, rows)
    description = _description(world, config, rows)
    if folder is not None:
        sharing = f", which can share its models (--models {folder / 'checkpoints' if models is None else models})"
        check_same(folder, description, sharing)  # before anything takes time
    if dataset is None:
        dataset = _collect(world, config, progress)
    _check_world(world, dataset)
    study = _Study(world, config, dataset, deadline, progress)
    if folder is not None:
        study.folder = RunFolder(folder, {**description, "data": _data(dataset)}, sharing)
        models = study.folder.checkpoints if models is None else models
    if models is not None:
        refuse_links(models)
        study.store = ModelStore(models)
    with nullcontext() if study.folder is None else study.folder.locked():
        if study.folder is not None:
            save_reference(study.folder.path, study.seen, config.reference)
        try:
            groups = {group: study.train(group) for group in groups_of(rows, config.all_seeds)}
            results = study.measure(rows, groups, figures)
        finally:  # also when it is stopped
            if study.folder is not None:
                study.folder.close()
    detection = Detection(
        world=world,
        config=config,
        rows=results,
        groups={group.name: trained for group, trained in groups.items()},
        models=None if models is None else os.path.relpath(models, folder or Path()),
        self_edges_alone={each: self_edges_alone(world.factors, study.held, each) for each in config.granularities},
        all_into_changed={each: all_into_changed(world.factors, study.held, each) for each in config.granularities},
        num_transitions=study.held.graph.shape[0],
        wall_s=time.perf_counter() - began,
        origin=provenance(command),
    )
    if study.folder is not None:
        study.folder.write_summary(detection.summary())
    return detection


def _settled(config: DetectConfig, rows: Sequence[Row] | None) -> tuple[DetectConfig, tuple[Row, ...]]:
    """The settings with what was left to the devices, and the rows."""
    config = config.changed(chunk=config.chunk or default_chunk())
    return config, method_rows(config) if rows is None else tuple(rows)


def _collect(world: World, config: DetectConfig, progress: Progress | None) -> Dataset:
    tell = None if progress is None else lambda done, total: progress("collecting transitions", done, total)
    try:
        return collect(world, CollectConfig(config.transitions, config.epsilon, seed=config.seed), progress=tell)
    except ValueError as error:
        raise StudyError(str(error)) from None


def _check_world(world: World, dataset: Dataset) -> None:
    wanted = plain(world_card(world))
    if changed := differences(dataset.card.get("world"), wanted):
        raise StudyError(f"the data are of another world ({changed}); collect data of this one")
    meanings = {
        "factors": (dataset.factors, world.factors),
        "actions": (dataset.action_names, world.action_names),
        "events": (dataset.event_names, world.book.events),
    }
    for name, (theirs, ours) in meanings.items():
        if theirs != ours:
            raise StudyError(f"the data have other {name} than {world.name} has now; collect them again")


def _description(world: World, config: DetectConfig, rows: Sequence[Row]) -> dict[str, object]:
    """Everything that decides the results, the data apart."""
    named = {row.name: {"penalty": row.penalty, "mixup": row.mixup, **_named(row.detector)} for row in rows}
    return {"world": world_card(world), "detect": config, "rows": named}


def _data(dataset: Dataset) -> dict[str, object]:
    """Which data, and how they were collected."""
    parts = {"train": _fingerprint(dataset.train), "held_out": _fingerprint(dataset.held_out)}
    return {**parts, "collected": dataset.card.get("config")}


def _named(thing: object) -> dict[str, object]:
    """The class and the settings of something frozen."""
    settings = asdict(thing) if is_dataclass(thing) and not isinstance(thing, type) else {}
    return {"class": type(thing).__name__, **settings}


def _fingerprint(split: Split) -> str:
    digest = hashlib.sha256()
    for part in (split.obs, split.action, split.next_obs):
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


class _Study:
    """What all steps of a study need."""

    def __init__(
        self,
        world: World,
        config: DetectConfig,
        dataset: Dataset,
        deadline: Deadline,
        progress: Progress | None,
    ) -> None:
        self.world, self.config, self.deadline, self.progress = world, config, deadline, progress
        self.folder: RunFolder | None = None
        self.store: ModelStore | None = None
        self.layout = Layout(world.factors, Discrete(world.num_actions), config.network)
        self.held = held_out(dataset, config.eval_episodes)
        self.data = all_transitions(dataset.train)
        self.unlabelled = sample(dataset.train, config.threshold_transitions)
        self.fingerprint = _fingerprint(dataset.train)
        self.seen = seen = sample(dataset.train, max(config.reference, TYPICAL_OF), seed=1)
        self.reference = Reference.of(self.layout, seen.obs, seen.action, seen.next_obs, config.reference)

    def tell(self, what: str, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(what, done, total)

    def train(self, group: Group) -> Trained:
        """The models of a group: those that are stored, and the others trained side by side."""
        store, recipe = self.store, self._recipe(group.variant)
        known = {} if store is None else {run: store.get(recipe, run) for run in group.runs}
        missing = tuple(run for run in group.runs if known.get(run) is None)
        found = {run: model for run, model in known.items() if model is not None}
        if missing:
            begun = missing if store is None else store.begun(recipe, missing, group.runs)
            found = self._train_missing(group.name, recipe, begun) | found
        else:
            self.tell(f"{group.name} networks were trained before", len(found), len(found))
        models: Model = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(found[run].model for run in group.runs))
        skipped = np.array([found[run].skipped for run in group.runs], np.int32)
        return Trained(models, tuple(found[run].speed for run in group.runs), skipped)

    def _recipe(self, variant: Variant) -> Recipe:
        """What decides the models of a variant."""
        config = self.config
        trainer = Trainer(self.layout, config.train, variant, config.members)
        return Recipe(trainer, config.updates, config.segment, self.fingerprint)

    def _train_missing(self, name: str, recipe: Recipe, runs: tuple[Run, ...]) -> dict[Run, StoredModel]:
        """Train these runs and store them."""
        folder, store = self.folder, self.store
        what = f"updates of {len(runs)} {name} networks"

        def log(stage: str, step: int, metrics: dict[str, list[float]]) -> None:
            if folder is not None:
                folder.log(step, {f"{name}-{stage}/{metric}": value for metric, value in metrics.items()})

        def restored(stage: str, update: int) -> None:
            if folder is not None:  # a run that was killed may have logged more than it kept
                folder.forget(f"{name}-{stage}/", update)

        training = ModelTraining(
            trainer=recipe.trainer,
            runs=runs,
            data=self.data,
            num_updates=recipe.updates,
            segment=recipe.segment,
            folder=None if store is None else store.begin(recipe, runs),
            identity={"runs": [recipe.describe(run) for run in runs]},
            deadline=self.deadline,
            progress=lambda done, total, _: self.tell(what, done, total),
            log=log,
            restored=restored,
        )
        self.tell(what, 0, training.total)
        trained = training.finish()
        stored = {run: trained.stored(i) for i, run in enumerate(runs)}
        if store is not None:
            for run, model in stored.items():
                if store.get(recipe, run) is None:
                    store.put(recipe, run, model)
            training.forget()
            store.end(recipe, runs)
        return stored

    def measure(self, rows: Sequence[Row], groups: Mapping[Group, Trained], figures: bool) -> tuple[RowResult, ...]:
        """All rows, one after the other. Measuring is short beside training, so no time limit cuts it."""
        results: list[RowResult] = []
        for number, row in enumerate(rows):
            self.tell("measuring", number, len(rows))
            group = next(group for group in groups if group.variant == row.detector.variant)
            results.append(self._row(row, group, groups[group], figures))
        self.tell("measuring", len(rows), len(rows))
        known = [result.cost_s for result in results if isinstance(result.row.detector, Gradient)]
        unit_s = known[0] if known else self._gradient_s(next(iter(groups.values())))
        return tuple(replace(result, relative_cost=result.cost_s / unit_s) for result in results)

    def _gradient_s(self, trained: Trained) -> float:
        """What `gradient` takes for one transition and one model. It reads only what every variant has."""
        models = trained.take(range(self.config.seeds))
        return self._score(Gradient(), models, self.held.transitions).cost_s

    def _score(self, detector: Detector, models: Model, transitions: Transitions) -> Scored:
        return time_scores(detector, self.layout, models, transitions, self.reference, self.config.chunk)

    def _row(self, row: Row, group: Group, trained: Trained, figures: bool) -> RowResult:
        granularity, sources = self.config.main_granularity, row.detector.sources(self.layout)
        recipe = self._recipe(group.variant)
        runs = _runs(row, self.config.all_seeds)
        index = [group.runs.index(run) for run in runs]
        models = trained.take(index)
        scored = self._score(row.detector, models, self.held.transitions)
        beside = self._score(row.detector, models, self.unlabelled)
        if wrong := int((~np.isfinite(scored.scores)).sum() + (~np.isfinite(beside.scores)).sum()):
            raise StudyError(
                f"{wrong} scores of {row.name} are not finite, so its models have diverged; train it with a smaller"
                " learning_rate, or leave it out: models that are done are kept"
            )
        changed = entities_changed(self.layout.factors, self.unlabelled)
        seeds = measure_all(scored.scores, beside.scores, changed, row.detector, self.layout, self.held, self.config)
        first = seeds[0][granularity]
        here = convert(scored.scores[0], self.layout, sources, *GRANULARITIES[granularity])
        best = first.between.threshold
        threshold = best if math.isfinite(best) else first.between.auto_threshold
        result = RowResult(
            row=row,
            seeds=seeds,
            cost_s=min(scored.cost_s, beside.cost_s),
            relative_cost=math.nan,
            updates_per_s=trained.speeds[index[0]].updates_per_s,
            skipped=tuple(trained.skipped[index].tolist()),
            runs=tuple(runs),
            models=tuple(None if self.store is None else self.store.path(recipe, run).name for run in runs),
            breakdown=break_down(here, threshold, granularity, self.held, self.world.book),
        )
        self._record(result)
        if figures:
            self._draw(result, here, models)
        return result

    def _record(self, result: RowResult) -> None:
        """Metrics and tables of a row."""
        if self.folder is None:
            return
        lines = {
            f"{result.row.name}/{granularity}/{name}": [seed[granularity].numbers()[name] for seed in result.seeds]
            for granularity in self.config.granularities
            for name in ("roc_auc", "f1", "auto_f1")
        }
        if not self.folder.finished:  # else the lines are there
            self.folder.forget(f"{result.row.name}/")
            self.folder.log(self.config.updates, lines)
        name = slug(result.row.name)
        edges, types = file_rows(result.breakdown.edges), file_rows(result.breakdown.types)
        write_csv(self.folder.tables / f"{name}-edges.csv", edges)
        write_csv(self.folder.tables / f"{name}-types.csv", types)
        write_json(
            self.folder.tables / f"{name}.json",
            {
                "level": self.config.main_granularity,
                "threshold": result.breakdown.threshold,
                "edges": edges,
                "types": types,
            },
        )

    def _draw(self, result: RowResult, scores: Float[np.ndarray, "time dst src"], models: Model) -> None:
        """Figures of a row."""
        if self.folder is None:
            return
        # Figures need matplotlib, which takes a while to load.
        from elden.studies.figures import draw_row

        def score_episode(steps: Transitions) -> Float[np.ndarray, "step dst src"]:
            detector = result.row.detector
            scored = self._score(detector, models, steps).scores[0]
            return convert(scored, self.layout, detector.sources(self.layout), "entity", "entity")

        draw_row(self.folder.media, self.world, self.config.main_granularity, result, self.held, scores, score_episode)
