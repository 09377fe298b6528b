"""Scores of many transitions, in pieces of one size, and the change from one granularity to another."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from elden.ahead import compile_ahead
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.dynamics.spread import Spread
from elden.dynamics.training import Model
from elden.factors import Granularity
from elden.graphs.base import Detector, Reference
from elden.graphs.reader import Reader
from elden.transitions import Transitions

CHUNK, CHUNK_GPU = 256, 1024
"""Transitions that are scored at a time, on CPUs and on GPUs, which work better on more of them."""
FEWEST = 64
"""Transitions that are worth a device of their own."""


def default_chunk() -> int:
    """How many transitions are scored at a time where nobody says."""
    return CHUNK_GPU if jax.default_backend() == "gpu" else CHUNK


@dataclass(frozen=True)
class Scored:
    """Scores, and what they cost.

    Attributes:
        scores: Scores of all edges.
        compile_s: Time to compile; 0 where an earlier call with the same shapes has paid for it.
        run_s: Time to score, transfers to the host included.
        cost_s: Time for one transition and one model, all devices working, from the fastest of the pieces: the others
            waited for something.
    """

    scores: Float[np.ndarray, "run time dst src"]
    compile_s: float
    run_s: float
    cost_s: float


def score_transitions(
    detector: Detector,
    layout: Layout,
    models: Model,
    transitions: Transitions,
    reference: Reference,
    chunk: int | None = None,
) -> Float[np.ndarray, "run time dst src"]:
    """Scores of all edges of many transitions; see `time_scores`."""
    return time_scores(detector, layout, models, transitions, reference, chunk).scores


def time_scores(
    detector: Detector,
    layout: Layout,
    models: Model,
    transitions: Transitions,
    reference: Reference,
    chunk: int | None = None,
) -> Scored:
    """Scores of all edges of many transitions for each run, averaged over its members, and the time that took.

    One compiled function scores `chunk` transitions, an equal part of them on each device, of which no more are used
    than have `FEWEST` of them; the last piece is filled up with copies of the last transition. A piece is put on the
    devices when it is scored, and its scores are taken from there at once: beyond what the caller keeps there, memory
    on the devices does not grow with the number of transitions.

    Args:
        detector: What reads the models.
        layout: Meaning of the models' arrays.
        models: Every leaf begins with the axes run and member.
        transitions: Flat transitions `[time, …]`.
        reference: States and actions that some detectors try.
        chunk: Transitions at a time, and where devices cannot share them equally a few more; None takes what suits the
            devices.
    """
    count = transitions.action.shape[0]
    chunk = default_chunk() if chunk is None else chunk
    if count < 1 or chunk < 1:
        raise ValueError(f"{count} transitions in chunks of {chunk} given; both must be at least 1")
    num_runs, num_members = jax.tree.leaves(models)[0].shape[:2]
    host = tuple(np.asarray(part) for part in (transitions.obs, transitions.action, transitions.next_obs))
    spread = Spread.here(max(1, min(jax.local_device_count(), chunk // FEWEST)))
    chunk = -(-chunk // spread.runs) * spread.runs
    models, reference = spread.copy((models, reference))
    piece = _piece(host, 0, chunk, spread)
    program, compile_s = _compiled(detector, layout, spread, models, piece, reference)
    np.asarray(program(models, piece, reference))  # the first call of a program pays for its memory
    parts: list[Float[np.ndarray, "run part dst src"]] = []
    times: list[float] = []
    for first in range(0, count, chunk):
        piece = _piece(host, first, chunk, spread)
        began = time.perf_counter()
        parts.extend(np.array(program(models, piece, reference)))
        times.append(time.perf_counter() - began)
    cost_s = min(times) / (chunk * num_runs * num_members)
    return Scored(np.concatenate(parts, axis=1)[:, :count], compile_s, sum(times), cost_s)


def _piece(host: tuple[Shaped[np.ndarray, "time ..."], ...], first: int, chunk: int, spread: Spread) -> Transitions:
    """`chunk` transitions from `first` on, dealt out to the devices."""
    index = np.minimum(np.arange(first, first + chunk), len(host[0]) - 1).reshape(spread.runs, -1)
    piece = spread.deal(Transitions(*(jnp.asarray(part[index]) for part in host)))
    for leaf in jax.tree.leaves(piece):
        leaf.block_until_ready()
    return piece


_Program: TypeAlias = Callable[[Model, Transitions, Reference], Float[Array, "device run part dst src"]]


def _compiled(
    detector: Detector, layout: Layout, spread: Spread, models: Model, piece: Transitions, reference: Reference
) -> tuple[_Program, float]:
    """The compiled function for arrays of these shapes, and the time it took to compile now."""
    leaves, structure = jax.tree.flatten((models, piece, reference))
    shapes = tuple((leaf.shape, str(leaf.dtype)) for leaf in leaves)
    programs = _programs(detector, layout)  # type: ignore[arg-type]  # detectors are frozen
    place = (structure, shapes, spread)
    if place in programs:
        return programs[place], 0.0
    each = jax.vmap(_scores_of_all(detector, layout), in_axes=(None, 0, None))
    compiled, compile_s = compile_ahead(spread.over(each, (False, True, False)), (models, piece, reference))
    programs[place] = compiled
    return compiled, compile_s


_Shapes: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]


@lru_cache(maxsize=64)
def _programs(detector: Detector, layout: Layout) -> dict[tuple[jax.tree_util.PyTreeDef, _Shapes, Spread], _Program]:
    """What has been compiled for a detector and a layout so far; filled by `_compiled`."""
    return {}


def _scores_of_all(
    detector: Detector, layout: Layout
) -> Callable[[Model, Transitions, Reference], Float[Array, "run part dst src"]]:
    """The function from all models and one device's part of the transitions to scores."""
    reader = Reader(layout, detector)

    def scores(models: Model, piece: Transitions, reference: Reference) -> Float[Array, "run part dst src"]:
        batch = encode(layout, piece.obs, piece.action, piece.next_obs)

        return jnp.mean(jax.vmap(lambda run: reader.scores(run, batch, reference))(models), axis=1)

    return scores


def convert(
    scores: Float[np.ndarray, "*batch dst src"],
    layout: Layout,
    sources: Granularity,
    dst: Granularity,
    src: Granularity,
) -> Float[np.ndarray, "*batch newdst newsrc"]:
    """Scores at another granularity.

    From variables to entities by the maximum. From source entities to source variables by repetition: the score of an
    entity stands for all its variables, since the detector does not say which of them it means. A network whose
    children are entities says nothing of single variables, so entity children cannot become variables.

    Args:
        scores: Destinations are the children of the layout, sources as `sources` says, the action last.
        layout: What the models predict.
        sources: Granularity of the sources, from `Detector.sources`.
        dst: Granularity of the destinations that is wanted.
        src: Granularity of the sources that is wanted.

    Raises:
        ValueError: Entity children and variable destinations, or scores of another shape.
    """
    factors, children = layout.factors, layout.network.children
    expected = (layout.num_children, len(factors.source_names(sources)))
    if scores.shape[-2:] != expected:
        raise ValueError(f"scores of shape {scores.shape} given; this layout's end with {expected}")
    if children == "entity" and dst == "variable":
        raise ValueError(
            "the children of this network are entities, so its scores cannot be evaluated for single variables;"
            " train with children='variable', or evaluate at the granularity 'entity'"
        )
    if children == "variable" and dst == "entity":
        scores = np.stack([scores[..., rows, :].max(-2) for rows in factors.entity_slices], axis=-2)
    if sources == "variable" and src == "entity":
        columns = [scores[..., group].max(-1) for group in factors.entity_slices]
        return np.stack([*columns, scores[..., -1]], axis=-1)
    if sources == "entity" and src == "variable":
        return scores[..., [*factors.entity_of, factors.num_entities]]
    return scores
