"""Write results/README.md: what each result says, and where it is from.

A file or folder under results/ without a line in `CLAIMS` is refused, and so is a line without a file.

    python tools/results_index.py
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"

CLAIMS: dict[str, dict[str, str]] = {
    "exploration": {
        "map_gpu": "which bonus solves which world: the map of README",
        "beliefs_cpu": "what the agents' own models believe: precision, recall and F1 of local graphs",
        "beliefs_gpu": "trials of what makes the agents' own models believe what is right",
        "bonus_sweep_cpu": "the same small sweep for influence-count and bonuses with networks of their own",
        "bonus_sweep_gpu": "the sweep for bonuses that read dynamics models, and more updates for rnd and noveld",
        "demo_chain_cpu": "what `elden demo` makes",
        "whether_trials_cpu": "trials of the agent's settings and of bonuses, four agents each",
        "whether_trials_gpu": "trials of bonuses that ask whether, four agents each",
        "train_carwash_paper_gpu.json": "the preset `paper` in carwash, as far as it was trained",
        "train_kitchen_robosuite_cpu.json": "training in an environment that is stepped on the host",
    },
    "detection": {
        "table1_quick": "Table 1, preset `quick`, thawing and carwash",
        "table1_quick_minecraft": "Table 1, preset `quick`, minecraft",
        "table1_quick_kitchen": "Table 1, preset `quick`, kitchen",
        "table1_quick_kitchen_intervention": "Table 1, preset `quick`, kitchen, `intervention` as it is now",
        "table1_quick_20k": "Table 1, `intervention`, 20,000 updates",
        "table1_quick_20k_unmixed": "the same without mixup",
        "table1_quick_few_random": "Table 1, preset `quick`, data with few random actions",
        "table1_quick_untrained": "Table 1 of untrained models: what a table says of nothing",
        "table1_paper_thawing": "Table 1, the paper's size, thawing",
        "table1_paper_carwash": "Table 1, the paper's size, carwash",
        "table1_paper_minecraft": "Table 1, the paper's size, minecraft",
        "table1_paper_kitchen": "Table 1, the paper's size, kitchen",
        "table1_paper_thawing_100k": "Table 1, the paper's size, 100,000 updates, thawing",
        "table1_paper_carwash_100k": "Table 1, the paper's size, 100,000 updates, carwash",
        "table1_paper_carwash_few_random": "Table 1, the paper's size, data with few random actions, carwash",
        "table2_quick": "Table 2, preset `quick`, thawing and carwash",
        "table2_quick_minecraft": "Table 2, preset `quick`, minecraft",
        "table2_quick_kitchen": "Table 2, preset `quick`, kitchen",
        "table2_paper_thawing": "Table 2, the paper's size, thawing",
        "table2_paper_carwash": "Table 2, the paper's size, carwash",
        "table2_paper_minecraft": "Table 2, the paper's size, minecraft",
        "table2_paper_kitchen": "Table 2, the paper's size, kitchen",
        "table2_paper_thawing_100k": "Table 2, the paper's size, 100,000 updates, thawing",
        "table2_paper_carwash_100k": "Table 2, the paper's size, 100,000 updates, carwash",
        "detector_choices_quick.json": "forms of the detectors that were tried on the same models",
        "intervention_ceiling.json": "what `intervention` would reach with a perfect model",
        "rules_without_models.json": "what rules reach that need no model",
    },
    "speed": {
        "worlds_speed_cpu.json": "environment steps per second, two CPU cores",
        "worlds_speed_gpu.json": "environment steps per second, one H200",
        "training_speed_cpu.json": "training steps per second, two CPU cores",
        "training_speed_gpu.json": "training steps per second, one H200",
        "dynamics_speed_cpu.json": "updates and graphs per second of the dynamics models, two CPU cores",
        "dynamics_speed_gpu.json": "updates and graphs per second of the dynamics models, one H200",
        "endurance_gpu.json": "memory and open files of a training run of 100 million steps",
        "endurance_gpu.png": "the same, drawn",
        "sync_cpu.json": "what it costs to sync a state to the disk",
        "repeat_cpu.json": "a training run makes the same numbers again, also after a kill, CPU",
        "repeat_gpu.json": "a training run makes the same numbers again, also after a kill, GPU",
    },
    "trust": {
        "torture_cpu.json": "kills, damage, links, a full disk, command lines, bad environments: what came of them"
    },
    "labels": {"labels_audit.json": "true local graphs against the simulator, by intervention on every variable"},
    "transfer": {
        "kitchen_bridge_cpu.json": "how far the kitchen's twin and the one with physics agree",
        "transfer_kitchen_cpu": "agents of the twin, tried with physics",
    },
    "archive": {
        "attention_kernels_gpu.json": "fused attention kernels, which have been removed",
        "map_cpu": "the map on two CPU cores, of few bonuses",
        "map_partial_gpu": "a part of the map with bonuses that read models, before `influence-count`",
        "compare_thawing_cpu": "bonuses in thawing, with an earlier preset",
        "compare_carwash_gpu": "bonuses in carwash, with an earlier preset",
        "compare_minecraft_gpu": "bonuses in minecraft, with an earlier preset",
        "compare_kitchen_gpu": "bonuses in kitchen, with an earlier preset",
        "ablation_carwash_gpu": "gates and thresholds in carwash, with an earlier preset",
        "ablation_minecraft_gpu": "gates and thresholds in minecraft, with an earlier preset",
        "ablation_kitchen_gpu": "gates and thresholds in kitchen, with an earlier preset",
        "gates_minecraft_cpu.json": "how often gates are open in minecraft",
        "plus_choices_gpu.json": "choices of an earlier preset `plus`",
    },
}
"""What each result says, by its group; those that something newer has replaced are in the archive."""

_TITLES = {
    "exploration": "Exploration",
    "detection": "Detection of local dependencies",
    "speed": "Speed, and exact repetition",
    "trust": "Nothing lost, no traceback for a user's mistake",
    "labels": "True local graphs",
    "transfer": "From the kitchen's twin to physics",
    "archive": "Archive: of earlier versions, or of what has been removed",
}
_INTRO = """# Results

Made by `python tools/results_index.py`. *Code* is a digest of the sources that made the result; results without one are
older than the digest. A folder has more files than the one that is named; its `table.md` is for people. Evaluations of
earlier versions say `called`, `own_past` and `film` where the program now says `predicted`, `self_edge` and `video`.
In commands, `--chunk` of `elden train` and `elden compare` is now `--iterations-per-call`.
"""
_HEAD = "| file | what it says | command | code | device | date |\n|---|---|---|---|---|---|"


def provenance(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each JSON file of a result that says where it is from, and what it says."""
    files = [path] if path.suffix == ".json" else sorted(path.glob("*.json"))
    for file in files:
        data = json.loads(file.read_bytes())
        found = data.get("provenance", data) if isinstance(data, dict) else {}
        yield file.relative_to(RESULTS).as_posix(), found if isinstance(found, dict) else {}


def row(file: str, claim: str, known: Mapping[str, Any]) -> str:
    """A line of the table."""
    device = str(known.get("device", "")).removeprefix("gpu: ").replace("cpu: cpu", "CPU")
    command = str(known.get("command", "")).replace("|", r"\|")
    short = command if len(command) <= 160 else command[:157] + "..."
    shown = f"`{short}`" if short else "–"
    cells = (f"[{file}]({file})", claim, shown, known.get("code", "–"), device or "–", str(known.get("date", "–"))[:10])
    return f"| {' | '.join(map(str, cells))} |"


def page() -> str:
    """The whole page.

    Raises:
        SystemExit: A result has no claim, or a claim no result.
    """
    here = {f"{path.parent.name}/{path.name}" for path in RESULTS.glob("*/*")}
    named = {f"{group}/{name}" for group, claims in CLAIMS.items() for name in claims}
    if here != named:
        sys.exit(f"results without a claim: {sorted(here - named)}; claims without a result: {sorted(named - here)}")
    parts = [_INTRO]
    for group, claims in CLAIMS.items():
        found = ((claim, each) for name, claim in claims.items() for each in provenance(RESULTS / group / name))
        lines = [row(file, claim, known) for claim, (file, known) in found]
        parts.append("\n".join([f"## {_TITLES[group]}", "", _HEAD, *lines, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    (RESULTS / "README.md").write_text(page())
