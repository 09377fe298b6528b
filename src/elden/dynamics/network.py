"""The networks of one model: one for each child, stacked.

For a child j (paper, Appendix "Network Architecture"; all vectors are columns, no attention has a bias):

    g^i   = MLP_i(s^i)                                   features of every input i, the action being the last
    u     = g + W_o · attention(W_q g, W_k g, W_v g)     every input attends to every input
    h     = u + MLP(u)
    v     = h^j + W_o' · attention(W_q' h^j, W_k' h, W_v' h)   the child's own entity attends to every input
    out_j = W (v + MLP'(v)) + b

`out_j` holds the logits of a discrete variable, or the expected change of a continuous one. Every array has the axes of
`elden.dynamics.layout`: child first, batch last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from elden.dynamics.config import NetworkConfig
from elden.dynamics.layout import Layout
from elden.dynamics.products import PerDst, PerPair, PerSrc, attended, pair_products, pick, softmax, times
from elden.nn import Activation, activate
from elden.pytree import pytree


@pytree()
@dataclass(frozen=True)
class Linear:
    """`weight · x + bias`, once for each leading index."""

    weight: Float[Array, "*stack out in"]
    bias: Float[Array, "*stack out"]

    def __call__(self, x: Float[Array, "*stack in batch"]) -> Float[Array, "*stack out batch"]:
        """The batch is the last axis."""
        return times(self.weight, x) + self.bias[..., None]


@pytree()
@dataclass(frozen=True)
class Attention:
    """Projections of one attention layer and the MLP behind it.

    Attributes:
        project: Queries, keys and values on top of each other.
        out: From all heads' values back to features.
        mlp: Layers of the MLP.
    """

    project: Float[Array, "*stack child projected feature"]
    out: Float[Array, "*stack child feature value"]
    mlp: tuple[Linear, ...]


@pytree()
@dataclass(frozen=True)
class Network:
    """Parameters of the networks of all children.

    Attributes:
        first: First layer of every input's MLP, for each child: weights `[input, child · feature, entry]`.
        features: Its further layers, stacked over input and child.
        mix: Self-attention over the inputs.
        read: Attention with the child's own input as query.
        head: Last layer, to `slot · entry` outputs.
    """

    first: Linear
    features: tuple[Linear, ...]
    mix: Attention
    read: Attention
    head: Linear


@pytree()
@dataclass(frozen=True)
class Modulation:
    """What a variant of the network does to it; None leaves that part alone.

    Attributes:
        features: Factor of each child's features of each input.
        mix: Added to the logits with which input `dst` attends to input `src`.
        read: Added to the logits with which the child attends to each input.
    """

    features: Float[Array, "*stack child input batch"] | None = None
    mix: Float[Array, "*stack child dst src batch"] | None = None
    read: Float[Array, "*stack child src batch"] | None = None


@pytree()
@dataclass(frozen=True)
class Output:
    """What the networks say.

    Attributes:
        out: Logits or expected changes.
        mix: Attention of every input to every input.
        read: Attention of the child to every input.
    """

    out: Float[Array, "*stack child slot value batch"]
    mix: Float[Array, "*stack child head dst src batch"]
    read: Float[Array, "*stack child head src batch"]


UNCHANGED = Modulation()


def init_network(key: Key[Array, ""], layout: Layout) -> Network:
    """Draw the parameters of one model."""
    config, inputs, children = layout.network, layout.num_inputs, layout.num_children
    first_key, feature_key, mix_key, read_key, head_key = jax.random.split(key, 5)
    # Each input has its own number of entries. Weights of padding are 0 and, the padding being 0 too, stay so.
    real = layout.input_source >= 0
    bound = jnp.sqrt(1.0 / jnp.asarray(real.sum(-1), jnp.float32))[:, None, None]
    rows = children * config.features[0]
    weight = jax.random.uniform(first_key, (inputs, rows, layout.input_entries), minval=-1.0, maxval=1.0) * bound
    first = Linear(weight * real[:, None].astype(jnp.float32), jnp.zeros((inputs, rows)))
    return Network(
        first=first,
        features=_init_mlp(feature_key, (inputs, children), config.features),
        mix=_init_attention(mix_key, children, config),
        read=_init_attention(read_key, children, config),
        head=_init_linear(head_key, (children,), config.width, layout.num_slots * layout.num_entries),
    )


def _init_linear(key: Key[Array, ""], stack: tuple[int, ...], size: int, out: int) -> Linear:
    """Weights uniform within `1/sqrt(size)`, which keeps the scale of what passes; biases 0."""
    bound = size**-0.5
    weight = jax.random.uniform(key, (*stack, out, size), minval=-bound, maxval=bound)
    return Linear(weight, jnp.zeros((*stack, out)))


def _init_mlp(key: Key[Array, ""], stack: tuple[int, ...], sizes: Sequence[int]) -> tuple[Linear, ...]:
    keys = jax.random.split(key, len(sizes))
    pairs = zip(keys, sizes[:-1], sizes[1:], strict=False)
    return tuple(_init_linear(each, stack, size, out) for each, size, out in pairs)


def _init_attention(key: Key[Array, ""], children: int, config: NetworkConfig) -> Attention:
    project_key, out_key, mlp_key = jax.random.split(key, 3)
    projected = config.heads * config.head_size
    project = _init_linear(project_key, (children,), config.width, 3 * projected).weight
    out = _init_linear(out_key, (children,), projected, config.width).weight
    return Attention(project, out, _init_mlp(mlp_key, (children,), (config.width, *config.mlp)))


def first_layer(net: Network, x: Float[Array, "input entry batch"]) -> Float[Array, "input hidden batch"]:
    """What the first layer of all input MLPs gives, before its activation.

    Everything a prediction depends on passes here, each child's part on its own: a child's derivative with respect to
    an input entry is this entry's weights times the child's derivative with respect to this array.
    """
    return net.first(x)


def input_features(
    layout: Layout, net: Network, hidden: Float[Array, "input hidden batch"]
) -> Float[Array, "child feature input batch"]:
    """Features of every input for every child, from `first_layer`."""
    config = layout.network
    size = hidden.shape[-1]
    x = activate(config.activation, hidden)
    x = x.reshape(layout.num_inputs, layout.num_children, config.features[0], size)
    for layer in net.features:
        x = activate(config.activation, layer(x))
    return jnp.transpose(x, (1, 2, 0, 3))


def predict(
    layout: Layout,
    net: Network,
    features: Float[Array, "child feature input batch"],
    modulation: Modulation = UNCHANGED,
) -> Output:
    """The predictions of all children from the features of their inputs.

    Args:
        layout: What the arrays mean.
        net: The networks.
        features: From `input_features`.
        modulation: What is done to the networks.
    """
    config = layout.network
    if modulation.features is not None:
        features = features * modulation.features[:, None]
    mixed, mix = _mix(config, net.mix, features, modulation.mix)
    own = pick(mixed, tuple(layout.query.argmax(axis=1).tolist()))
    read_out, read = _read(config, net.read, own, mixed, modulation.read)
    out = net.head(read_out).astype(jnp.float32)
    shape = (layout.num_children, layout.num_slots, layout.num_entries, out.shape[-1])
    return Output(out.reshape(shape), mix, read)


def _mix(
    config: NetworkConfig,
    layer: Attention,
    x: Float[Array, "child feature input batch"],
    bias: Float[Array, "child input input batch"] | None,
) -> tuple[Float[Array, "child feature input batch"], Float[Array, "child head input input batch"]]:
    """Self-attention over the inputs and the MLP behind it."""
    children, _, inputs, size = x.shape
    flat = x.reshape(children, config.width, inputs * size)
    heads = (children, config.heads, config.head_size, inputs, size)
    query, key, value = (part.reshape(heads) for part in jnp.split(times(layer.project, flat), 3, axis=1))
    values, weights = _attend(query, key, value, bias)
    flat = flat + times(layer.out, values.reshape(children, -1, inputs * size))
    flat = flat + _mlp(config.activation, layer.mlp, flat)
    return flat.reshape(x.shape), weights


def _read(
    config: NetworkConfig,
    layer: Attention,
    own: Float[Array, "child feature batch"],
    x: Float[Array, "child feature input batch"],
    bias: Float[Array, "child input batch"] | None,
) -> tuple[Float[Array, "child feature batch"], Float[Array, "child head input batch"]]:
    """Attention of the child's own input to all inputs and the MLP behind it."""
    children, _, inputs, size = x.shape
    width = config.heads * config.head_size
    flat = x.reshape(children, config.width, inputs * size)
    project_query, project_pair = jnp.split(layer.project, [width], axis=1)
    query = times(project_query, own).reshape(children, config.heads, config.head_size, 1, size)
    heads = (children, config.heads, config.head_size, inputs, size)
    key, value = (part.reshape(heads) for part in jnp.split(times(project_pair, flat), 2, axis=1))
    values, weights = _attend(query, key, value, None if bias is None else bias[:, None])
    out = own + times(layer.out, values.reshape(children, width, size))
    return out + _mlp(config.activation, layer.mlp, out), weights[:, :, 0]


def _attend(
    query: PerDst, key: PerSrc, value: PerSrc, bias: Float[Array, "child dst src batch"] | None
) -> tuple[PerDst, PerPair]:
    """What every destination gets from the sources, and how much of each; the bias is added to the logits."""
    logits = pair_products(query, key) * query.shape[2] ** -0.5
    weights = softmax(logits if bias is None else logits + bias[:, None], axis=3)
    return attended(weights, value), weights


def _mlp(
    activation: Activation, layers: Sequence[Linear], x: Float[Array, "child in batch"]
) -> Float[Array, "child out batch"]:
    """Layers with activations between them."""
    for layer in layers[:-1]:
        x = activate(activation, layer(x))
    return layers[-1](x)
