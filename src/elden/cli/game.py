"""A game of `elden play`: pure functions from a game and a key to the next game."""

from dataclasses import dataclass, replace

import jax

from elden.cli import steps
from elden.cli.keys import GRAPH, NEW, QUIT, UNDO, assign_keys
from elden.cli.steps import Step
from elden.worlds.base import World, WorldState


@dataclass(frozen=True)
class Moment:
    """A point of an episode.

    Attributes:
        state: The state.
        step: The step that led here; None at the start of an episode.
        collected: The sum of rewards so far.
    """

    state: WorldState
    step: Step | None
    collected: float

    @property
    def over(self) -> bool:
        """Whether the episode has ended."""
        return self.step is not None and self.step.done


@dataclass(frozen=True)
class Game:
    """Everything that the screen shows.

    Attributes:
        world: The world.
        seed: Decides all initial states and all randomness.
        episode: Number of the episode, from 1.
        history: The moments of this episode, the present one last.
        show_graph: Whether the whole graph is shown.
        note: One line of answer to the last key.
        quit: Whether the player has left.
    """

    world: World
    seed: int
    episode: int
    history: tuple[Moment, ...]
    show_graph: bool = False
    note: str = ""
    quit: bool = False

    @property
    def now(self) -> Moment:
        """The present moment."""
        return self.history[-1]


def new_game(world: World, seed: int) -> Game:
    """The start of the first episode."""
    return _episode(Game(world, seed, 0, ()))


def press(game: Game, key: str) -> Game:
    """The game after one key."""
    game = replace(game, note="")
    keys = assign_keys(game.world.action_names)
    if key == QUIT:
        return replace(game, quit=True)
    if key == NEW:
        return _episode(game)
    if key == GRAPH:
        return replace(game, show_graph=not game.show_graph)
    if key == UNDO:
        return _undo(game)
    if key not in keys:
        return replace(game, note=f"key {key!r} does nothing here")
    if game.now.over:
        return replace(game, note="no step can be taken any more")
    return _act(game, keys[key])


def _episode(game: Game) -> Game:
    """The next episode; its initial state depends on the seed and on its number only."""
    number = game.episode + 1
    state = steps.reset(game.world, jax.random.fold_in(jax.random.key(game.seed), 2 * number))
    return replace(game, episode=number, history=(Moment(state, None, 0.0),))


def _act(game: Game, action: int) -> Game:
    """One step. Its randomness depends on when it is taken, so that a step undone and taken again is the same."""
    luck = jax.random.fold_in(jax.random.key(game.seed), 2 * game.episode + 1)
    key = jax.random.fold_in(luck, len(game.history))
    state, transition = steps.step(game.world, key, game.now.state, action)
    step = steps.record(game.world, state, transition)
    return replace(game, history=(*game.history, Moment(state, step, game.now.collected + step.reward)))


def _undo(game: Game) -> Game:
    if len(game.history) == 1:
        return replace(game, note="nothing to undo: this is the start of the episode")
    undone = game.now.step
    note = "" if undone is None else f"took back {undone.action}"
    return replace(game, history=game.history[:-1], note=note)
