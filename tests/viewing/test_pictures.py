"""Pictures: what a reader must be able to tell apart differs, and frames of an episode stack."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from elden.viewing import sprites
from elden.viewing.pictures import ARROWS, draw, text, write_gif
from elden.worlds.scene import Scene, Sprite

TILE = 32
KINDS = sorted(sprites.ARTS)
SIZES = {"fridge": (2, 2), "sink": (2, 2), "car": (3, 2), "bucket": (1, 2), "shelf": (2, 3), "gripper": (2, 3)}
LOOKS: list[tuple[str, dict[str, int], dict[str, int]]] = [
    ("fridge", {"open": 0}, {"open": 1}),
    ("sink", {"on": 0}, {"on": 1}),
    ("car", {"stained": 0}, {"stained": 1}),
    ("bucket", {"soapy": 0}, {"soapy": 1}),
    *[("fish", {"frozen": i}, {"frozen": i + 1}) for i in range(5)],
    *[("rag", {"soak": i, "clean": 5}, {"soak": i + 1, "clean": 5}) for i in range(5)],
    *[("rag", {"soak": 0, "clean": i}, {"soak": 0, "clean": i + 1}) for i in range(5)],
    *[("link", {"level": i, "levels": 3}, {"level": i + 1, "levels": 3}) for i in range(3)],
    *[(kind, {"value": 3}, {"value": 4}) for kind in ("inert", "noisy", "intricate")],
    ("intricate", {"value": 3}, {"value": 3, "value2": 4}),
    ("stove", {"on": 0}, {"on": 1}),
    ("switch", {"on": 0}, {"on": 1}),
    ("gripper", {"closed": 0}, {"closed": 1}),
    *[("butter", {"melt": i}, {"melt": i + 2}) for i in (0, 4, 8)],
    *[("meatball", {"cook": i}, {"cook": i + 2}) for i in (0, 4, 8)],
    ("meatball", {"cook": 0, "overcooked": 0}, {"cook": 0, "overcooked": 1}),
]


def scene_of(*things: Sprite, size: int = 5) -> Scene:
    return Scene(size, size, things, None)


def differing(first: np.ndarray, second: np.ndarray) -> int:
    """How many pixels differ enough to be seen."""
    return int((np.abs(first.astype(int) - second.astype(int)).max(-1) > 24).sum())


def episode() -> list[Scene]:
    """A few steps of a thawing kitchen: the door opens, the fish is taken."""
    fish = Sprite("fish", 2, 1, look={"frozen": 5})
    closed = Scene(
        6,
        5,
        (Sprite("fridge", 2, 1, 2, 2, {"open": 0}), fish),
        (1, 1, 0),
        status=(("stage", "0/3"),),
        caption=("start",),
    )
    opened = replace(closed, sprites=(Sprite("fridge", 2, 1, 2, 2, {"open": 1}), fish), caption=("open",))
    taken = replace(opened, sprites=opened.sprites[:1], held=(fish,), status=(("stage", "1/3"),))
    return [closed, opened, taken]


@pytest.mark.parametrize("tile", [16, 24, 40])
def test_image_has_three_bytes_a_pixel_and_the_grid_on_top(tile: int) -> None:
    image = draw(Scene(12, 10, (), (3, 4, 0)), tile)
    assert image.dtype == np.uint8
    assert image.shape[1:] == (max(12 * tile, 14 * 11), 3)
    assert image.shape[0] > 10 * tile


def test_shape_depends_only_on_the_declared_parts() -> None:
    plain = Scene(8, 7, (), (1, 1, 0), inventory=(("wood", 0),), status=(("a", "1"), ("b", "2")), caption=("", "x"))
    full = Scene(
        8,
        7,
        (Sprite("car", 2, 2, 3, 2, label="a long label"), Sprite("gem", 5, 5)),
        None,
        held=(Sprite("rag", 0, 0), Sprite("soap", 0, 0)),
        inventory=tuple((kind, 12345) for kind in KINDS),
        status=(("a very long label", "and a very long value"), ("b", "")),
        caption=("words " * 50, "w" * 300),
        walls=False,
    )
    assert draw(plain, TILE).shape == draw(full, TILE).shape
    assert draw(plain, TILE).shape != draw(replace(plain, inventory=()), TILE).shape
    assert draw(plain, TILE).shape != draw(replace(plain, caption=()), TILE).shape


def test_frames_of_an_episode_stack() -> None:
    assert np.stack([draw(scene, TILE) for scene in episode()]).shape[0] == 3


def test_drawing_twice_gives_the_same_pixels() -> None:
    first = draw(episode()[1], TILE)
    draw(episode()[2], TILE)
    np.testing.assert_array_equal(first, draw(episode()[1], TILE))


def test_every_kind_differs_from_every_other_and_from_the_floor() -> None:
    images = {kind: draw(scene_of(Sprite(kind, 1, 1), size=3), TILE) for kind in KINDS}
    images["floor"] = draw(scene_of(size=3), TILE)
    for first, second in itertools.combinations(images, 2):
        assert differing(images[first], images[second]) > 40, (first, second)


@pytest.mark.parametrize(("kind", "before", "after"), LOOKS)
@pytest.mark.parametrize("tile", [24, 40])
def test_state_changes_the_picture_and_the_words(
    kind: str, before: dict[str, int], after: dict[str, int], tile: int
) -> None:
    w, h = SIZES.get(kind, (1, 1))
    first, second = (scene_of(Sprite(kind, 1, 1, w, h, look)) for look in (before, after))
    assert differing(draw(first, tile), draw(second, tile)) >= 4
    assert text(first) != text(second)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [(1, 1), (2, 1), (1, 3), (3, 3)])
def test_any_size_is_drawn_inside_its_cells(kind: str, size: tuple[int, int]) -> None:
    w, h = size
    changed = draw(scene_of(Sprite(kind, 1, 1, w, h)), TILE) != draw(scene_of(), TILE)
    rows, columns, _ = np.nonzero(changed)
    assert len(rows) > 0
    assert rows.min() >= TILE
    assert rows.max() < (1 + h) * TILE
    assert columns.min() >= TILE
    assert columns.max() < (1 + w) * TILE


@pytest.mark.parametrize("kind", ["pot", "butter"])
def test_a_shift_moves_the_drawing_and_not_the_text(kind: str) -> None:
    there, shifted = Sprite(kind, 1, 1, 2, 2, label="x"), Sprite(kind, 1, 1, 2, 2, label="x", shift=(0.5, 0.25))
    moved = np.roll(draw(scene_of(there), TILE) != draw(scene_of(), TILE), (TILE // 4, TILE // 2), (0, 1))
    rows, columns, _ = np.nonzero(moved)
    changed = draw(scene_of(shifted), TILE) != draw(scene_of(), TILE)
    assert [rows.min(), columns.min()] == [axis.min() for axis in np.nonzero(changed)[:2]]
    assert text(scene_of(there)) == text(scene_of(shifted))
    with pytest.raises(ValueError, match=rf"{kind} of 2 x 2 cells at \(3\.5, 1\) does not fit"):
        draw(scene_of(Sprite(kind, 3, 1, 2, 2, shift=(0.5, 0))), TILE)


@pytest.mark.parametrize("furniture", ["fridge", "sink", "shelf"])
def test_an_item_on_furniture_leaves_both_visible(furniture: str) -> None:
    below = Sprite(furniture, 1, 1, 2, 2, {"open": 1, "on": 1})
    item = Sprite("fish", 1, 2, look={"frozen": 2})
    empty, full, alone = (draw(scene_of(*things), TILE) for things in ([below], [below, item], [item]))
    cell = slice(2 * TILE, 3 * TILE), slice(TILE, 2 * TILE)
    assert 80 < differing(empty[cell], full[cell]) < 0.75 * TILE**2
    assert differing(full[cell], alone[cell]) > 80


def test_two_items_in_a_cell_are_both_visible() -> None:
    rag, soap = Sprite("rag", 1, 1), Sprite("soap", 1, 1)
    both = draw(scene_of(rag, soap), TILE)
    assert differing(both, draw(scene_of(rag), TILE)) > 80
    assert differing(both, draw(scene_of(soap), TILE)) > 80
    assert "ro" in text(scene_of(rag, soap))


def test_agent_shows_its_facing() -> None:
    images = [draw(Scene(3, 3, (), (1, 1, facing)), TILE) for facing in range(4)]
    for first, second in itertools.combinations(images, 2):
        assert differing(first, second) > 40
    for facing in range(4):
        assert ARROWS[facing] in text(Scene(3, 3, (), (1, 1, facing))).splitlines()[1]


def test_held_things_show_at_the_agent_and_in_the_panel() -> None:
    scene = Scene(5, 5, (), (2, 2, 0))
    wet, dry = (replace(scene, held=(Sprite("rag", 0, 0, look={"soak": soak}),)) for soak in (5, 0))
    bare, held = draw(scene, TILE), draw(wet, TILE)
    grid = 5 * TILE
    assert differing(bare[:grid], held[:grid]) > 40
    assert differing(bare[grid:], held[grid:]) > 40
    assert differing(held, draw(dry, TILE)) > 10
    assert "holding: rag (soaked 5/5)" in text(wet)
    assert "holding" not in text(scene)


def test_zero_counts_are_greyed_out() -> None:
    def strip(count: int) -> np.ndarray:
        scene = replace(scene_of(size=6), inventory=(("gem", count), ("rope", 2)))
        return draw(scene, TILE)[6 * TILE :].astype(int)

    def colorfulness(image: np.ndarray) -> int:
        return int((image.max(-1) - image.min(-1)).sum())

    assert colorfulness(strip(0)) < 0.7 * colorfulness(strip(1))
    assert "inventory: gem 0, rope 2" in text(replace(scene_of(), inventory=(("gem", 0), ("rope", 2))))


def test_status_label_and_caption_are_drawn() -> None:
    plain = Scene(8, 5, (Sprite("wood", 2, 2),), None, status=(("", ""),), caption=("",))
    label = replace(plain, sprites=(Sprite("wood", 2, 2, label="7"),))
    for changed in (label, replace(plain, status=(("stage", "1/3"),)), replace(plain, caption=("go",))):
        assert differing(draw(plain, TILE), draw(changed, TILE)) > 10


def written_rows(caption: Sequence[str]) -> int:
    """How many rows of letters a caption takes in the image, told by the blank rows between them."""
    scene = replace(scene_of(size=8), caption=tuple(caption))
    below = (draw(scene, TILE)[8 * TILE :] < 100).any((1, 2))
    return int(np.diff(below.astype(int), prepend=0).clip(0).sum())


def test_long_captions_are_wrapped_and_then_cut() -> None:
    line = "run " * 15
    assert written_rows(["run"]) == 1
    assert written_rows([line]) == 2
    assert written_rows([line * 9]) == 2
    assert written_rows([line * 9, "run"]) == 3
    assert written_rows([line * 9, "", "", ""]) == 5


def test_nothing_is_written_outside_the_margins() -> None:
    scene = replace(scene_of(size=8), caption=("w" * 500, "m " * 500), status=(("label" * 9, "value" * 9),) * 3)
    panel = draw(scene, TILE)[8 * TILE :]
    assert (panel[:, -3:] == 255).all()


def test_letters_the_font_lacks_are_spelled() -> None:
    def drawn(line: str) -> np.ndarray:
        return draw(replace(scene_of(size=8), caption=(line,)), TILE)

    np.testing.assert_array_equal(drawn("fridge → fish"), drawn("fridge -> fish"))
    np.testing.assert_array_equal(drawn("café"), drawn("cafe"))


def test_text_has_two_characters_a_cell() -> None:
    things = tuple(
        Sprite(
            kind,
            1 + i % 8,
            1 + i // 8,
            look={"frozen": 12, "soak": -1, "value": 10, "level": 4, "levels": 30},
        )
        for i, kind in enumerate(KINDS)
    )
    rows = text(Scene(10, 6, things, (4, 4, 2))).splitlines()[:6]
    assert [len(row) for row in rows] == [20] * 6


def test_glyphs_are_distinct_and_explained() -> None:
    glyphs: dict[str, str] = {}
    looks = [{}, *({name: value} for name in ("open", "on", "soapy", "clean") for value in (0, 1))]
    for kind, look in itertools.product(KINDS, looks):
        picture = text(scene_of(Sprite(kind, 1, 1, look=look), size=3)).splitlines()
        glyph = picture[1][2]
        assert glyph not in "█·+ " + ARROWS
        assert glyphs.setdefault(glyph, kind) == kind
        assert picture[4].startswith(f"{glyph} {kind.replace('_', ' ')}")
    assert set(glyphs.values()) == set(KINDS)


def test_text_shows_items_on_furniture() -> None:
    fridge = Sprite("fridge", 1, 1, 2, 2, {"open": 1})
    fish, rag, soap = (Sprite(kind, 1, 2) for kind in ("fish", "rag", "soap"))
    assert text(scene_of(fridge, fish)).splitlines()[1:3] == ["██ffff· ██", "██fαff· ██"]
    assert text(scene_of(fridge, fish, rag)).splitlines()[2] == "██αrff· ██"
    assert text(scene_of(fridge, fish, rag, soap)).splitlines()[2] == "██α+ff· ██"
    assert text(Scene(4, 3, (Sprite("goal", 1, 1),), (1, 1, 0))).splitlines()[1] == "██▶G· ██"


def test_text_golden() -> None:
    scene = replace(episode()[2], inventory=(("wood_pickaxe", 1),))
    assert text(scene) == (
        "████████████\n"
        "██▶ ffff· ██\n"
        "██· ffff· ██\n"
        "██· · · · ██\n"
        "████████████\n"
        "\n"
        "▶ agent   f fridge (open)\n"
        "holding: fish (frozen 5/5)\n"
        "inventory: wood pickaxe 1\n"
        "stage: 1/3\n"
        "open"
    )


def test_color_only_adds_escape_codes() -> None:
    scene = Scene(6, 6, (Sprite("sink", 1, 1, 2, 2, {"on": 1}), Sprite("rag", 1, 1)), (4, 4, 3), caption=("go",))
    colored = text(scene, color=True)
    assert colored.count("\x1b[38;5;") > 10
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == text(scene)


@pytest.mark.parametrize(
    "scene",
    [
        scene_of(Sprite("unicorn", 1, 1)),
        replace(scene_of(), held=(Sprite("unicorn", 1, 1),)),
        replace(scene_of(), inventory=(("unicorn", 1),)),
    ],
)
def test_unknown_kind_lists_the_known_ones(scene: Scene) -> None:
    for show in (draw, text):
        with pytest.raises(ValueError, match=r"unknown kind 'unicorn'.*bridge.*fridge.*workshop"):
            show(scene)


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        (scene_of(Sprite("car", 3, 1, 3, 2)), r"car of 3 x 2 cells at \(3, 1\) does not fit.*5 columns"),
        (scene_of(Sprite("gem", -1, 1)), "does not fit"),
        (scene_of(Sprite("gem", 1, 1, 0, 1)), "does not fit"),
        (Scene(5, 5, (), (5, 1, 0)), r"agent is at \(5, 1\)"),
        (Scene(5, 5, (), (1, 1, 4)), "facing is 4"),
    ],
)
def test_misplaced_things_are_refused(scene: Scene, message: str) -> None:
    for show in (draw, text):
        with pytest.raises(ValueError, match=message):
            show(scene)


def test_small_tiles_are_refused() -> None:
    with pytest.raises(ValueError, match="tile is 15 pixels; use at least 16"):
        draw(scene_of(), 15)


def read_gif(path: Path) -> tuple[list[np.ndarray], list[int], int]:
    with Image.open(path) as video:
        frames, stays = [], []
        for i in range(getattr(video, "n_frames", 1)):
            video.seek(i)
            frames.append(np.array(video.convert("RGB")))
            stays.append(int(video.info["duration"]))
        return frames, stays, int(video.info["loop"])


def test_gif_round_trip(tmp_path: Path) -> None:
    frames = [draw(scene, TILE) for scene in episode()]
    write_gif(tmp_path / "video.gif", frames, fps=5)
    read, stays, loop = read_gif(tmp_path / "video.gif")
    assert (len(read), stays, loop) == (3, [200] * 3, 0)
    for frame, copy in zip(frames, read, strict=True):
        assert copy.shape == frame.shape
        error = np.abs(frame.astype(int) - copy.astype(int)).max(-1)
        assert (error == 0).mean() > 0.95
        assert error.max() < 40


def test_gif_keeps_the_time_of_equal_frames(tmp_path: Path) -> None:
    first, second, _ = (draw(scene, TILE) for scene in episode())
    write_gif(str(tmp_path / "video.gif"), [first, first, second])
    read, stays, _ = read_gif(tmp_path / "video.gif")
    assert (len(read), stays) == (2, [500, 250])


def test_gif_of_few_colors_is_exact(tmp_path: Path) -> None:
    frames = [np.full((4, 6, 3), shade, dtype=np.uint8) for shade in (0, 100, 255)]
    frames[1][0, 0] = (1, 2, 3)
    write_gif(tmp_path / "video.gif", frames)
    for frame, copy in zip(frames, read_gif(tmp_path / "video.gif")[0], strict=True):
        np.testing.assert_array_equal(frame, copy)


def test_gif_of_one_frame(tmp_path: Path) -> None:
    write_gif(tmp_path / "still.gif", [draw(scene_of(), TILE)])
    with Image.open(tmp_path / "still.gif") as still:
        assert getattr(still, "n_frames", 1) == 1


def test_gif_mistakes_are_explained(tmp_path: Path) -> None:
    frame = draw(scene_of(), TILE)
    with pytest.raises(ValueError, match=r"frame 1 has shape .* but frame 0 has .*tile size"):
        write_gif(tmp_path / "video.gif", [frame, frame[1:]])
    with pytest.raises(ValueError, match="at least one frame"):
        write_gif(tmp_path / "video.gif", [])
    with pytest.raises(ValueError, match="fps is 0"):
        write_gif(tmp_path / "video.gif", [frame], fps=0.0)
