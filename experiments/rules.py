"""What rules that need no model are worth, on the very episodes that Tables 1 and 2 measure.

    python experiments/rules.py --out results/detection/rules_without_models.json

Self-edges and nothing else: what a detector must beat to have found anything. Self-edges and every edge into an entity
that changed: to have found more than what changed; also between different nodes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tyro

import elden
from elden.provenance import provenance
from elden.studies.dataset import CollectConfig, collect
from elden.studies.measuring import all_into_changed, held_out, self_edges_alone
from elden.studies.paper import METRICS
from elden.studies.presets import Preset, detection_preset


@dataclass(frozen=True)
class Args:
    """What to measure."""

    worlds: tuple[str, ...] = ("thawing", "carwash", "minecraft", "kitchen")
    """In which worlds."""
    presets: tuple[Preset, ...] = ("quick", "paper")
    """Whose episodes."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


def measure(name: str, preset_name: Preset) -> dict[str, dict[str, Mapping[str, float]]]:
    """ROC-AUC and F1 of both rules at every granularity of a preset."""
    world = elden.make(name)
    config = detection_preset(preset_name, name)
    held = held_out(
        collect(world, CollectConfig(config.transitions, config.epsilon, seed=config.seed)), config.eval_episodes
    )
    return {
        granularity: {
            "self_edges_alone": dict(zip(METRICS, self_edges_alone(world.factors, held, granularity), strict=True)),
            "all_into_changed": all_into_changed(world.factors, held, granularity),
        }
        for granularity in config.granularities
    }


def main(args: Args) -> None:
    """Measure both rules everywhere."""
    found: dict[str, dict[str, object]] = {}
    for preset_name in args.presets:
        for name in args.worlds:
            measured = measure(name, preset_name)
            found.setdefault(preset_name, {})[name] = measured
            for granularity, rules in measured.items():
                words = ", ".join(
                    f"{rule} {' '.join(f'{n:.2f}' for n in known.values())}" for rule, known in rules.items()
                )
                print(f"{preset_name} {name} {granularity}: {words}", flush=True)
    if args.out is not None:
        args.out.write_text(json.dumps({**provenance(), "presets": found}, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
