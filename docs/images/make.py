"""Makes the pictures of the docs: `python docs/images/make.py` writes worlds.png beside this file.

The film carwash.gif is the one that `elden film` leaves in runs/film; carwash_intervention_*.png are of the carwash run
that `elden reproduce table1 --preset quick` leaves in runs/table1-quick.
"""

from pathlib import Path

import jax
import numpy as np
from PIL import Image

import elden
from elden.worlds import pictures
from elden.worlds.base import World, WorldState

SHOWN = {"thawing": 6, "carwash": 9, "minecraft": 14, "chain": 7}
"""The world, and how many scripted steps into the episode."""


def played(world: World, steps: int) -> WorldState:
    """A state some scripted steps into an episode."""
    state: WorldState = jax.jit(world.reset)(jax.random.key(3))
    step, act = jax.jit(world.step), jax.jit(world.scripted)
    for k in range(steps):
        state, _ = step(jax.random.key(k), state, act(jax.random.key(k), state))
    return state


def main() -> None:
    """Draw the worlds side by side."""
    frames = [
        pictures.draw(world.scene(played(world, steps)), tile=40)
        for world, steps in ((elden.make(name, solvable_only=True), steps) for name, steps in SHOWN.items())
    ]
    height = max(frame.shape[0] for frame in frames)
    sheet = Image.new("RGB", (sum(frame.shape[1] + 12 for frame in frames) - 12, height), "white")
    x = 0
    for frame in frames:
        sheet.paste(Image.fromarray(np.asarray(frame)), (x, 0))
        x += frame.shape[1] + 12
    sheet.save(Path(__file__).with_name("worlds.png"), optimize=True)


if __name__ == "__main__":
    main()
