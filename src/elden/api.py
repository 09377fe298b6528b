"""The commands as functions: train, resume, evaluate, detect, compare."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from elden.hosts.world import HostConfig, HostWorld
from elden.names import PREFIX
from elden.studies import detection, exploration
from elden.studies.config import DetectConfig
from elden.studies.presets import detection_preset
from elden.studies.results import Detection
from elden.training import evaluation
from elden.training.config import TrainingConfig
from elden.training.evaluation import Evaluation, EvaluationConfig
from elden.training.host import on_host
from elden.training.presets import TrainingPreset, training_preset
from elden.training.run import Progress, TrainingRun
from elden.worlds.base import World
from elden.worlds.registry import WORLDS, make


def train(
    world: World | HostWorld | str,
    bonus: str | None = None,
    *,
    preset: TrainingPreset = "plus",
    config: TrainingConfig | None = None,
    steps: int | None = None,
    seeds: int | None = None,
    folder: Path | str | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> TrainingRun:
    """Train agents to the end. A run that was stopped in this folder continues.

    >>> run = elden.train("thawing", "none", steps=2560, seeds=1, folder="runs/api")
    >>> run.finished
    True
    >>> run.folder.read_summary()["env_steps"]
    2560

    Args:
        world: The environment, or its name: one of ours, or `gym:ID` for one of others (under
            `if __name__ == "__main__":`, because its processes import the script that starts them).
        bonus: Name of the bonus; None takes the preset's.
        preset: The settings to start from: the paper's, or ours.
        config: All settings, instead of a preset's.
        steps: Environment steps of each agent.
        seeds: Number of agents.
        folder: The run folder; None takes `runs/train/WORLD-BONUS-PRESET`, with a config `runs/train/WORLD-BONUS`.
        progress: Called with the iterations done and to be done, and the metrics of the last one.
        **options: Those of `TrainingRun` that do not change results, such as `deadline` or `save_every_s`.
    """
    made = _world(world) if isinstance(world, str) else world
    known = made.name if isinstance(made, HostWorld) or made.name in WORLDS else ""  # else a world of the caller's own
    settings = training_preset(preset, known, bonus) if config is None else config
    if config is None and preset == "plus" and isinstance(made, HostWorld):
        settings = on_host(settings)
    if bonus is not None and settings.bonus_name != bonus:
        raise ValueError(f"bonus={bonus!r} given beside a config with {settings.bonus_name!r}; give one of them")
    if steps is not None:
        settings = replace(settings, loop=replace(settings.loop, steps=steps))
    if seeds is not None:
        settings = replace(settings, seeds=seeds)
    parts = (re.sub(r"[^\w-]+", "-", made.name), settings.bonus_name, *((preset,) if config is None else ()))
    label = "-".join(parts)
    where = Path("runs/train") / label if folder is None else Path(folder)
    training = TrainingRun(made, settings, where, progress=progress, **options)
    if not training.finished:
        training.run()
    return training


def _world(name: str) -> World | HostWorld:
    return HostWorld.look(HostConfig(name.removeprefix(PREFIX))) if name.startswith(PREFIX) else make(name)


def resume(folder: Path | str, steps: int | None = None, *, trust: str | None = None, **options: Any) -> TrainingRun:
    """Continue a run that was stopped, from its folder alone; or train a finished one for longer.

    >>> elden.resume("runs/api", steps=5120).folder.read_summary()["env_steps"]
    5120

    Args:
        folder: The run folder.
        steps: Environment steps of each agent in all; None leaves them as they are.
        trust: `gym:MODULE`, where the run's environment is in this module: it is imported, which runs it.
        **options: Those of `TrainingRun` that do not change results.
    """
    path = Path(folder)
    if steps is not None:
        TrainingRun.extend(path, steps, trust, options.get("step_limit_s"))
    training = TrainingRun.open(path, trust=trust, **options)
    if not training.finished:
        training.run()
    return training


def evaluate(
    run: TrainingRun | Path | str, episodes: int = 200, *, trust: str | None = None, **settings: Any
) -> Evaluation:
    """Try the agents of a run, and read local graphs off their models.

    >>> found = elden.evaluate("runs/api", episodes=4)
    >>> 0.0 <= found.rates()["success_rate"] <= 1.0
    True

    Args:
        run: The run, or its folder.
        episodes: Episodes of each agent.
        trust: `gym:MODULE`, where the run's environment is in this module: it is imported, which runs it.
        **settings: Further fields of `EvaluationConfig`.
    """
    training = run if isinstance(run, TrainingRun) else TrainingRun.open(Path(run), trust=trust)
    return evaluation.evaluate(training, EvaluationConfig(episodes=episodes, **settings))


def detect(
    world: World | str,
    *methods: str,
    preset: str = "quick",
    config: DetectConfig | None = None,
    folder: Path | str | None = None,
    **settings: Any,
) -> Detection:
    """Train detectors of local dependencies on scripted transitions, and measure them on unseen episodes.

    >>> small = {"updates": 2, "segment": 2, "transitions": 2000, "seeds": 1, "eval_episodes": 2}
    >>> found = elden.detect("thawing", "intervention", **small)
    >>> mean, error = found.rows[0].statistics("entity")["f1"]
    >>> 0.0 <= mean <= 1.0
    True

    Args:
        world: The environment, or its name.
        *methods: Names of detectors; none takes those of the settings.
        preset: The settings to start from: "quick", or the paper's.
        config: All settings, instead of a preset's.
        folder: The run folder; None leaves nothing behind.
        **settings: Settings that differ, each by its own name, such as `updates=20_000`.
    """
    made = make(world) if isinstance(world, str) else world
    base = detection_preset(preset, made.name, made.factors.continuous) if config is None else config
    changes = {**settings, **({"methods": methods} if methods else {})}
    return detection.detect(made, base.changed(**changes), folder=None if folder is None else Path(folder))


def compare(
    worlds: Sequence[str] | Mapping[str, World],
    bonuses: Sequence[str],
    folder: Path | str,
    *,
    preset: TrainingPreset = "plus",
    seeds: int = 5,
    seed: int = 0,
    steps: int | None = None,
    at_once: int = 1,
) -> list[exploration.Agents]:
    """Train agents with several bonuses in several worlds, each cell in a process of its own; leaves map and curves.

    >>> short = {"short thawing": elden.make("thawing", max_steps=5)}
    >>> agents = elden.compare(short, ["none"], "runs/api-map", seeds=1, steps=2560)
    >>> [(each.world, each.contender) for each in agents]
    [('short thawing', 'none')]

    Args:
        worlds: Names of worlds, or worlds of ours by what to call them.
        bonuses: Names of bonuses.
        folder: Folder of all of it. What is finished there is not done again.
        preset: The settings of all of them.
        seeds: Agents of each.
        seed: Seed of the first.
        steps: Environment steps of each agent; None takes the preset's.
        at_once: Processes at the same time.

    Raises:
        ValueError: A name or a number is not allowed, or a folder holds another training run.
        RuntimeError: A training run failed; its log is in the folder.
    """
    if not worlds or not bonuses or at_once < 1:
        raise ValueError(f"worlds={worlds!r}, bonuses={bonuses!r}, at_once={at_once} given; each needs one at least")
    for name in () if isinstance(worlds, Mapping) else worlds:
        if " " in name:
            raise ValueError(f"{name!r} given; a world with options has a title: {{'title': elden.make(NAME, ...)}}")
    columns = worlds if isinstance(worlds, Mapping) else {name: make(name) for name in worlds}

    def config(world: World, bonus: str) -> TrainingConfig:
        base = replace(training_preset(preset, world.name, bonus), seeds=seeds, seed=seed)
        return base if steps is None else replace(base, loop=replace(base.loop, steps=steps))

    cells = [
        exploration.Cell(title, bonus, world, config(world, bonus))
        for title, world in columns.items()
        for bonus in bonuses
    ]
    agents, left = exploration.compare(cells, Path(folder), at_once=at_once)
    if left:
        raise RuntimeError(f"not finished: {', '.join(left)}; see {Path(folder) / 'logs'}")
    return agents
