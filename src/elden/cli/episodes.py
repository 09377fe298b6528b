"""An episode as a video: pictures with what was done and what depended on what written under them."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from jaxtyping import Bool, UInt8

from elden.cli.edges import edge_lines
from elden.cli.steps import Step
from elden.viewing import pictures
from elden.worlds.base import World, WorldState
from elden.worlds.scene import Scene

_MOST_LINES = 7
"""Lines of words under a picture; what is more is counted."""
AFTER_SUCCESS = 3
"""Steps that the video continues after the first success."""
_LAST_FRAME_S = 2.0


@dataclass(frozen=True)
class Episode:
    """One episode.

    Attributes:
        states: The states, one more than there are steps.
        steps: The steps.
        photos: Pictures of the states, where they were taken and need not be drawn.
    """

    states: tuple[WorldState, ...]
    steps: tuple[Step, ...]
    photos: tuple[UInt8[np.ndarray, "height width 3"], ...] = ()

    @property
    def first_success(self) -> int | None:
        """The number of the step that solved the task."""
        return next((step.number for step in self.steps if step.success), None)

    def until_success(self) -> "Episode":
        """The part worth watching: it ends a few steps after the first success."""
        end = len(self.steps) if self.first_success is None else self.first_success + AFTER_SUCCESS
        return Episode(self.states[: end + 1], self.steps[:end], self.photos[: end + 1])


def frames(world: World, episode: Episode, tile: int, fps: float) -> list[UInt8[np.ndarray, "height width 3"]]:
    """One picture per state, with what depended on what in words; the last one stays for a while."""
    images = _pictures(
        world, episode, tile, list(map(partial(_sentences, world), (None, *episode.steps), episode.steps))
    )
    return [*images, *images[-1:] * round(_LAST_FRAME_S * fps)]


def graph_frames(
    world: World, episode: Episode, predicted: Bool[np.ndarray, "time dst src"] | None, tile: int, fps: float, note: str
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """One picture per state, beside the true graph between entities and that of models; the last stays for a while.

    Args:
        world: The world.
        episode: What to show.
        predicted: The edges that models predict in each step; None where there are no models.
        tile: Pixels of a cell.
        fps: Frames a second.
        note: How the models are read.
    """
    from elden.viewing.video import graph_video  # matplotlib takes long to load

    sentences = [
        (_head(world, before, step),) for before, step in zip((None, *episode.steps), episode.steps, strict=False)
    ]
    images = _pictures(world, episode, tile, sentences)
    factors = world.factors
    truths = np.asarray(factors.reduce_graph(np.stack([step.graph for step in episode.steps])))
    seen = None if predicted is None else predicted[: len(truths)]
    shown = graph_video(images, truths, seen, factors.entity_names, factors.source_names("entity"), note)
    return [*shown, *shown[-1:] * round(_LAST_FRAME_S * fps)]


def _pictures(
    world: World, episode: Episode, tile: int, sentences: Sequence[Sequence[str]]
) -> list[UInt8[np.ndarray, "height width 3"]]:
    """One picture per state, with these sentences about the step that led there under it."""
    before = (None, *episode.steps)
    scenes = [world.scene(state) for state in episode.states]
    room = _letters(scenes[0], tile)
    captions = [_wrap(lines, room) for lines in [(f"{world.name}: an episode begins",), *sentences]]
    # All frames of a video have one shape, hence as many lines under each.
    rows = max(map(len, captions))
    images = []
    for number, (scene, step, caption) in enumerate(zip(scenes, before, captions, strict=True)):
        padded = (*caption, *[""] * (rows - len(caption)))
        full = replace(scene, status=(*scene.status, *_status(world, step)), caption=padded)
        images.append(
            pictures.captioned(episode.photos[number], full, tile) if episode.photos else pictures.draw(full, tile)
        )
    return images


def _letters(scene: Scene, tile: int) -> int:
    """About how many letters go into a line under the picture: its letters are a third of a tile high, half as wide."""
    height = max(11.0, tile / 3)
    return int(max(scene.width * tile / height, 14) / 0.54)


def _wrap(sentences: Sequence[str], room: int) -> list[str]:
    """Lines of at most `room` letters; sentences that would not fit into the last line are counted."""
    lines: list[str] = []
    for index, sentence in enumerate(sentences):
        more = textwrap.wrap(sentence, room, break_on_hyphens=False)
        if len(lines) + len(more) > _MOST_LINES:
            return [*lines[: _MOST_LINES - 1], f"... and {len(sentences) - index} more"]
        lines += more
    return lines


def _status(world: World, step: Step | None) -> tuple[tuple[str, str], ...]:
    number, stages, reward = (0, (), 0.0) if step is None else (step.number, step.stages, step.reward)
    return (
        ("step", f"{number}/{world.max_steps}"),
        ("stage", f"{sum(stages)}/{world.num_stages}"),
        ("reward", f"{reward:g}"),
    )


def _sentences(world: World, before: Step | None, step: Step) -> tuple[str, ...]:
    """The action, the stages that it reached, and what depended on what besides every variable on its own past."""
    edges = [line.replace(" <- ", " depends on ") for line in edge_lines(world.factors, step.graph, short=True)]
    return (_head(world, before, step), *(edges or ["nothing depends on anything else"]))


def _head(world: World, before: Step | None, step: Step) -> str:
    """The action, and the stages that it reached."""
    had = (False,) * len(step.stages) if before is None else before.stages
    news = [name for name, old, new in zip(world.stage_names, had, step.stages, strict=True) if new and not old]
    return f"action: {step.action}" + (f" · reached: {', '.join(news)}" if news else "")
