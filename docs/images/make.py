"""Makes the pictures of the docs: `python docs/images/make.py` writes worlds.png beside this file.

The video carwash.gif is the one that `elden video` leaves in runs/video/carwash; carwash_intervention_*.png are of the
carwash run that `elden reproduce table1 --preset quick` leaves in runs/table1-quick.
"""

from pathlib import Path

import jax
import numpy as np
from PIL import Image, ImageDraw, ImageFont

import elden
from elden.viewing import pictures
from elden.worlds.base import World, WorldState

SHOWN = {"thawing": 6, "carwash": 9, "minecraft": 14, "kitchen": 14, "chain": 7}
"""The world, and how many scripted steps into the episode."""

_HEIGHT, _TITLE, _GAP = 400, 44, 16


def played(world: World, steps: int) -> WorldState:
    """A state some scripted steps into an episode."""
    state: WorldState = jax.jit(world.reset)(jax.random.key(3))
    step, act = jax.jit(world.step), jax.jit(world.scripted)
    for k in range(steps):
        state, _ = step(jax.random.key(k), state, act(jax.random.key(k), state))
    return state


def main() -> None:
    """Draw the worlds side by side, each under its name."""
    pictured = []
    for name, steps in SHOWN.items():
        world = elden.make(name, solvable_only=True)
        image = Image.fromarray(np.asarray(pictures.draw(world.scene(played(world, steps)), tile=40)))
        pictured.append(
            (name, image.resize((round(image.width * _HEIGHT / image.height), _HEIGHT), Image.Resampling.LANCZOS))
        )
    width = sum(image.width + _GAP for _, image in pictured) - _GAP
    sheet = Image.new("RGB", (width, _TITLE + _HEIGHT), "white")
    draw, font, x = ImageDraw.Draw(sheet), ImageFont.load_default(size=28), 0
    for name, image in pictured:
        draw.text((x, 2), name, fill="#1f2933", font=font)
        sheet.paste(image, (x, _TITLE))
        x += image.width + _GAP
    sheet.save(Path(__file__).with_name("worlds.png"), optimize=True)


if __name__ == "__main__":
    main()
