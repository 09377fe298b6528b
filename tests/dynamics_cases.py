"""Small layouts and networks for the tests of models, and the network once more in plain loops."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num

from elden.dynamics.config import NetworkConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import Batch, encode
from elden.dynamics.network import Network, init_network
from elden.factors import Continuous, Discrete, Entity, Factors, Granularity, Kind, Variable
from elden.nn import Activation
from elden.transitions import Transitions

MIXED = Factors(
    (
        Entity("ball", (Variable("place", Continuous(2, -3, 3)), Variable("held", Discrete(3)))),
        Entity("lamp", (Variable("on", Discrete(2)),)),
        Entity("wind", (Variable("force", Continuous(1, -1, 1)), Variable("from", Discrete(4)))),
    )
)
DISCRETE = Factors(
    (
        Entity("key", (Variable("place", Discrete(4)), Variable("held", Discrete(2)))),
        Entity("door", (Variable("open", Discrete(2)),)),
    )
)
GRANULARITIES: tuple[Granularity, ...] = ("variable", "entity")
ACTION = Discrete(3)


def tiny(
    children: Granularity = "variable", inputs: Granularity = "entity", activation: Activation = "relu"
) -> NetworkConfig:
    return NetworkConfig(children, inputs, (8, 8), heads=2, head_size=4, mlp=(8, 8), activation=activation)


def layout_of(
    factors: Factors = MIXED,
    children: Granularity = "variable",
    inputs: Granularity = "entity",
    activation: Activation = "relu",
    action: Kind = ACTION,
) -> Layout:
    return Layout(factors, action, tiny(children, inputs, activation))


def small_layout(factors: Factors = DISCRETE, children: Granularity = "variable") -> Layout:
    """For training: what compiles in little time."""
    return Layout(factors, ACTION, NetworkConfig(children, features=(8, 8), heads=2, head_size=2, mlp=(8,)))


def random_obs(factors: Factors, rng: np.random.Generator, size: int) -> Num[Array, "batch width"]:
    columns = [
        rng.integers(0, variable.kind.n, (size, 1)).astype(factors.dtype)
        if isinstance(variable.kind, Discrete)
        else rng.uniform(-1, 1, (size, variable.kind.size)).astype(factors.dtype)
        for variable in factors.variables
    ]
    return jnp.asarray(np.concatenate(columns, axis=1))


def random_action(kind: Kind, rng: np.random.Generator, size: int) -> Num[Array, "batch *components"]:
    if isinstance(kind, Discrete):
        return jnp.asarray(rng.integers(0, kind.n, size), jnp.int32)
    return jnp.asarray(rng.uniform(-1, 1, (size, kind.size)), jnp.float32)


def random_transitions(layout: Layout, size: int, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    obs, next_obs = (random_obs(layout.factors, rng, size) for _ in range(2))
    return Transitions(obs, random_action(layout.action, rng, size), next_obs)


def random_batch(layout: Layout, size: int, seed: int = 0) -> Batch:
    transitions = random_transitions(layout, size, seed)
    encoded = jax.jit(encode, static_argnums=0)
    batch: Batch = encoded(layout, transitions.obs, transitions.action, transitions.next_obs)
    return batch


def random_network(layout: Layout, seed: int = 0) -> Network:
    """A network whose biases are not 0 either."""
    net = jax.jit(init_network, static_argnums=1)(jax.random.key(seed), layout)
    rng = np.random.default_rng(seed)

    def shaken(leaf: Float[Array, "..."]) -> Float[Array, "..."]:
        noise = jnp.asarray(rng.normal(size=leaf.shape), jnp.float32)
        return leaf if np.any(leaf) else 0.3 * noise

    shaken_net: Network = jax.tree.map(shaken, net)
    return shaken_net


ACTIVATIONS: dict[Activation, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


Numbers: TypeAlias = dict[str, np.ndarray]
"""Parameters of a network by their place in it, in float64."""


def numbers_of(tree: Network) -> Numbers:
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): np.array(leaf, np.float64) for path, leaf in leaves}


def plain_output(layout: Layout, net: Numbers, child: int, inputs: np.ndarray, lost: int | None = None) -> np.ndarray:
    """One child's outputs `[slot, value]` for one example `[input, entry]`: the network's docstring, word by word.

    The features of the input `lost` are 0.

    What the docstring leaves open: every layer of `MLP_i` is followed by the activation; in the two MLPs behind the
    attention layers the activation stands between layers only; logits are divided by the root of the head size.
    """
    config = layout.network
    act = ACTIVATIONS[config.activation]
    rows = slice(child * config.features[0], (child + 1) * config.features[0])
    g = []
    for i, s in enumerate(inputs):
        x = act(net["first.weight"][i, rows] @ s + net["first.bias"][i, rows])
        for layer in range(len(config.features) - 1):
            x = act(net[f"features.{layer}.weight"][i, child] @ x + net[f"features.{layer}.bias"][i, child])
        g.append(x * 0 if i == lost else x)
    h = [x + _attention(config, net, "mix", child, x, g) for x in g]
    h = [x + _mlp(config, net, "mix", child, x) for x in h]
    own = h[int(np.flatnonzero(layout.query[child])[0])]
    v = own + _attention(config, net, "read", child, own, h)
    out = net["head.weight"][child] @ (v + _mlp(config, net, "read", child, v)) + net["head.bias"][child]
    return np.asarray(out.reshape(layout.num_slots, layout.num_entries))


def _attention(
    config: NetworkConfig, net: Numbers, layer: str, child: int, asking: np.ndarray, asked: list[np.ndarray]
) -> np.ndarray:
    width = config.heads * config.head_size
    project = net[f"{layer}.project"][child]
    query = project[:width] @ asking
    found = []
    for head in range(config.heads):
        part = slice(head * config.head_size, (head + 1) * config.head_size)
        powers, values = [], []
        for x in asked:
            key, value = project[width : 2 * width] @ x, project[2 * width :] @ x
            powers.append(np.exp(query[part] @ key[part] / np.sqrt(config.head_size)))
            values.append(value[part])
        found.append(sum(p * value for p, value in zip(powers, values, strict=True)) / sum(powers))
    return np.asarray(net[f"{layer}.out"][child] @ np.concatenate(found))


def _mlp(config: NetworkConfig, net: Numbers, layer: str, child: int, x: np.ndarray) -> np.ndarray:
    for i in range(len(config.mlp)):
        x = net[f"{layer}.mlp.{i}.weight"][child] @ x + net[f"{layer}.mlp.{i}.bias"][child]
        x = ACTIVATIONS[config.activation](x) if i < len(config.mlp) - 1 else x
    return x


def plain_log_p(layout: Layout, out: np.ndarray, child: int, obs: np.ndarray, next_obs: np.ndarray) -> float:
    """`log p̂` of one child's next value, from the flat states."""
    total = 0.0
    for index, (variable, (owner, slot)) in enumerate(zip(layout.factors.variables, layout.child_of, strict=True)):
        columns = layout.factors.flat_slice(index)
        if owner != child:
            continue
        if isinstance(variable.kind, Discrete):
            logits = out[slot, : variable.kind.n]
            total += logits[int(next_obs[columns.start])] - np.log(np.exp(logits).sum())
        else:
            error = next_obs[columns] - obs[columns] - out[slot, : variable.kind.size]
            total += float((-0.5 * error**2 - 0.5 * np.log(2 * np.pi)).sum())
    return total
