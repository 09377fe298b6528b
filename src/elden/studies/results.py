"""The results of a study of detectors."""

from collections.abc import Mapping
from dataclasses import dataclass

from elden.dynamics.runs import Run, Trained
from elden.graphs.metrics import mean_and_error
from elden.studies.config import DetectConfig, GraphGranularity, Row
from elden.studies.measuring import Breakdown, GranularityResult
from elden.worlds.base import World
from elden.worlds.registry import world_card


@dataclass(frozen=True)
class RowResult:
    """The results of one row of the table.

    Attributes:
        row: The detector, and how its models were trained.
        seeds: For each seed the measures at every granularity.
        cost_s: Time to score one transition with one model.
        relative_cost: The same, as a multiple of what `gradient` takes.
        updates_per_s: Model updates by the second of the group in which its models were trained.
        skipped: Updates of each seed that were skipped because they were not finite.
        runs: Seed and settings of each seed's model.
        models: Its name in the folder of models; None where models are not kept.
        breakdown: Of the first seed, at the first granularity.
    """

    row: Row
    seeds: tuple[dict[GraphGranularity, GranularityResult], ...]
    cost_s: float
    relative_cost: float
    updates_per_s: float
    skipped: tuple[int, ...]
    runs: tuple[Run, ...]
    models: tuple[str | None, ...]
    breakdown: Breakdown

    def statistics(self, granularity: GraphGranularity) -> dict[str, tuple[float, float]]:
        """Mean over seeds and standard error of every number at a granularity."""
        numbers = [seed[granularity].numbers() for seed in self.seeds]
        return {name: mean_and_error([one[name] for one in numbers]) for name in numbers[0]}

    def summary(self) -> dict[str, object]:
        """The result as the run folder has it."""
        main = next(iter(self.seeds[0]))
        means = {granularity: self.statistics(granularity) for granularity in self.seeds[0]}
        return {
            "detector": self.row.detector.name,
            "penalty": self.row.penalty,
            "mixup": self.row.mixup,
            "seeds": [
                {
                    "seed": run.seed,
                    "model": model,
                    **granularities[main].numbers(),
                    "updates_per_s": self.updates_per_s,
                    "skipped": skipped,
                }
                for run, model, granularities, skipped in zip(
                    self.runs, self.models, self.seeds, self.skipped, strict=True
                )
            ],
            "levels": {
                granularity: {
                    "mean": {name: mean for name, (mean, _) in means[granularity].items()},
                    "standard_error": {name: error for name, (_, error) in means[granularity].items()},
                    "seeds": [seed[granularity].numbers() for seed in self.seeds],
                }
                for granularity in means
            },
            "cost_s": self.cost_s,
            "relative_cost": self.relative_cost,
            "updates_per_s": self.updates_per_s,
        }


@dataclass(frozen=True)
class Detection:
    """The results of a study in one world.

    Attributes:
        world: The world.
        config: How detectors were trained and measured.
        rows: The results of each of them.
        groups: The trained models.
        models: Where they are kept, as seen from the run folder; None where they are not.
        self_edges_alone: ROC-AUC and F1 over all edges, at every granularity, of a graph of self-edges alone.
        all_into_changed: At every granularity, what `all_into_changed` says of a graph of self-edges and all edges
            into what changed.
        num_transitions: Number of measured transitions.
        wall_s: Seconds that all of it took.
        origin: Command, versions, device and date.
    """

    world: World
    config: DetectConfig
    rows: tuple[RowResult, ...]
    groups: Mapping[str, Trained]
    models: str | None
    self_edges_alone: Mapping[GraphGranularity, tuple[float, float]]
    all_into_changed: Mapping[GraphGranularity, Mapping[str, float]]
    num_transitions: int
    wall_s: float
    origin: Mapping[str, str | int]

    def summary(self) -> dict[str, object]:
        """All of it, as `summary.json` has it."""
        return {
            "kind": "detection",
            "world": world_card(self.world),
            "level": self.config.main_granularity,
            "eval_episodes": self.config.eval_episodes,
            "eval_transitions": self.num_transitions,
            "self_edges_alone": {
                granularity: {"roc_auc": auc, "f1": f1} for granularity, (auc, f1) in self.self_edges_alone.items()
            },
            "all_into_changed": dict(self.all_into_changed),
            "methods": {result.row.name: result.summary() for result in self.rows},
            "models": self.models,
            "training": {
                name: {
                    "compile_s": trained.speed.compile_s,
                    "train_s": trained.speed.train_s,
                    "updates": trained.speed.updates,
                    "updates_per_s": trained.speed.updates_per_s,
                    "skipped": trained.skipped,
                }
                for name, trained in self.groups.items()
            },
            "wall_s": self.wall_s,
            "provenance": dict(self.origin),
        }


def slug(name: str) -> str:
    """A row's name as a file name."""
    words = "".join(letter if letter.isalnum() or letter in ".-" else " " for letter in name.replace("λ", "lambda"))
    return "-".join(words.split())
