"""Transitions of whole episodes, played by a world's scripted policy with random actions mixed in.

Episodes are played in chunks. Chunk c depends on `fold_in(key(seed), c)` and on nothing else, so an interrupted
collection continues at the first chunk that is missing, and ends with the same bits as one that never stopped.
"""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int32, Key, Num, Shaped, UInt8

from elden.factors import Factors
from elden.provenance import provenance
from elden.storage.arrays import (
    CARD,
    DamagedDataError,
    check_free,
    plain_json,
    read_arrays,
    read_card,
    remove_arrays,
    write_arrays,
)
from elden.storage.cards import factors_from_json, factors_to_json
from elden.storage.files import refuse_links
from elden.storage.plain import differences
from elden.worlds.base import World, WorldState

Arrays: TypeAlias = dict[str, Shaped[np.ndarray, "..."]]
Progress: TypeAlias = Callable[[int, int], None]
Part: TypeAlias = Literal["train", "held_out"]

_CHUNKS = "chunks.part"
_COMMON = ("obs", "action", "next_obs", "episode", "step")
_TRUTH = ("graph", "events")
_PARTS: tuple[Part, Part] = ("train", "held_out")
_ARRAYS = (
    *(f"{part}_{name}" for part in _PARTS for name in _COMMON),
    *(f"held_out_{name}" for name in _TRUTH),
)
_log = logging.getLogger(__name__)


class OtherCollectionError(ValueError):
    """A folder holds data that was collected from another world, with other options or with another config."""


@dataclass(frozen=True)
class CollectConfig:
    """What to collect with the scripted policy: how many transitions, from which seed, and what is held out."""

    transitions: int = 500_000
    """How many transitions, in both parts together. The episode that reaches the number is kept whole."""
    epsilon: float = 0.5
    """How often the scripted action is replaced by a random one in the training part. A policy that hardly errs shows
    no model what its steps depend on."""
    held_out_epsilon: float = 0.1
    """The same in the held-out part."""
    held_out: float = 0.1
    """Share of the episodes that are kept apart for measuring, with their true graphs."""
    seed: int = 0
    """Decides the initial states and all randomness."""
    chunk_episodes: int = 256
    """Episodes that are played side by side. Another number gives other data."""

    def __post_init__(self) -> None:
        """Check the values."""
        _check_range("transitions", self.transitions, 1, 2**31 - 1)
        _check_range("epsilon", self.epsilon, 0, 1)
        _check_range("held_out_epsilon", self.held_out_epsilon, 0, 1)
        _check_range("seed", self.seed, 0, 2**32 - 1)
        _check_range("chunk_episodes", self.chunk_episodes, 1, 2**20)
        if not 0 < self.held_out < 1:
            raise ValueError(f"held_out={self.held_out} given; it must lie between 0 and 1, neither of them included")


@dataclass(frozen=True)
class Split:
    """Transitions of one part of the data, episode after episode, each whole and in the order of its steps.

    Attributes:
        obs: Flat observations before the step, as the world's factors lay them out.
        action: The actions taken.
        next_obs: Flat observations after the step: the true ones, also at the end of an episode.
        episode: Number of the episode, over both parts.
        step: Number of the step within its episode, from 0.
        graph: The true local graphs `[dst, src]`; None in the training part, for they are only for measuring.
        events: Which of the world's events happened; None in the training part.
    """

    obs: Num[np.ndarray, "n width"]
    action: Int32[np.ndarray, " n"]
    next_obs: Num[np.ndarray, "n width"]
    episode: Int32[np.ndarray, " n"]
    step: Int32[np.ndarray, " n"]
    graph: Bool[np.ndarray, "n var var+1"] | None = None
    events: Bool[np.ndarray, "n event"] | None = None

    def __len__(self) -> int:
        """How many transitions."""
        return len(self.action)

    @property
    def num_episodes(self) -> int:
        """How many episodes."""
        return len(np.unique(self.episode))


@dataclass(frozen=True)
class Dataset:
    """Collected transitions, and the card that says where they come from.

    Attributes:
        train: What models learn from.
        held_out: Other episodes, with their true graphs, to measure with.
        card: "world" (name and options), "config", "factors", "actions", "events", for each part the number of
            "transitions" and "episodes" and the share of "solved" ones, and "provenance".
    """

    train: Split
    held_out: Split
    card: Mapping[str, object]

    @property
    def factors(self) -> Factors:
        """What the observations are made of."""
        return factors_from_json(self.card.get("factors"))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Names of the actions, in the order of their indices."""
        return _names(self.card, "actions")

    @property
    def event_names(self) -> tuple[str, ...]:
        """Names of the events, in the order of `Split.events`."""
        return _names(self.card, "events")

    def solved(self, part: Part) -> float:
        """Share of the episodes of a part in which the task was solved."""
        return float(_counts(self.card, part)["solved"])


def collect(
    world: World,
    config: CollectConfig,
    folder: Path | None = None,
    progress: Progress | None = None,
    *,
    command: str | None = None,
) -> Dataset:
    """Play episodes until there are enough transitions.

    Episodes are numbered in the order of chunks. The data are the shortest run of episodes 0, 1, 2, ... with at least
    `config.transitions` transitions: less than one episode more than asked for.

    Args:
        world: The world to play.
        config: What to collect.
        folder: Where to keep the data; None keeps them in memory only. A collection that was interrupted there goes
            on, and a finished one is loaded.
        progress: Told the number of transitions so far and how many there will be, first and after every chunk.
        command: Command line for the card; None takes the one of this process.

    Raises:
        OtherCollectionError: The folder holds other data.
        DamagedDataError: The folder holds a finished collection that is damaged. (A damaged chunk of an unfinished
            one is logged and collected again.)
        ValueError: One part would be empty, or the folder holds files that do not belong there.
    """
    _check_parts(world, config)
    plan = _plan(world, config)
    if folder is not None:
        refuse_links(folder)
        if (folder / CARD).exists():
            return _finished(folder, plan, progress, config)
        check_free(folder, "transitions")
        _check_chunks(folder / _CHUNKS, plan)
        folder.mkdir(parents=True, exist_ok=True)
    _tell(progress, config, 0)
    chunks = list(_chunks(world, config, None if folder is None else folder / _CHUNKS, plan, progress))
    arrays, counts = _merge(chunks, config)
    card = plain_json({**plan, **_description(world), **counts, "provenance": provenance(command)})
    if folder is not None:
        write_arrays(folder, "transitions", arrays, card)
        _remove_chunks(folder / _CHUNKS)
    return _dataset(arrays, card)


def load_dataset(folder: Path) -> Dataset:
    """Read what `collect` has written.

    Raises:
        DamagedDataError: It is not there, not finished, damaged, or something else.
    """
    if not folder.is_dir():
        raise DamagedDataError(f"{folder}: there is no such folder; `elden collect` makes one")
    if not (folder / CARD).exists() and (folder / _CHUNKS).is_dir():
        raise DamagedDataError(f"the collection in {folder} is not finished; run the same command again to continue")
    refuse_links(folder)
    arrays, card = read_arrays(folder, "transitions")
    try:
        return _dataset(arrays, card)
    except DamagedDataError as error:
        raise DamagedDataError(f"{folder}: {error}") from None


def held_out_episodes(episodes: Int[np.ndarray, " n"], fraction: float) -> Bool[np.ndarray, " n"]:
    """Which episodes, given by number, are held out: e where ceil((e + 1) f) > ceil(e f).

    They are evenly spread, the first one is among them, and of the first n episodes they are ceil(n f).
    """
    return np.ceil((episodes + 1) * fraction) > np.ceil(episodes * fraction)


def _check_range(field: str, value: int | float, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"{field}={value} given; it takes {low} to {high}")


def _check_parts(world: World, config: CollectConfig) -> None:
    fewest = math.ceil(config.transitions / world.max_steps)
    if held_out_episodes(np.arange(fewest), config.held_out).all():
        raise ValueError(
            f"transitions={config.transitions} may be no more than {fewest} episode(s) of {world.name}, all of which"
            f" would be held out with held_out={config.held_out}; ask for more transitions or hold out less"
        )


def _plan(world: World, config: CollectConfig) -> dict[str, object]:
    """What decides every bit of the data."""
    options = {name: getattr(world, name) for name in world.option_names()}
    numbers = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    return plain_json({"world": {"name": world.name, "options": numbers}, "config": asdict(config)})


def _description(world: World) -> dict[str, object]:
    factors = factors_to_json(world.factors)
    return {"factors": factors, "actions": list(world.action_names), "events": list(world.book.events)}


def _check_plan(folder: Path, card: Mapping[str, object], plan: Mapping[str, object]) -> None:
    if changed := differences({name: card.get(name) for name in plan}, plan):
        raise OtherCollectionError(
            f"{folder} holds another collection ({changed}); choose another folder or remove this one"
        )


def _finished(folder: Path, plan: Mapping[str, object], progress: Progress | None, config: CollectConfig) -> Dataset:
    """The data that are already there."""
    _check_plan(folder, read_card(folder, "transitions"), plan)
    dataset = load_dataset(folder)
    _remove_chunks(folder / _CHUNKS)
    _tell(progress, config, config.transitions)
    return dataset


def _tell(progress: Progress | None, config: CollectConfig, transitions: int) -> None:
    if progress is not None:
        progress(min(transitions, config.transitions), config.transitions)


# Chunks: played, or read from where an interrupted collection left them.


def _check_chunks(folder: Path, plan: Mapping[str, object]) -> None:
    """Refuse chunks of another collection before anything is played or replaced."""
    for card in sorted(folder.glob(f"*/{CARD}")):
        try:
            found = read_card(card.parent, "transitions")
        except DamagedDataError:
            continue  # It is collected again when its turn comes.
        _check_plan(folder.parent, found, plan)


def _chunks(
    world: World, config: CollectConfig, folder: Path | None, plan: Mapping[str, object], progress: Progress | None
) -> Iterator[Arrays]:
    """Chunks in order, until there are enough transitions."""
    total = index = 0
    while total < config.transitions:
        chunk = _chunk(world, config, None if folder is None else folder / f"{index:05d}", plan, index)
        yield chunk
        total, index = total + int(chunk["length"].sum()), index + 1
        _tell(progress, config, total)


def _chunk(world: World, config: CollectConfig, folder: Path | None, plan: Mapping[str, object], index: int) -> Arrays:
    """One chunk, from its folder where that holds it; else it is played, and left there."""
    if folder is None:
        return _play_chunk(world, config, index)
    if (folder / CARD).exists():
        try:
            return _read_chunk(folder, index)
        except DamagedDataError as error:
            _log.warning("a damaged chunk is collected again: %s", error)
    remove_arrays(folder, unfinished=True)
    chunk = _play_chunk(world, config, index)
    write_arrays(folder, "transitions", chunk, {**plan, "chunk": index})
    return chunk


def _remove_chunks(folder: Path) -> None:
    for chunk in sorted(folder.glob("[0-9]*")):
        remove_arrays(chunk)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def _read_chunk(folder: Path, index: int) -> Arrays:
    arrays, card = read_arrays(folder, "transitions")
    if card.get("chunk") != index:
        raise DamagedDataError(f"{folder} holds chunk {card.get('chunk')}")
    return arrays


def _play_chunk(world: World, config: CollectConfig, index: int) -> Arrays:
    """The episodes of one chunk without what comes after their ends; graphs and events of held-out ones only."""
    count = config.chunk_episodes
    key = jax.random.fold_in(jax.random.key(config.seed), index)
    episodes = index * count + np.arange(count)
    held = held_out_episodes(episodes, config.held_out)
    epsilon = jnp.where(held, jnp.float32(config.held_out_epsilon), jnp.float32(config.epsilon))
    played = jax.device_get(_play(world, count, key, epsilon))
    done, success = played.pop("done"), played.pop("success")
    length = done.argmax(axis=0) + 1
    kept = np.arange(world.max_steps) < length[:, None]
    truth = kept & held[:, None]
    # The scan stacks steps first; transitions of an episode belong together.
    by_episode = {name: array.swapaxes(0, 1) for name, array in played.items()}
    return {
        **{name: array[truth if name in _TRUTH else kept] for name, array in by_episode.items()},
        "length": length.astype(np.int32),
        "solved": success[length - 1, np.arange(count)],
    }


@partial(jax.jit, static_argnums=(0, 1))
def _play(
    world: World, num_episodes: int, key: Key[Array, ""], epsilon: Float[Array, " env"]
) -> dict[str, Shaped[Array, "time env ..."]]:
    """Episodes side by side, each for `max_steps` steps, in small types."""
    reset_key, key = jax.random.split(key)
    obs_type, action_type = world.factors.compact_dtype, _smallest(world.num_actions)

    def step(states: WorldState, time: Int[Array, ""]) -> tuple[WorldState, dict[str, Shaped[Array, "env ..."]]]:
        act_key, step_key = jax.random.split(jax.random.fold_in(key, time))
        act_keys, step_keys = jax.random.split(act_key, num_episodes), jax.random.split(step_key, num_episodes)
        actions = jax.vmap(world.scripted, in_axes=(0, 0, 0))(act_keys, states, epsilon)
        states, transition = jax.vmap(world.step)(step_keys, states, actions)
        return states, {
            "obs": transition.obs.astype(obs_type),
            "action": actions.astype(action_type),
            "next_obs": transition.next_obs.astype(obs_type),
            "graph": jnp.packbits(transition.graph.reshape(num_episodes, -1), axis=1),
            "events": jnp.packbits(transition.events, axis=1),
            "done": transition.done,
            "success": transition.success,
        }

    played: dict[str, Shaped[Array, "time env ..."]]
    _, played = jax.lax.scan(step, world.reset_many(reset_key, num_episodes), jnp.arange(world.max_steps))
    return played


def _smallest(n: int) -> np.dtype[np.generic]:
    """The smallest type that holds 0 .. n - 1."""
    return np.dtype(np.min_scalar_type(n - 1))


# From chunks to the stored arrays, and from these to the data.


def _merge(chunks: Iterable[Arrays], config: CollectConfig) -> tuple[Arrays, dict[str, object]]:
    """Stored arrays of both parts, and what the card says of each part."""
    chunks = list(chunks)
    whole = {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}
    ends = np.cumsum(whole["length"])
    count = int(np.searchsorted(ends, config.transitions)) + 1
    length, solved = whole["length"][:count], whole["solved"][:count]
    number = np.arange(count, dtype=np.int32)
    episode = np.repeat(number, length)
    step = np.arange(ends[count - 1]) - np.repeat(ends[:count] - length, length)
    held = held_out_episodes(number, config.held_out)
    columns = {name: whole[name][: len(episode)] for name in ("obs", "action", "next_obs")}
    columns |= {"episode": episode, "step": step.astype(np.int32)}
    arrays: Arrays = {}
    counts: dict[str, object] = {}
    for part, which in zip(_PARTS, (~held, held), strict=True):
        arrays |= {f"{part}_{name}": columns[name][which[episode]] for name in _COMMON}
        transitions = int(length[which].sum())
        counts[part] = {"transitions": transitions, "episodes": int(which.sum()), "solved": float(solved[which].mean())}
    for name in _TRUTH:
        arrays[f"held_out_{name}"] = whole[name][: len(arrays["held_out_step"])]
    return arrays, counts


def _names(card: Mapping[str, object], what: str) -> tuple[str, ...]:
    names = card.get(what)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise DamagedDataError(f"the card does not name the {what}")
    return tuple(names)


def _counts(card: Mapping[str, object], part: Part) -> dict[str, int | float]:
    counts = card.get(part)
    wanted = ("transitions", "episodes", "solved")
    if not isinstance(counts, dict) or not all(isinstance(counts.get(name), int | float) for name in wanted):
        raise DamagedDataError(f"the card does not say how many {', '.join(wanted)} there are in the {part} part")
    return counts


def _dataset(arrays: Arrays, card: Mapping[str, object]) -> Dataset:
    """The data of stored arrays, which may be any: what does not fit the card is refused."""
    if sorted(arrays) != sorted(_ARRAYS):
        raise DamagedDataError(f"the arrays are {', '.join(sorted(arrays))}; expected are {', '.join(sorted(_ARRAYS))}")
    factors = factors_from_json(card.get("factors"))
    num_actions, num_events = len(_names(card, "actions")), len(_names(card, "events"))
    train, held_out = (_split(arrays, part, factors, num_actions) for part in _PARTS)
    for part, split in zip(_PARTS, (train, held_out), strict=True):
        given, found = _counts(card, part), (len(split), split.num_episodes)
        if (given["transitions"], given["episodes"]) != found:
            raise DamagedDataError(f"the {part} part has {found} transitions and episodes; the card says {given}")
    n = factors.num_variables
    graph = _unpacked(arrays, "held_out_graph", len(held_out), n * (n + 1)).reshape(-1, n, n + 1)
    events = _unpacked(arrays, "held_out_events", len(held_out), num_events)
    return Dataset(train, replace(held_out, graph=graph, events=events), card)


def _split(arrays: Arrays, part: Part, factors: Factors, num_actions: int) -> Split:
    size = len(arrays[f"{part}_step"]) if arrays[f"{part}_step"].ndim else 0
    for name in _COMMON:
        array = arrays[f"{part}_{name}"]
        width = (factors.width,) if name.endswith("obs") else ()
        kind = "uif" if width else "ui"
        if not size or array.shape != (size, *width) or array.dtype.kind not in kind:
            raise DamagedDataError(
                f"{part}_{name} is {array.dtype} {list(array.shape)}; expected are numbers {[size or '1..', *width]}"
            )
    if arrays[f"{part}_action"].max() >= num_actions or arrays[f"{part}_action"].min() < 0:
        raise DamagedDataError(f"{part}_action holds actions that are not among the {num_actions} of the card")
    numbers = {name: arrays[f"{part}_{name}"].astype(np.int32) for name in ("action", "episode", "step")}
    observed = {name: arrays[f"{part}_{name}"].astype(factors.dtype) for name in ("obs", "next_obs")}
    return Split(
        obs=observed["obs"],
        action=numbers["action"],
        next_obs=observed["next_obs"],
        episode=numbers["episode"],
        step=numbers["step"],
    )


def _unpacked(arrays: Arrays, name: str, size: int, bits: int) -> Bool[np.ndarray, "n bit"]:
    packed: UInt8[np.ndarray, "n byte"] = arrays[name]
    shape = (size, math.ceil(bits / 8))
    if packed.dtype != np.uint8 or packed.shape != shape:
        raise DamagedDataError(f"{name} is {packed.dtype} {list(packed.shape)}; expected is uint8 {list(shape)}")
    return np.unpackbits(packed, axis=1, count=bits).astype(bool)
