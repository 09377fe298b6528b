"""Stored arrays are given back bit for bit or not at all; collections are whole episodes, and resume exactly."""

import hashlib
import importlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jaxtyping import Array, Bool, Int, Key

import elden
from elden.factors import Continuous, Discrete, Entity, Factors, Variable
from elden.storage.arrays import (
    DamagedDataError,
    read_arrays,
    read_card,
    remove_arrays,
    write_arrays,
)
from elden.storage.cards import factors_from_json, factors_to_json
from elden.studies.dataset import (
    CollectConfig,
    Dataset,
    OtherCollectionError,
    Split,
    collect,
    held_out_episodes,
    load_dataset,
)
from elden.worlds.base import Named, View, World
from elden.worlds.labels import Fired, Rule, RuleBook
from elden.worlds.scene import Scene

# The package's name `collect` is the function.
MODULE = importlib.import_module("elden.studies.dataset")

SMALL = CollectConfig(transitions=170, chunk_episodes=4, seed=3)
"""Of `quick`: 15 episodes of 12 steps, hence four chunks, of which the last is cut."""


@lru_cache
def quick() -> World:
    """Chain without chance: a step can be repeated from its observation."""
    return elden.make("chain", max_steps=12, depth=2, noisy=0)


@dataclass(frozen=True)
class Dial(World):
    """A pointer on a plane that a turn moves, and a counter of turns: kinds are mixed unless `pointer` is off."""

    name: ClassVar[str] = "dial"
    max_steps: int = 6
    pointer: bool = True
    """Whether there is a pointer."""

    @property
    def factors(self) -> Factors:
        """A counter of more values than a byte holds, and the pointer."""
        counter = Entity("counter", (Variable("turns", Discrete(300)),))
        pointer = Entity("pointer", (Variable("place", Continuous(2)), Variable("side", Discrete(2))))
        return Factors((counter, pointer) if self.pointer else (counter,))

    @property
    def action_names(self) -> tuple[str, ...]:
        """Wait or turn."""
        return "wait", "turn"

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The last value of the counter."""
        return ("full",)

    @property
    def book(self) -> RuleBook:
        """A turn counts."""
        return RuleBook(self.factors, (Rule("turned", ("counter.turns",), ("action",)),))

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Bool[Array, ""]]:
        view: View = {"counter.turns": jax.random.randint(key, (), 290, 297, jnp.int32)}
        if self.pointer:
            place = jax.random.normal(key, (2,), jnp.float32)
            view |= {"pointer.place": place, "pointer.side": (place[0] > 0).astype(jnp.int32)}
        return view, jnp.asarray(True)

    def _advance(self, key: Key[Array, ""], view: View, action: Int[Array, ""]) -> tuple[View, Fired]:
        turned = action == 1
        turns = jnp.minimum(view["counter.turns"].astype(jnp.int32) + turned.astype(jnp.int32), 299)
        after = {**view, "counter.turns": turns}
        if self.pointer:
            place = view["pointer.place"] + jax.random.normal(key, (2,), jnp.float32)
            after |= {"pointer.place": place, "pointer.side": (place[0] > 0).astype(jnp.int32)}
        return after, {"turned": turned}

    def _goal(self, view: View) -> Bool[Array, ""]:
        full: Bool[Array, ""] = view["counter.turns"] == 299
        return full

    def _stages(self, view: View, fired: Fired | None) -> list[Bool[Array, ""]]:
        return [self._goal(view)]

    def _solvable(self, view: View) -> Bool[Array, ""]:
        return jnp.asarray(True)

    def _violations(self, view: View) -> dict[str, Bool[Array, ""]]:
        return {}

    def _script(self, key: Key[Array, ""], view: View) -> Int[Array, ""]:
        turn: Int[Array, ""] = jnp.int32(1)
        return turn

    def _scene(self, named: Named) -> Scene:
        raise NotImplementedError("a dial has no picture")


@pytest.fixture(scope="module")
def small() -> Dataset:
    return collect(quick(), SMALL)


def assert_same_data(got: Dataset, expected: Dataset) -> None:
    for part in ("train", "held_out"):
        for field in fields(Split):
            a, b = (getattr(getattr(data, part), field.name) for data in (got, expected))
            np.testing.assert_array_equal(a, b)
            assert a is b is None or a.dtype == b.dtype


def content(folder: Path) -> dict[str, bytes]:
    """Every array file of a folder."""
    return {file.name: file.read_bytes() for file in folder.glob("*.npy")}


def file_of(folder: Path, name: str) -> Path:
    """The file of an array."""
    (file,) = folder.glob(f"{name}.????????.npy")
    return file


def flip(file: Path, index: int = -1) -> None:
    """Flip one bit of a file."""
    data = bytearray(file.read_bytes())
    data[index] ^= 1
    file.write_bytes(bytes(data))


# The store.

ARRAYS: dict[str, np.ndarray] = {
    "a": np.arange(6, dtype=np.int16).reshape(2, 3),
    "b.c-d": np.array(np.nan, np.float32),
    "mask": np.zeros((0, 4), bool),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(3, 2)),
}


@given(
    array=hnp.arrays(
        st.sampled_from(["bool", "uint8", "<i4", ">i8", "float16", "float32", "complex64"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
def test_any_array_comes_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, array: np.ndarray) -> None:
    folder = tmp_path_factory.mktemp("store")
    write_arrays(folder, "transitions", {"x": array}, {})
    back = read_arrays(folder, "transitions")[0]["x"]
    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_arrays_and_card_come_back(tmp_path: Path) -> None:
    card: dict[str, object] = {"text": "é", "list": [1, 2.5, None, True], "nested": {"0": {}}}
    write_arrays(tmp_path / "new" / "folder", "transitions", ARRAYS, card)
    arrays, back = read_arrays(tmp_path / "new" / "folder", "transitions")
    assert back == card == read_card(tmp_path / "new" / "folder", "transitions")
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype
    assert {file.name for file in (tmp_path / "new" / "folder").iterdir()} == {
        "card.json",
        *(file_of(tmp_path / "new" / "folder", name).name for name in ARRAYS),
    }


def test_the_card_holds_the_checksum_of_every_file(tmp_path: Path) -> None:
    write_arrays(tmp_path, "transitions", ARRAYS, {})
    entries = json.loads((tmp_path / "card.json").read_text())["arrays"]
    for name, array in ARRAYS.items():
        digest = hashlib.sha256(file_of(tmp_path, name).read_bytes()).hexdigest()
        assert entries[name] == {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}


def test_a_second_writing_replaces_the_first(tmp_path: Path) -> None:
    write_arrays(tmp_path, "transitions", {"x": np.zeros(3)}, {"try": 1})
    write_arrays(tmp_path, "transitions", {"x": np.ones(2)}, {"try": 2})
    arrays, card = read_arrays(tmp_path, "transitions")
    assert card == {"try": 2}
    np.testing.assert_array_equal(arrays["x"], np.ones(2))
    assert len(list(tmp_path.iterdir())) == 2  # nothing of the first is left


def rewrite_card(change: Callable[[dict[str, object]], object]) -> Callable[[Path], None]:
    """Change what a card says, and make its checksum right again."""

    def damage(folder: Path) -> None:
        content = json.loads((folder / "card.json").read_text())
        change(content)
        del content["sha256"]
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
        (folder / "card.json").write_text(json.dumps(content))

    return damage


def set_shape(content: dict[str, object]) -> None:
    entries = content["arrays"]
    assert isinstance(entries, dict)
    entries["a"]["shape"] = [3, 2]


def lose_checksum(content: dict[str, object]) -> None:
    entries = content["arrays"]
    assert isinstance(entries, dict)
    entries["a"]["sha256"] = "../../up"


def linked(file: Path) -> None:
    """Put a link to the same content in the place of a file."""
    file.rename(file.parent.parent / "elsewhere.npy")
    file.symlink_to(file.parent.parent / "elsewhere.npy")


NOT_A_NUMBER = '{"kind": "transitions", "version": 1, "card": NaN}'


def lead_outside(content: dict[str, object]) -> None:
    entries = content["arrays"]
    assert isinstance(entries, dict)
    entries["../secret"] = entries["a"]


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped byte": (lambda f: flip(file_of(f, "a")), "npy has been changed or cut off"),
    "flipped header": (lambda f: flip(file_of(f, "a"), 20), "npy has been changed or cut off"),
    "cut off": (lambda f: os.truncate(file_of(f, "a"), 99), "npy has been changed or cut"),
    "emptied": (lambda f: file_of(f, "a").write_bytes(b""), "npy has been changed or cut"),
    "missing": (lambda f: file_of(f, "a").unlink(), "npy is missing"),
    "a link": (lambda f: linked(file_of(f, "a")), "npy is missing"),
    "extra": (lambda f: np.save(f / "more.npy", np.ones(1)), "does not know: more.npy"),
    "no card": (lambda f: (f / "card.json").unlink(), "has no card.json"),
    "no folder": (shutil.rmtree, "has no card.json"),
    "no JSON": (lambda f: (f / "card.json").write_text('{"version": 1,'), "cannot be read"),
    "no text": (lambda f: (f / "card.json").write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "deep JSON": (lambda f: (f / "card.json").write_text("[" * 100_000), "nested too deeply"),
    "not a card": (lambda f: (f / "card.json").write_text("[]"), "not a card"),
    "NaN": (lambda f: (f / "card.json").write_text(NOT_A_NUMBER), "has been changed"),
    "changed card": (
        lambda f: (f / "card.json").write_text((f / "card.json").read_text().replace("thing", "thong")),
        "has been changed",
    ),
    "newer": (rewrite_card(lambda content: content.update(version=2)), "of version 2; version 1 can be read"),
    "earlier": (rewrite_card(lambda content: content.pop("kind")), "written by an earlier version of elden"),
    "other kind": (rewrite_card(lambda content: content.update(kind="models")), "holds 'models', not 'transitions'"),
    "other shape": (rewrite_card(set_shape), "holds"),
    "leads outside": (rewrite_card(lead_outside), "a name is made of"),
    "no checksum": (rewrite_card(lose_checksum), "no checksum of 'a'"),
    "no arrays": (rewrite_card(lambda content: content.pop("arrays")), "which arrays there are"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused(tmp_path: Path, case: str) -> None:
    damage, message = DAMAGE[case]
    folder = tmp_path / "store"
    write_arrays(folder, "transitions", ARRAYS, {"some": "thing"})
    np.save(tmp_path / "secret.npy", ARRAYS["a"])
    damage(folder)
    with pytest.raises(DamagedDataError, match=message):
        read_arrays(folder, "transitions")


def test_pickles_are_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only bools and numbers"):
        write_arrays(tmp_path, "transitions", {"x": np.array([{}], object)}, {})
    write_arrays(tmp_path, "transitions", {"x": np.zeros(1)}, {})
    with file_of(tmp_path, "x").open("wb") as stream:
        np.save(stream, np.array([{}], object), allow_pickle=True)
    digest = hashlib.sha256(file_of(tmp_path, "x").read_bytes()).hexdigest()
    file_of(tmp_path, "x").rename(tmp_path / f"x.{digest[:8]}.npy")

    def vouch(content: dict[str, object]) -> None:
        content["arrays"] = {"x": {"dtype": "|O", "shape": [1], "sha256": digest}}

    rewrite_card(vouch)(tmp_path)
    with pytest.raises(DamagedDataError, match="allow_pickle=False"):
        read_arrays(tmp_path, "transitions")


@pytest.mark.parametrize(
    ("name", "card", "message"),
    [
        ("../x", {}, "a name is made of"),
        ("", {}, "a name is made of"),
        ("x", {"bad": float("nan")}, "what JSON can hold"),
        ("x", {"bad": np.zeros(1)}, "what JSON can hold"),
    ],
)
def test_what_cannot_be_stored_is_refused(tmp_path: Path, name: str, card: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        write_arrays(tmp_path, "transitions", {name: np.zeros(1)}, card)
    assert list(tmp_path.iterdir()) == []


def test_nothing_of_the_users_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("finished")
    with pytest.raises(ValueError, match=r"holds other files \(thesis.txt\)"):
        write_arrays(tmp_path, "transitions", {"x": np.zeros(1)}, {})
    with pytest.raises(ValueError, match="is not a folder"):
        write_arrays(tmp_path / "thesis.txt", "transitions", {"x": np.zeros(1)}, {})


def stop_moving(monkeypatch: pytest.MonkeyPatch, moves: int) -> None:
    """Stop the process, as it were, in place of one of the moves into place."""
    replace, left = os.replace, iter(range(moves))

    def move(*names: Path) -> None:
        if next(left, None) is None:
            raise StopError
        replace(*names)

    monkeypatch.setattr("os.replace", move)


@pytest.mark.parametrize("moves", range(3))
def test_an_interrupted_writing_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    write_arrays(tmp_path, "transitions", {"x": np.zeros(3), "y": np.zeros(3)}, {"try": 1})
    with monkeypatch.context() as patch:
        stop_moving(patch, moves)
        patch.setattr("elden.storage.arrays._tidy", lambda folder: None)  # as a killed process does not
        with pytest.raises(StopError):
            write_arrays(tmp_path, "transitions", {"x": np.ones(3), "y": np.zeros(3)}, {"try": 2})
    arrays, card = read_arrays(tmp_path, "transitions")
    assert card == {"try": 1}
    np.testing.assert_array_equal(arrays["x"], np.zeros(3))
    write_arrays(tmp_path, "transitions", {"x": np.ones(3), "y": np.zeros(3)}, {"try": 2})
    assert read_arrays(tmp_path, "transitions")[1] == {"try": 2}
    assert len(list(tmp_path.iterdir())) == 3


def test_a_full_disk_is_named_and_leaves_the_writing_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_arrays(tmp_path, "transitions", {"x": np.zeros(3)}, {"try": 1})
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError("20480 requested and 3040 written")  # as numpy says it

    monkeypatch.setattr("numpy.save", full)
    with pytest.raises(OSError, match="the disk is full") as raised:
        write_arrays(tmp_path, "transitions", {"x": np.ones(3)}, {"try": 2})
    assert raised.value.filename == str(tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_everything_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def noted(what: str, call: Callable[..., None]) -> Callable[..., None]:
        def do(*names: object) -> None:
            done.append(what)
            call(*names)

        return do

    monkeypatch.setattr("os.fsync", noted("sync", os.fsync))
    monkeypatch.setattr("os.replace", noted("move", os.replace))
    write_arrays(tmp_path, "transitions", {"x": np.zeros(3)}, {})
    assert done == ["sync", "move", "sync", "sync", "move", "sync"]  # array, folder, card, folder


def test_a_link_in_the_place_of_a_file_to_write_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "x.npy.part").symlink_to(tmp_path / "mine")
    (folder / "card.json.part").symlink_to(tmp_path / "mine")
    write_arrays(folder, "transitions", {"x": np.zeros(3)}, {})
    assert (tmp_path / "mine").read_text() == "precious"
    assert len(list(folder.iterdir())) == 2


def test_only_what_was_written_here_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    write_arrays(folder, "transitions", {"x": np.zeros(3)}, {})
    (folder / "thesis.npy").write_text("mine")
    remove_arrays(folder)
    assert [file.name for file in folder.iterdir()] == ["thesis.npy"]
    (tmp_path / "link").symlink_to(folder)
    write_arrays(tmp_path / "other", "transitions", {"x": np.zeros(3)}, {})
    remove_arrays(tmp_path / "other")
    remove_arrays(tmp_path / "link")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "store"]


def test_another_kind_is_not_written_over(tmp_path: Path) -> None:
    write_arrays(tmp_path, "transitions", {"x": np.zeros(3)}, {})
    with pytest.raises(ValueError, match="holds 'transitions', not 'bonus'; choose a new or an empty folder"):
        write_arrays(tmp_path, "bonus", {"x": np.zeros(3)}, {})
    assert read_arrays(tmp_path, "transitions")[0]["x"].shape == (3,)


# Factors in a card.


@pytest.mark.parametrize(
    "factors", [quick().factors, Dial().factors, elden.make("chain", continuous=True).factors], ids=str
)
def test_factors_survive_json(factors: Factors) -> None:
    data = json.loads(json.dumps(factors_to_json(factors), allow_nan=False))
    assert factors_from_json(data) == factors


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "cannot be rebuilt"),
        ([], "at least one entity"),
        ([{"name": "a"}], "'variables' is not given"),
        ([{"name": "a", "variables": [{"name": "x", "kind": "complex"}]}], "kind 'complex'"),
        ([{"name": "a", "variables": [{"name": "x", "kind": "discrete", "n": 0}]}], "n must lie between"),
        ([{"name": "a", "variables": [{"name": "x", "kind": "discrete", "n": 2.5}]}], "cannot be rebuilt"),
    ],
)
def test_what_are_no_factors_is_refused(data: object, message: str) -> None:
    with pytest.raises(DamagedDataError, match=message):
        factors_from_json(data)


# Whole episodes, in two parts.


@given(st.floats(0.01, 0.99), st.integers(1, 300))
def test_held_out_episodes_are_evenly_spread(fraction: float, count: int) -> None:
    held = held_out_episodes(np.arange(count), fraction)
    assert held[0]
    np.testing.assert_array_equal(np.cumsum(held), np.ceil(np.arange(1, count + 1) * fraction))


def test_parts_are_whole_episodes_without_overlap(small: Dataset) -> None:
    numbers = []
    for split in (small.train, small.held_out):
        assert np.all(np.diff(split.episode) >= 0)
        for episode in np.unique(split.episode):
            np.testing.assert_array_equal(split.step[split.episode == episode], np.arange(12))
            numbers.append(int(episode))
    assert sorted(numbers) == list(range(15))
    assert np.unique(small.held_out.episode).tolist() == [0, 10]
    assert len(small.train) + len(small.held_out) == 180  # the episode that reaches 170 is kept whole


def test_an_episode_goes_on_where_it_was(small: Dataset) -> None:
    for split in (small.train, small.held_out):
        inside = split.episode[1:] == split.episode[:-1]
        np.testing.assert_array_equal(split.next_obs[:-1][inside], split.obs[1:][inside])
        assert not np.all(split.next_obs[:-1][~inside] == split.obs[1:][~inside])
        assert np.any(split.next_obs != split.obs)


def test_every_transition_is_one_of_the_world(small: Dataset) -> None:
    world = quick()
    begin, step = jax.vmap(world.begin), jax.jit(jax.vmap(world.step))
    for split in (small.train, small.held_out):
        keys = jax.random.split(jax.random.key(9), len(split))
        _, transition = step(keys, begin(jnp.asarray(split.obs)), jnp.asarray(split.action))
        np.testing.assert_array_equal(split.next_obs, transition.next_obs)
        if split is small.held_out:
            np.testing.assert_array_equal(split.graph, transition.graph)
            np.testing.assert_array_equal(split.events, transition.events)


def test_the_graph_is_the_identity_and_the_edges_of_the_events(small: Dataset) -> None:
    book, n = quick().book, quick().factors.num_variables
    assert small.train.graph is None
    assert small.train.events is None
    assert small.held_out.graph is not None
    assert small.held_out.events is not None
    assert small.held_out.events.any(axis=0).sum() >= 3
    for graph, events in zip(small.held_out.graph, small.held_out.events, strict=True):
        expected = np.zeros((n, n + 1), bool)
        for name, happened in zip(small.event_names, events, strict=True):
            expected |= happened & book.edges[name]
        off_diagonal = ~np.eye(n, n + 1, dtype=bool)
        np.testing.assert_array_equal(graph & off_diagonal, expected)


def test_types_and_card(small: Dataset) -> None:
    world = quick()
    assert small.train.obs.dtype == small.train.next_obs.dtype == world.factors.dtype == np.int32
    assert small.factors == world.factors
    assert small.action_names == world.action_names
    assert small.event_names == world.book.events
    assert small.card["world"] == {
        "name": "chain",
        "options": {name: getattr(world, name) for name in world.option_names()},
    }
    assert small.card["config"] == {
        "transitions": 170,
        "epsilon": 0.5,
        "held_out_epsilon": 0.1,
        "held_out": 0.1,
        "seed": 3,
        "chunk_episodes": 4,
    }
    assert small.card["train"] == {"transitions": 156, "episodes": 13, "solved": small.solved("train")}
    assert isinstance(small.card["provenance"], dict)
    assert {"elden", "jax", "device", "date", "command"} <= small.card["provenance"].keys()


def test_solved_episodes_are_those_whose_last_link_came_on(small: Dataset) -> None:
    column = quick().factors.variable_index("link1.level")
    for part, split in (("train", small.train), ("held_out", small.held_out)):
        on = [split.next_obs[split.episode == episode, column].any() for episode in np.unique(split.episode)]
        assert small.card[part] == {"transitions": len(split), "episodes": len(on), "solved": np.mean(on)}


def test_epsilon_mixes_random_actions_in() -> None:
    scripted = collect(quick(), replace(SMALL, epsilon=0.0, held_out_epsilon=1.0))
    random = collect(quick(), replace(SMALL, epsilon=1.0, held_out_epsilon=0.0))
    world = quick()
    # Without chance in the policy or the start of the chain, all episodes begin with a walk to link0.
    for split in (scripted.train, random.held_out):
        assert {world.action_names[action] for action in split.action[split.step == 0]} == {"goto_link0"}
    assert len(np.unique(random.train.action)) == world.num_actions
    assert scripted.solved("train") == random.solved("held_out") == 1.0
    assert random.solved("train") < 1.0


def test_seed_decides(small: Dataset) -> None:
    assert_same_data(collect(quick(), SMALL), small)
    other = collect(quick(), replace(SMALL, seed=4))
    assert np.any(other.train.obs != small.train.obs)


def test_no_two_episodes_are_the_same(small: Dataset) -> None:
    starts = np.concatenate([split.obs[split.step == 0] for split in (small.train, small.held_out)])
    assert len(np.unique(starts, axis=0)) == 15


def test_a_longer_collection_begins_with_the_shorter(small: Dataset) -> None:
    longer = collect(quick(), replace(SMALL, transitions=400))
    for name in ("obs", "action", "next_obs", "episode", "step"):
        for part in ("train", "held_out"):
            short, long = (getattr(getattr(data, part), name) for data in (small, longer))
            assert len(long) > len(short)
            np.testing.assert_array_equal(long[: len(short)], short)


@pytest.mark.parametrize("asked", [145, 156, 157, 192])
def test_less_than_one_episode_too_many(asked: int) -> None:
    data = collect(quick(), replace(SMALL, transitions=asked))
    assert len(data.train) + len(data.held_out) == -(-asked // 12) * 12


def test_episodes_end_with_success_where_asked() -> None:
    world = replace(quick(), terminate_on_success=True, max_steps=12)
    data = collect(world, replace(SMALL, epsilon=0.5, transitions=300))
    column = world.factors.variable_index("link1.level")
    lengths = []
    for split in (data.train, data.held_out):
        for episode in np.unique(split.episode):
            rows = split.episode == episode
            solved = split.next_obs[rows, column] == 1
            lengths.append(int(rows.sum()))
            np.testing.assert_array_equal(split.step[rows], np.arange(lengths[-1]))
            assert not solved[:-1].any()
            assert solved[-1] or lengths[-1] == 12
    assert min(lengths) < 12 == max(lengths)
    last = max(data.train.episode.max(), data.held_out.episode.max())
    end = sum(int((split.episode == last).sum()) for split in (data.train, data.held_out))
    assert sum(lengths) - end < 300 <= sum(lengths)


# Other kinds of variables.


@pytest.mark.parametrize(
    ("world", "stored", "given_back"),
    [
        (elden.make("chain", max_steps=12, continuous=True), np.float32, np.float32),
        (Dial(), np.float32, np.float32),
        (Dial(pointer=False), np.uint16, np.int32),
        (quick(), np.uint8, np.int32),
    ],
    ids=["continuous", "mixed", "more than a byte", "bytes"],
)
def test_kinds_round_trip(tmp_path: Path, world: World, stored: type, given_back: type) -> None:
    config = CollectConfig(transitions=60, chunk_episodes=8)
    data = collect(world, config, tmp_path)
    assert_same_data(load_dataset(tmp_path), data)
    assert np.load(file_of(tmp_path, "train_obs")).dtype == stored
    assert data.train.obs.dtype == given_back
    assert load_dataset(tmp_path).factors == world.factors
    assert np.all(world.factors.in_range(data.train.obs))
    if isinstance(world, Dial):
        turns = (data.train.next_obs - data.train.obs)[:, 0]
        np.testing.assert_array_equal(turns, (data.train.action == 1) & (data.train.obs[:, 0] < 299))
        assert data.train.next_obs[:, 0].max() > 255


# On disk: resumed, finished, damaged, other.


class StopError(Exception):
    """Interrupts a collection."""


def stop_after(chunks: int) -> Callable[[int, int], None]:
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 1 + chunks:  # the first call says that it begins
            raise StopError

    return progress


def interrupted(folder: Path, chunks: int = 2, config: CollectConfig = SMALL) -> None:
    with pytest.raises(StopError):
        collect(quick(), config, folder, stop_after(chunks))


@pytest.fixture
def plays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The chunks that are played from now on."""
    played: list[int] = []
    original = MODULE._play_chunk

    def counted(world: World, config: CollectConfig, index: int) -> dict[str, np.ndarray]:
        played.append(index)
        chunk: dict[str, np.ndarray] = original(world, config, index)
        return chunk

    monkeypatch.setattr(MODULE, "_play_chunk", counted)
    return played


def test_a_folder_holds_the_same_as_memory(tmp_path: Path, small: Dataset) -> None:
    progress: list[tuple[int, int]] = []
    made = collect(quick(), SMALL, tmp_path / "data", lambda *numbers: progress.append(numbers), command="elden me")
    assert_same_data(made, small)
    assert_same_data(load_dataset(tmp_path / "data"), small)
    assert load_dataset(tmp_path / "data").card == made.card
    assert progress == [(0, 170), (48, 170), (96, 170), (144, 170), (170, 170)]
    assert made.card["provenance"]["command"] == "elden me"  # type: ignore[index]
    assert all(file.suffix in (".npy", ".json") for file in (tmp_path / "data").iterdir())


@pytest.mark.parametrize("after", [1, 2, 4])
def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path, plays: list[int], after: int) -> None:
    interrupted(tmp_path / "resumed", after)
    with pytest.raises(DamagedDataError, match="not finished; run the same command again"):
        load_dataset(tmp_path / "resumed")
    resumed = collect(quick(), SMALL, tmp_path / "resumed")
    assert plays == [0, 1, 2, 3]
    uninterrupted = collect(quick(), SMALL, tmp_path / "whole")
    assert_same_data(resumed, uninterrupted)
    assert content(tmp_path / "resumed") == content(tmp_path / "whole")
    assert len(content(tmp_path / "whole")) == 12


def test_a_chunk_without_card_is_collected_anew(tmp_path: Path, small: Dataset, plays: list[int]) -> None:
    interrupted(tmp_path, 3)
    (tmp_path / "chunks.part" / "00001" / "card.json").unlink()
    assert_same_data(collect(quick(), SMALL, tmp_path), small)
    assert plays == [0, 1, 2, 1, 3]


@pytest.mark.parametrize("file", ["obs.*.npy", "card.json"])
def test_a_damaged_chunk_is_collected_anew(
    tmp_path: Path, small: Dataset, plays: list[int], caplog: pytest.LogCaptureFixture, file: str
) -> None:
    interrupted(tmp_path, 3)
    (damaged,) = (tmp_path / "chunks.part" / "00000").glob(file)
    flip(damaged, -9)
    assert_same_data(collect(quick(), SMALL, tmp_path), small)
    assert plays == [0, 1, 2, 0, 3]
    assert "a damaged chunk is collected again" in caplog.text


def test_a_chunk_in_the_place_of_another_is_collected_anew(
    tmp_path: Path, small: Dataset, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted(tmp_path, 2)
    shutil.copytree(tmp_path / "chunks.part" / "00001", tmp_path / "chunks.part" / "00002")
    assert_same_data(collect(quick(), SMALL, tmp_path), small)
    assert "holds chunk 1" in caplog.text


def test_an_interruption_while_the_parts_are_written(
    tmp_path: Path, small: Dataset, plays: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise StopError

    monkeypatch.setattr(MODULE, "_dataset", stop)
    monkeypatch.setattr(MODULE, "_remove_chunks", lambda *_: None)
    with pytest.raises(StopError):
        collect(quick(), SMALL, tmp_path)
    monkeypatch.undo()
    (tmp_path / "card.json").unlink()
    file_of(tmp_path, "train_step").rename(tmp_path / "train_step.npy.part")
    assert_same_data(collect(quick(), SMALL, tmp_path), small)
    assert plays == [0, 1, 2, 3]
    assert not (tmp_path / "chunks.part").exists()


def test_a_finished_collection_is_loaded(tmp_path: Path, small: Dataset, plays: list[int]) -> None:
    collect(quick(), SMALL, tmp_path)
    plays.clear()
    (tmp_path / "chunks.part").mkdir()  # as an interruption just before the end leaves it
    progress: list[tuple[int, int]] = []
    assert_same_data(collect(quick(), SMALL, tmp_path, lambda *numbers: progress.append(numbers)), small)
    assert (plays, progress) == ([], [(170, 170)])
    assert not (tmp_path / "chunks.part").exists()


@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize(
    ("world", "config", "difference"),
    [
        (quick(), replace(SMALL, epsilon=0.2), r"config.epsilon was 0.5, now 0.2"),
        (quick(), replace(SMALL, transitions=180), r"config.transitions was 170, now 180"),
        (replace(quick(), max_steps=13), SMALL, r"world.options.max_steps was 12, now 13"),
        (Dial(), SMALL, r"world.name was 'chain', now 'dial'"),
    ],
    ids=["config", "size", "options", "world"],
)
def test_another_collection_is_refused(
    tmp_path: Path, finished: bool, world: World, config: CollectConfig, difference: str
) -> None:
    if finished:
        collect(quick(), SMALL, tmp_path)
    else:
        interrupted(tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with pytest.raises(OtherCollectionError, match=difference):
        collect(world, config, tmp_path)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before


def test_a_flipped_byte_is_refused(tmp_path: Path) -> None:
    collect(quick(), SMALL, tmp_path)
    flip(file_of(tmp_path, "train_obs"))
    for read in (load_dataset, lambda folder: collect(quick(), SMALL, folder)):
        with pytest.raises(DamagedDataError, match=r"train_obs\.\w+\.npy has been changed"):
            read(tmp_path)


def test_files_of_others_are_not_touched(tmp_path: Path, plays: list[int]) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"notes\.txt"):
        collect(quick(), SMALL, tmp_path)
    assert plays == []


@pytest.mark.parametrize(
    ("array", "card", "message"),
    [
        ("train_action", {}, "train_action holds actions that are not among the 2"),
        ("train_obs", {}, r"train_obs is uint8 \[156, 3\]"),
        ("held_out_graph", {}, r"held_out_graph is uint8 \[24, 3\]"),
        (None, {"factors": [{"name": "a"}]}, "cannot be rebuilt"),
        (None, {"actions": 3}, "does not name the actions"),
        (None, {"train": {"transitions": 1, "episodes": 1, "solved": 0.0}}, "the card says"),
        (None, {"train": None}, "does not say how many"),
    ],
)
def test_whole_arrays_that_are_no_data_are_refused(
    tmp_path: Path, array: str | None, card: dict[str, object], message: str
) -> None:
    collect(quick(), SMALL, tmp_path)
    arrays, about = read_arrays(tmp_path, "transitions")
    if array == "train_action":
        about["actions"] = ["one", "two"]
    elif array is not None:
        arrays[array] = arrays[array][:, :3]
    write_arrays(tmp_path, "transitions", arrays, {**about, **card})
    with pytest.raises(DamagedDataError, match=message):
        load_dataset(tmp_path)


# What cannot be asked for.


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transitions": 0}, "transitions=0 given; it takes 1 to"),
        ({"epsilon": 1.5}, "epsilon=1.5 given; it takes 0 to 1"),
        ({"epsilon": float("nan")}, "epsilon=nan given"),
        ({"held_out_epsilon": -0.5}, "held_out_epsilon=-0.5 given; it takes 0 to 1"),
        ({"held_out": 0.0}, "held_out=0.0 given"),
        ({"held_out": 1.0}, "held_out=1.0 given"),
        ({"seed": -1}, "seed=-1 given"),
        ({"chunk_episodes": 0}, "chunk_episodes=0 given"),
    ],
)
def test_config_is_checked(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SMALL, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(("transitions", "held_out"), [(12, 0.1), (96, 0.9)])
def test_no_part_may_be_empty(transitions: int, held_out: float) -> None:
    with pytest.raises(ValueError, match="would be held out"):
        collect(quick(), replace(SMALL, transitions=transitions, held_out=held_out))
    data = collect(quick(), replace(SMALL, transitions=transitions + 12 * 3, held_out=held_out))
    assert data.train.num_episodes >= 1
    assert data.held_out.num_episodes >= 1
