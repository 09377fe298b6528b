"""Parameters as one array: nothing about them changes."""

from functools import partial
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dynamics_cases import random_transitions, small_layout
from jaxtyping import Array, Float

from elden.dynamics.config import TrainConfig
from elden.dynamics.joint import Joined, Joint
from elden.dynamics.training import Metrics, Model, Trainer, TrainState

Tree: TypeAlias = dict[str, Float[Array, "..."]]
SHAPES = {"matrix": (3, 5), "aligned": (2, 64), "scalar": (), "vector": (130,)}


def random_tree(seed: int = 0) -> Tree:
    keys = jax.random.split(jax.random.key(seed), len(SHAPES))
    return {name: jax.random.normal(key, shape) for key, (name, shape) in zip(keys, SHAPES.items(), strict=True)}


@pytest.mark.parametrize("whole", [False, True])
def test_what_is_joined_can_be_parted(whole: bool) -> None:
    tree = random_tree()
    joint = Joint(tree, whole)
    joined = joint.join(tree)
    assert len(joined) == (1 if whole else len(SHAPES))
    parted = joint.part(joined)
    assert parted.keys() == tree.keys()
    for name, leaf in tree.items():
        np.testing.assert_array_equal(parted[name], leaf)


def test_leaves_begin_where_gpus_read_fast() -> None:
    tree = random_tree()
    (joined,) = Joint(tree, True).join(tree)
    assert joined.size == sum(128 * -(-leaf.size // 128) for leaf in tree.values())
    starts = [int(np.flatnonzero(joined == leaf.ravel()[0])[0]) for leaf in tree.values()]
    assert all(start % 128 == 0 for start in starts)


def test_the_derivative_of_parting_is_joining() -> None:
    tree, other = random_tree(), random_tree(1)
    joint = Joint(tree, True)

    def loss(joined: Joined) -> Float[Array, ""]:
        return sum((jnp.sum(jnp.sin(a) * b) for a, b in _pairs(joint.part(joined), other)), start=jnp.zeros(()))

    (found,) = jax.jit(jax.grad(loss))(joint.join(tree))
    (expected,) = joint.join(jax.tree.map(lambda a, b: jnp.cos(a) * b, tree, other))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("priority", [0.0, 0.5])
def test_joined_parameters_learn_the_same(monkeypatch: pytest.MonkeyPatch, priority: float) -> None:
    """To the rounding of the gradient's norm, with runs side by side."""
    config = TrainConfig(batch_size=8, penalty=0.5, penalty_start=0, penalty_stop=0, clip=0.1, priority=priority)
    trainer = Trainer(small_layout(), config, members=2)
    keys = jax.random.split(jax.random.key(0), 2)
    states = jax.vmap(partial(trainer.init, data_size=32))(keys)
    data = random_transitions(small_layout(), 32)

    def learn(whole: bool) -> tuple[TrainState, Metrics]:
        made = []

        def here(like: Model) -> Joint[Model]:
            made.append(like)
            return Joint(like, whole)

        monkeypatch.setattr(Joint, "here", here)
        program = jax.vmap(partial(trainer.train, num_updates=4), in_axes=(0, None, None, 0))
        result: tuple[TrainState, Metrics] = jax.jit(program)(states, trainer.settings(), data, keys)
        assert made
        return result

    for joined, listed in _pairs(learn(True), learn(False)):
        np.testing.assert_allclose(joined, listed, rtol=1e-4, atol=1e-5)


def test_a_cpu_only_lists_them() -> None:
    assert not Joint.here(random_tree()).whole


def _pairs(first: object, second: object) -> list[tuple[Float[Array, "..."], Float[Array, "..."]]]:
    return list(zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True))
