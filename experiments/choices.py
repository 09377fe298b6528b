"""Which score makes a detector, and which rule its threshold: the alternatives behind `gradient` and `intervention`.

    python experiments/choices.py --worlds thawing carwash --out results/detection/detector_choices_quick.json

All alternatives read the same models. Their names say what is read, and then:

    gate     an edge counts only where the child's entity changed; where it did not, only the child's self-edge does
    valid    an edge counts only where the model gave all that happened to the child at least half of the probability
    otsu     the other rule for the automatic threshold (the default of each method is in its class)
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from jaxtyping import Array, Float, Int
from rich.console import Console

import elden
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, forward, likelihood_and_derivative, log_likelihood
from elden.dynamics.training import Model
from elden.graphs.base import Detector, Reference
from elden.graphs.gradient import Gradient, by_source
from elden.graphs.intervention import Intervention, gated, predicted, sum_up, total_variation, try_values
from elden.graphs.pcmi_sampled import PcmiSampled
from elden.graphs.thresholds import Rule
from elden.provenance import provenance
from elden.storage.plain import plain
from elden.studies.config import Row
from elden.studies.detection import detect
from elden.studies.presets import Preset, detection_preset
from elden.studies.tables import detection_table
from elden.viewing import rich_table

Scores = Float[Array, "batch dst src"]
_HIGH = 1e6  # above every score


def gate(layout: Layout, scores: Scores, batch: Batch, reference: Reference) -> Scores:
    """Only what changed has a cause other than itself. Scores below 0, which pcmi has, are no evidence of any."""
    return gated(layout, jnp.maximum(scores, 0.0), batch, reference, _HIGH)


def valid(layout: Layout, scores: Scores, model: Model, batch: Batch) -> Scores:
    """Only what the model predicts rightly tells anything."""
    log_p = log_likelihood(layout, forward(layout, model.net, batch.inputs).out, batch)
    counted: Scores = scores * (log_p.T[..., None] > np.log(0.5))
    return counted


@dataclass(frozen=True)
class GatedGradient(Gradient):
    """`gradient` with the gate of `intervention`, and its rule for the threshold."""

    threshold_rule: ClassVar[Rule] = "otsu"

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Scores:
        """Scores of all edges for one model."""
        return gate(layout, super().scores(layout, model, batch, reference), batch, reference)


@dataclass(frozen=True)
class OtsuGradient(Gradient):
    """`gradient` with the other rule for its threshold."""

    threshold_rule: ClassVar[Rule] = "otsu"


@dataclass(frozen=True)
class PathGradient(Gradient):
    """Derivatives integrated along the path of mixup to other examples: `|∫ ∂log p̂/∂s_i · (s_i − s'_i) dt|`."""

    steps: int = 8
    others: int = 4

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Scores:
        """Scores of all edges for one model."""

        def along(example: Int[Array, ""]) -> Float[Array, "batch child src"]:
            away = reference.inputs[:, :, example][..., None] - batch.inputs

            def at(time: Float[Array, ""]) -> Float[Array, "input child entry batch"]:
                point = Batch(batch.inputs + time * away, batch.target, batch.current)
                return likelihood_and_derivative(layout, model.net, point, self.of)[1]

            times = (jnp.arange(self.steps, dtype=jnp.float32) + 0.5) / self.steps
            slope = jnp.mean(jax.lax.map(at, times), axis=0)
            return jnp.abs(by_source(layout, slope * away[:, None]))

        return jnp.mean(jax.lax.map(along, jnp.arange(self.others)), axis=0)


@dataclass(frozen=True)
class GatedPcmi(PcmiSampled):
    """`pcmi-sampled` with the gate of `intervention`, and its rule for the threshold."""

    threshold_rule: ClassVar[Rule] = "otsu"

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Scores:
        """Scores of all edges for one model."""
        return gate(layout, super().scores(layout, model, batch, reference), batch, reference)


@dataclass(frozen=True)
class Swapped(Intervention):
    """`intervention` with other ways to sum up what the other values of a source do."""

    over: Literal["mean", "max"] = "mean"
    of: Literal["distribution", "observed"] = "distribution"
    valid: bool = False

    def scores(self, layout: Layout, model: Model, batch: Batch, reference: Reference) -> Scores:
        """Scores of all edges for one model."""
        base = predicted(layout, model, batch)

        def probability(batch: Batch) -> Float[Array, "child batch"]:
            return jnp.exp(log_likelihood(layout, forward(layout, model.net, batch.inputs).out, batch))

        def change(tried: Batch) -> Float[Array, "child batch"]:
            if self.of == "distribution":
                return total_variation(layout, base, predicted(layout, model, tried), reference)
            return jnp.abs(probability(tried) - probability(batch))

        scores = sum_up(*try_values(layout, batch, reference, self.samples, change), self.over)
        if self.valid:
            scores = valid(layout, scores, model, batch)
        return gate(layout, scores, batch, reference) if self.gate else scores


@dataclass(frozen=True)
class ChangeIntervention(Intervention):
    """`intervention` with the other rule for its threshold."""

    threshold_rule: ClassVar[Rule] = "change"


ALTERNATIVES: dict[str, Detector] = {
    "gradient: log p, active": Gradient(),
    "gradient: log p, norm": Gradient(entries="norm"),
    "gradient: p, active": Gradient(of="probability"),
    "gradient: p, norm": Gradient(of="probability", entries="norm"),
    "gradient, gate": GatedGradient(),
    "gradient, otsu": OtsuGradient(),
    "gradient along mixup path": PathGradient(),
    "pcmi-sampled": PcmiSampled(),
    "pcmi-sampled, gate": GatedPcmi(),
    "intervention": Intervention(),
    "intervention, no gate": Intervention(gate=False),
    "intervention, change": ChangeIntervention(),
    "intervention, valid": Swapped(valid=True),
    "intervention: max": Swapped(over="max"),
    "intervention: max, no gate": Swapped(over="max", gate=False),
    "intervention: observed": Swapped(of="observed"),
    "intervention: observed, no gate": Swapped(of="observed", gate=False),
    "intervention: 2 values": Intervention(samples=2),
    "intervention: 32 values": Intervention(samples=32),
}


@dataclass(frozen=True)
class Args:
    """What to compare."""

    worlds: tuple[str, ...] = ("thawing", "carwash")
    """In which worlds."""
    preset: Preset = "quick"
    """How models are trained."""
    seeds: int | None = None
    """Models of each kind; None takes the preset's number."""
    models: Path = Path("runs/choices/models")
    """Where models are kept; those of a study with the same settings are used."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


def main(args: Args) -> None:
    """Measure all alternatives."""
    found: dict[str, object] = {}
    configs: dict[str, object] = {}
    for name in args.worlds:
        config = detection_preset(args.preset, name)
        config = config if args.seeds is None else config.changed(seeds=args.seeds)
        train = config.train
        rows = [
            Row(label, detector, train.penalty if detector.penalised else 0.0, train.mixup)
            for label, detector in ALTERNATIVES.items()
        ]
        detection = detect(elden.make(name), config, rows, models=args.models, figures=False)
        Console().print(rich_table(detection_table(detection)))
        configs[name] = plain(config)
        found[name] = {
            result.row.name: {
                measure: {"mean": round(mean, 4), "standard_error": round(error, 4)}
                for measure, (mean, error) in result.statistics(config.main_granularity).items()
                if measure.removesuffix("_between") in ("roc_auc", "f1", "auto_f1")
            }
            for result in detection.rows
        }
    if args.out is not None:
        content = {**provenance(), "preset": args.preset, "configs": configs, "worlds": found}
        args.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
