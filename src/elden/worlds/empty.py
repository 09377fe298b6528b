"""Empty: walk to an unmarked goal. Nothing interacts; the paper's example of where ELDEN has no edge."""

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Key

from elden.factors import Factors
from elden.worlds.base import Named, View
from elden.worlds.grid import Cell, Flag, Scalar, int32, same_cell
from elden.worlds.labels import Fired, RuleBook
from elden.worlds.rooms import Profile, RoomWorld, pick_action
from elden.worlds.scene import Scene, Sprite


@dataclass(frozen=True)
class Empty(RoomWorld):
    """An empty room: the agent starts at (1, 1) facing right, the goal is the opposite corner and is not observed.

    *State.* agent (x, y, dir). *Actions.* left, right, forward. *Success.* The agent enters the goal, latched: the
    reward is then paid on every later step, wherever the agent is. The original has no labels: `labels="authors"` gives
    the same graph as "fix".
    """

    name: ClassVar[str] = "empty"
    max_steps: int = 40
    profile: Profile = "primitives"
    smallest_size: ClassVar[int] = 4

    def _check_options(self) -> None:
        super()._check_options()
        self._check_choice("profile", self.profile, ("primitives",))

    @cached_property
    def factors(self) -> Factors:
        """The agent."""
        return Factors((self._entity("agent", dir=4),))

    @property
    def action_names(self) -> tuple[str, ...]:
        """The actions."""
        return ("left", "right", "forward")

    @property
    def stage_names(self) -> tuple[str, ...]:
        """The only stage is success."""
        return ("goal reached",)

    def _draw(self, key: Key[Array, ""]) -> tuple[View, Flag]:
        return {"agent.x": int32(1), "agent.y": int32(1), "agent.dir": int32(0)}, jnp.asarray(True)

    def _advance(self, key: Key[Array, ""], view: View, action: Scalar) -> tuple[View, Fired]:
        return self._walk_step(view, action)

    @property
    def _goal_cell(self) -> Cell:
        return Cell(int32(self.size - 2), int32(self.size - 2))

    def _goal(self, view: View) -> Flag:
        return same_cell(self.cell(view, "agent"), self._goal_cell)

    def _stages(self, view: View, fired: Fired | None) -> list[Flag]:
        return [self._goal(view)]

    def _solvable(self, view: View) -> Flag:
        return jnp.asarray(True)

    def _block_parents(self, obstacle: str) -> tuple[str, ...]:
        return ("agent.dir",)

    @cached_property
    def book(self) -> RuleBook:
        """Turning and walking."""
        return RuleBook(self.factors, tuple(self._walk_rules()))

    def _plan(self, key: Key[Array, ""], view: View) -> Scalar:
        """Face right and walk to the wall, face down and walk to the goal; then turn on the spot."""
        goal = self._goal_cell
        wanted = jnp.where(view["agent.x"] < goal.x, 0, jnp.where(view["agent.y"] < goal.y, 1, -1))
        turn = (wanted - view["agent.dir"]) % 4
        cases = [
            (wanted < 0, self.action("left")),
            (turn == 0, self.action("forward")),
            (turn == 3, self.action("left")),
        ]
        return pick_action(cases, self.action("right"))

    def _scene(self, named: Named) -> Scene:
        return self._room_scene(named, [Sprite("goal", self.size - 2, self.size - 2)], [])
