"""What a picture of a world shows: where which thing is. `elden.viewing.pictures` draws it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Real = int | float  # the type checks at run time do not take an int for a float


@dataclass(frozen=True)
class Sprite:
    """A thing in a scene."""

    kind: str
    """Which drawing: a key of `sprites.ARTS`."""
    x: int
    """Its leftmost column; x grows to the right."""
    y: int
    """Its top row; y grows downwards."""
    w: int = 1
    """Width in cells."""
    h: int = 1
    """Height in cells."""
    look: Mapping[str, int] = field(default_factory=dict)
    """Attributes that change the drawing, such as `{"open": 1}`."""
    label: str = ""
    """A short text on the drawing."""
    shift: tuple[Real, Real] = (0, 0)
    """How far right and down of its cells it is drawn, in cells: for worlds without a grid."""

    @property
    def corner(self) -> tuple[Real, Real]:
        """Where the upper left corner of the drawing is, in cells."""
        return self.x + self.shift[0], self.y + self.shift[1]


@dataclass(frozen=True)
class Scene:
    """One picture: what is where, and what the panel under the grid says."""

    width: int
    """Columns, the border ring included."""
    height: int
    """Rows, the border ring included."""
    sprites: tuple[Sprite, ...]
    """The things, drawn in this order."""
    agent: tuple[int, int, int] | None
    """The agent's x, y and facing (0 right, 1 down, 2 left, 3 up)."""
    held: tuple[Sprite, ...] = ()
    """What the agent carries; the places of these sprites are not used."""
    inventory: tuple[tuple[str, int], ...] = ()
    """Kinds and counts; a count of zero is greyed out."""
    status: tuple[tuple[str, str], ...] = ()
    """Labels and values."""
    caption: tuple[str, ...] = ()
    """Free lines. A long one is wrapped into the rows left over, then cut; an empty one keeps a row free."""
    walls: bool = True
    """Whether the border ring is wall."""
