"""The kitchen with physics on the command line: videos of it, and trained agents in it."""

from collections.abc import Callable
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key, UInt8
from rich.console import Console

from elden.cli import steps
from elden.cli.detect import refusals
from elden.cli.episodes import AFTER_SUCCESS, Episode, graph_frames
from elden.cli.errors import UsageError
from elden.cli.evaluate import rate_table
from elden.cli.running import study_progress
from elden.hosts.world import HostWorld
from elden.provenance import provenance
from elden.storage.files import write_json
from elden.training.evaluation import EvaluationConfig
from elden.training.run import TrainingRun, card_of_world
from elden.training.transfer import EpisodeOutcome, Policy, evaluate_elsewhere, outcomes_of, play_episode, policies_of
from elden.viewing.pictures import write_gif
from elden.worlds.base import World, WorldState
from elden.worlds.kitchen.robosuite import KitchenRobosuiteEnv, RobosuiteMissingError

RESULTS = "evaluation_physics.json"
VIDEO = "episode_physics.gif"
_MADE_UP = ("skill_noise", "skill_failure")
"""Options of the twin that stand for physics."""
_TILE, _FPS = 40, 2.0


def kitchen_with_physics(world: World | HostWorld, render_mode: str | None = None) -> KitchenRobosuiteEnv:
    """The environment in robosuite that a world is the twin of.

    Raises:
        UsageError: There is none, or robosuite is not there.
    """
    if isinstance(world, HostWorld) or world.name != "kitchen":
        raise UsageError(f"--physics is for kitchen, the twin of a robot simulation; {world.name} has no physics")
    options = {name: getattr(world, name) for name in world.option_names() if name not in _MADE_UP}
    try:
        return KitchenRobosuiteEnv(render_mode, **options)
    except RobosuiteMissingError as error:
        raise UsageError(str(error)) from None


class Recorder:
    """Keeps states, steps and pictures of an episode as it is played."""

    def __init__(self, env: KitchenRobosuiteEnv) -> None:
        self.env = env
        self.states: list[WorldState] = []
        self.steps: list[steps.Step] = []
        self.photos: list[UInt8[np.ndarray, "height width 3"]] = []

    def __call__(self) -> None:
        """Look at where the environment is now."""
        if self.states:
            self.steps.append(steps.record(self.env.world, self.env.current, self.env.transition))
        self.states.append(self.env.current)
        photo = self.env.render()
        if photo is not None:
            self.photos.append(photo)

    @property
    def episode(self) -> Episode:
        """What has been seen."""
        return Episode(tuple(self.states), tuple(self.steps), tuple(self.photos))


@lru_cache(maxsize=8)
def _scripted(world: World) -> Callable[..., Int[Array, ""]]:
    chosen: Callable[..., Int[Array, ""]] = jax.jit(world.scripted)
    return chosen


def play_scripted(
    env: KitchenRobosuiteEnv, key: Key[Array, ""], epsilon: float, advance: Callable[[], None]
) -> Episode:
    """A scripted episode from an initial state of the twin's, up to a few steps after success."""
    world = env.world
    reset_key, key = jax.random.split(key)
    env.reset(options={"state": world.to_named(steps.reset(world, reset_key))})
    recorder = Recorder(env)
    recorder()
    after = 0
    while after <= AFTER_SUCCESS and not (recorder.steps and recorder.steps[-1].done):
        act_key = jax.random.fold_in(key, len(recorder.steps))
        chance: Float[Array, ""] = jax.numpy.float32(epsilon)
        env.step(int(_scripted(world)(act_key, env.current, chance)))
        recorder()
        advance()
        after += recorder.steps[-1].success
    return recorder.episode


def video_frames(world: World, episode: Episode, tile: int, fps: float) -> list[UInt8[np.ndarray, "height width 3"]]:
    """The pictures beside the true local graph of each step."""
    return graph_frames(world, episode, None, tile, fps, "")


def report(console: Console, training: TrainingRun, config: EvaluationConfig, agents: int, command_line: str) -> None:
    """Try the agents of a training run with physics; results and a video go into the run folder."""
    folder = training.folder
    video = folder.media / VIDEO
    with refusals(folder.path, ""), closing(kitchen_with_physics(training.world, "rgb_array")) as env:
        policies, steps = policies_of(training, agents, config.greedy)
        with study_progress(console) as tell:
            found = evaluate_elsewhere(policies, env, config, tell)
        write_json(folder.path / RESULTS, _card(training, config, steps, found, command_line))
        agent, number = _example(found)
        _write_video(video, env, policies[agent], config, number)
    title = f"{config.policy} policy with physics, {config.episodes} episodes of each agent, no further training"
    seeds = training.config.all_seeds[:agents]
    console.print(rate_table(outcomes_of(found), seeds, training.world.stage_names, title))
    console.print("\nLook at")
    what = "solved" if found[agent][number].success else "not solved"
    console.print(f"  {video}   (episode {number} of seed {seeds[agent]}, {what}, with its local graphs)")
    console.print(f"  {folder.path / RESULTS}")


def _example(found: list[list[EpisodeOutcome]]) -> tuple[int, int]:
    """Agent and number of the first episode that was solved, else of the first with most stages."""
    worth = np.array([[100 if one.success else sum(one.stages) for one in row] for row in found]).T
    number, agent = np.unravel_index(int(np.argmax(worth)), worth.shape)
    return int(agent), int(number)


def _write_video(file: Path, env: KitchenRobosuiteEnv, policy: Policy, config: EvaluationConfig, number: int) -> None:
    """Play an episode once more, and record it: it goes as it went, for its randomness comes from its number alone."""
    recorder = Recorder(env)
    play_episode(env, policy, config.seed, number, recorder, longer=AFTER_SUCCESS)
    write_gif(file, video_frames(env.world, recorder.episode.until_success(), _TILE, _FPS), _FPS)


def _card(
    training: TrainingRun,
    config: EvaluationConfig,
    steps_taken: int,
    found: list[list[EpisodeOutcome]],
    command_line: str,
) -> dict[str, Any]:
    names, seeds, outcomes = training.world.stage_names, training.config.all_seeds, outcomes_of(found)
    rows = [
        {
            "seed": seeds[agent],
            **outcomes.rates(names, agent),
            "noops": sum(one.noops for one in row),
            "slips": sum(one.slips for one in row),
        }
        for agent, row in enumerate(found)
    ]
    return {
        **provenance(command_line),
        "environment": "elden/KitchenRobosuite-v0",
        "trained_in": card_of_world(training.world),
        "bonus": training.config.bonus_name,
        "finished": training.finished,
        "env_steps": steps_taken,
        "policy": config.policy,
        "seed": config.seed,
        "episodes": config.episodes,
        "seeds": rows,
        "together": outcomes.rates(names),
    }
