"""States of a training on disk: the newest whole ones stay, whatever happens, and nothing else is touched."""

import errno
import shutil
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from elden.storage import checkpoints
from elden.storage.arrays import DamagedDataError
from elden.storage.checkpoints import Checkpoints, Kept, from_arrays, to_arrays


def states(folder: Path, seed: int = 0) -> Checkpoints:
    return Checkpoints(folder / "states", "agents", {"seed": seed}, advice="elden resume RUN --start-over")


def saved(folder: Path, *numbers: int) -> Checkpoints:
    """States that hold their numbers."""
    made = states(folder)
    for number in numbers:
        made.save(number, {"a": np.int32(number)}, {"note": "kept"})
    return made


def restored(made: Checkpoints) -> Kept[dict[str, np.int32]] | None:
    return made.restore(lambda: {"a": np.int32(0)})


def number_of(made: Checkpoints) -> int:
    """The number of the newest whole state, which it must hold."""
    kept = restored(made)
    assert kept is not None
    assert int(kept.tree["a"]) == kept.number
    return kept.number


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in (folder / "states").iterdir())


def damage(state: Path) -> None:
    """Cut a state's array off."""
    (file,) = state.glob("*.npy")
    file.write_bytes(file.read_bytes()[:-1])


def test_a_state_comes_back_with_its_card(tmp_path: Path) -> None:
    assert restored(states(tmp_path)) is None
    kept = restored(saved(tmp_path, 3))
    assert kept is not None
    assert (kept.number, kept.card["note"], int(kept.tree["a"])) == (3, "kept", 3)


def test_the_newest_ones_stay(tmp_path: Path) -> None:
    saved(tmp_path, *range(5))
    assert names(tmp_path) == ["000000003", "000000004"]
    with pytest.raises(ValueError, match=r"of another training \(seed was 0, now 1\)"):
        restored(states(tmp_path, seed=1))


def test_a_full_disk_leaves_earlier_states_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = saved(tmp_path, 1)

    def full(folder: Path, *_: object) -> None:
        folder.mkdir()
        (folder / "a.npy.part").write_bytes(b"1")
        raise OSError(errno.ENOSPC, "the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_arrays", full)
        with pytest.raises(OSError, match="the disk is full"):
            made.save(2, {"a": np.int32(2)})
    assert names(tmp_path) == ["000000001"]
    assert number_of(made) == 1


def test_an_unfinished_state_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = saved(tmp_path, 1, 2)

    def interrupted(folder: Path, *_: object) -> None:
        folder.mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_arrays", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made.save(3, {"a": np.int32(3)})
    assert names(tmp_path) == ["000000001", "000000002", "000000003.part"]
    assert number_of(states(tmp_path)) == 2
    states(tmp_path).save(4, {"a": np.int32(4)})
    assert names(tmp_path) == ["000000002", "000000004"]


def test_a_state_without_a_card_does_not_count(tmp_path: Path) -> None:
    made = saved(tmp_path, 1, 2)
    (tmp_path / "states" / "000000003").mkdir()
    made.save(4, {"a": np.int32(4)})
    assert names(tmp_path) == ["000000002", "000000003", "000000004"]
    made.save(5, {"a": np.int32(5)})
    assert names(tmp_path) == ["000000004", "000000005"]


def test_a_damaged_state_does_not_count(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    damage(tmp_path / "states" / "000000002")
    again = states(tmp_path)
    assert number_of(again) == 1
    again.save(3, {"a": np.int32(3)})
    assert names(tmp_path) == ["000000001", "000000002", "000000003"]
    again.save(2, {"a": np.int32(2)})  # in the place of the damaged one
    assert names(tmp_path) == ["000000002", "000000003"]


def test_where_all_are_damaged_it_is_said_how_to_start_over(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    for state in (tmp_path / "states").iterdir():
        damage(state)
    with pytest.raises(DamagedDataError, match=r"000000002.*has been changed.*; elden resume RUN --start-over"):
        restored(states(tmp_path))
    assert names(tmp_path) == ["000000001", "000000002"]


def test_exchanged_names_are_noticed(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    (tmp_path / "states" / "000000001").rename(tmp_path / "states" / "000000003")
    assert number_of(states(tmp_path)) == 2
    (tmp_path / "states" / "000000002").rename(tmp_path / "states" / "000000001")
    with pytest.raises(DamagedDataError, match="000000003 holds the state of number 1, not 3"):
        restored(states(tmp_path))


@pytest.mark.parametrize("name", ["000000001.bak", "1", "0000000001", "٠٠٠٠٠٠٠٠١", "notes"])
def test_what_others_put_there_stays_and_is_not_read(tmp_path: Path, name: str) -> None:
    saved(tmp_path, 1)
    other = tmp_path / "states" / name
    shutil.copytree(tmp_path / "states" / "000000001", other)
    made = states(tmp_path)
    for number in (2, 3, 4):
        made.save(number, {"a": np.int32(number)})
    assert number_of(states(tmp_path)) == 4
    made.clear()
    assert names(tmp_path) == [name]
    assert len(list(other.iterdir())) == 2


def test_a_link_to_somewhere_else_is_not_emptied(tmp_path: Path) -> None:
    made = saved(tmp_path, 1)
    precious = tmp_path / "precious"
    shutil.copytree(tmp_path / "states" / "000000001", precious)
    (tmp_path / "states" / "000000000").symlink_to(precious)
    (tmp_path / "states" / "000000005.part").symlink_to(precious)
    for number in (2, 3, 4):
        made.save(number, {"a": np.int32(number)})
    made.clear()
    assert len(list(precious.iterdir())) == 2


def test_all_can_be_removed(tmp_path: Path) -> None:
    made = saved(tmp_path, 1, 2)
    made.clear()
    assert not (tmp_path / "states").exists()
    assert restored(made) is None


def test_trees_as_arrays() -> None:
    tree: dict[str, Any] = {"b": (jnp.arange(3), None), "a b": jnp.ones((2, 1))}
    arrays = to_arrays(tree)
    assert list(arrays) == ["a.b", "b.0"]
    back = from_arrays(arrays, tree)
    np.testing.assert_array_equal(back["a b"], tree["a b"])
    np.testing.assert_array_equal(back["b"][0], tree["b"][0])
    with pytest.raises(ValueError, match=r"a.b is float32 \(2, 1\); expected is float32 \(3, 1\)"):
        from_arrays(arrays, {**tree, "a b": jnp.ones((3, 1))})
    with pytest.raises(ValueError, match=r"expected are a.b$"):
        from_arrays(arrays, {"a b": tree["a b"]})
    with pytest.raises(ValueError, match="the same name"):
        to_arrays({"a b": 1, "a.b": 2})


def test_files_that_no_card_vouches_for_stay(tmp_path: Path) -> None:
    states = Checkpoints(tmp_path, "agents", {})
    stranger = tmp_path / "000000001" / "a.12345678.npy"
    stranger.parent.mkdir()
    stranger.write_text("mine")
    for number in (2, 3, 4, 5):
        states.save(number, {"a": jnp.zeros(2)})
    assert states.numbers == [1, 4, 5]
    states.clear()
    assert stranger.read_text() == "mine"
    assert states.numbers == [1]
