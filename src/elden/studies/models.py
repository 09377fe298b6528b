"""Trained models by what decided them, so that no study trains a model that another one has trained.

Tables 1 and 2 share models, a time limit cuts a study in two, and several processes can train different methods on one
device: each model has its own folder, named by the digest of everything that decides its parameters.
"""

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from elden.dynamics.checkpoint import VariantCard, load_model, save_model
from elden.dynamics.runs import Run, Speed, StoredModel
from elden.dynamics.training import Trainer
from elden.provenance import provenance
from elden.storage.arrays import VERSIONS, DamagedDataError, remove_damaged
from elden.storage.cards import factors_to_json
from elden.storage.files import StorageError, read_json, write_json
from elden.storage.plain import plain

_RUNS = "runs.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a model, its run apart.

    Attributes:
        trainer: Shape and training.
        updates: How many updates.
        segment: Updates between two returns to the host, which random keys are made for.
        data: Digest of the training data.
    """

    trainer: Trainer
    updates: int
    segment: int
    data: str

    def describe(self, run: Run) -> dict[str, object]:
        """The whole of it as JSON."""
        layout, config = self.trainer.layout, self.trainer.config
        settled = replace(config, penalty=run.penalty, mixup=run.mixup)
        described = plain(
            {
                "version": VERSIONS["models"],
                "factors": factors_to_json(layout.factors),
                "action": layout.action,
                "network": layout.network,
                "train": settled,
                "variant": asdict(VariantCard.of(self.trainer.variant)),
                "members": self.trainer.members,
                "seed": run.seed,
                "updates": self.updates,
                "segment": self.segment,
                "data": self.data,
            }
        )
        if not isinstance(described, dict):
            raise TypeError(f"a description is an object, not {described!r}")
        return described


@dataclass(frozen=True)
class ModelStore:
    """A folder of models."""

    folder: Path

    def path(self, recipe: Recipe, run: Run) -> Path:
        """Where this model is, or would be."""
        text = json.dumps(recipe.describe(run), sort_keys=True)
        name = f"{VariantCard.of(recipe.trainer.variant).name.lower()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        return self.folder / name

    def get(self, recipe: Recipe, run: Run) -> StoredModel | None:
        """The model, if it is there and whole."""
        path = self.path(recipe, run)
        if not path.exists():
            return None
        try:
            saved = load_model(path)
            return StoredModel(saved.model, *_figures(saved.card, recipe.describe(run)))
        except DamagedDataError as error:
            _log.warning("a damaged model is trained again: %s", error)
            return None

    def parts(self, recipe: Recipe, runs: Sequence[Run]) -> Path:
        """Where the states of these runs' training are kept until it is done."""
        names = "".join(self.path(recipe, run).name for run in runs)
        return self.folder / f"part-{hashlib.sha256(names.encode()).hexdigest()[:16]}"

    def begin(self, recipe: Recipe, runs: Sequence[Run]) -> Path:
        """The same, with a list of the runs in it, so that `begun` finds it."""
        folder = self.parts(recipe, runs)
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / _RUNS, [self.path(recipe, run).name for run in runs])
        return folder

    def end(self, recipe: Recipe, runs: Sequence[Run]) -> None:
        """Remove what `begin` has made, once the states in it are gone."""
        folder = self.parts(recipe, runs)
        (folder / _RUNS).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()

    def begun(self, recipe: Recipe, missing: Sequence[Run], group: Sequence[Run]) -> tuple[Run, ...]:
        """The runs of a stopped training that has all missing runs in it; the missing ones if there is none.

        Other studies may have finished some of its runs since; its states are still those of all of them.

        Args:
            recipe: What the runs have in common.
            missing: The runs that are wanted.
            group: All runs that the training may have.
        """
        of_name = {self.path(recipe, run).name: run for run in group}
        wanted = {self.path(recipe, run).name for run in missing}
        for file in sorted(self.folder.glob(f"part-*/{_RUNS}")):
            try:
                names = read_json(file)
            except StorageError:
                continue
            if isinstance(names, list) and wanted <= set(names) <= set(of_name):
                return tuple(of_name[name] for name in names)
        return tuple(missing)

    def put(self, recipe: Recipe, run: Run, stored: StoredModel) -> None:
        """Keep a model."""
        speed = stored.speed
        card = {
            "recipe": recipe.describe(run),
            "skipped": stored.skipped,
            "speed": {"compile_s": speed.compile_s, "train_s": speed.train_s, "updates": speed.updates},
            "provenance": provenance(),
        }
        trainer = recipe.trainer
        config = replace(trainer.config, penalty=run.penalty, mixup=run.mixup)
        remove_damaged(self.path(recipe, run), "models")
        save_model(self.path(recipe, run), replace(trainer, config=config), stored.model, card)


def _figures(card: Mapping[str, object], wanted: Mapping[str, object]) -> tuple[int, Speed]:
    skipped, speed = card.get("skipped"), card.get("speed")
    if card.get("recipe") != wanted or not isinstance(skipped, int) or not isinstance(speed, Mapping):
        raise DamagedDataError("its card does not say how it was made")
    return skipped, Speed(float(speed["compile_s"]), float(speed["train_s"]), int(speed["updates"]))
