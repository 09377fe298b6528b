"""Models on disk: one array for each leaf, and a card that says what they are. No pickle.

The name of an array is its place in the model: `net.mix.project`, `net.features.0.weight`, `extra.bandwidth`. The card
holds the layout (factors, kind of action, network), the training config, the variant by name and options, and whatever
the caller adds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Shaped

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.network import Network, init_network
from elden.dynamics.training import Model, Trainer
from elden.dynamics.variants import Variant
from elden.factors import Entity, Factors, Kind, Variable
from elden.storage.arrays import DamagedDataError, plain_json, read_arrays, write_arrays
from elden.storage.cards import factors_from_json, factors_to_json
from elden.storage.checkpoints import from_arrays, named_leaves, to_arrays
from elden.storage.plain import from_plain

_EXTRA = "extra."


@dataclass(frozen=True)
class VariantCard:
    """A variant as a card names it: its class and the values of its fields."""

    name: str
    options: dict[str, object]

    @classmethod
    def of(cls, variant: Variant) -> "VariantCard":
        """The card of a variant."""
        options: dict[str, object] = asdict(variant) if is_dataclass(variant) else {}
        return cls(type(variant).__name__, plain_json(options))


@dataclass(frozen=True)
class SavedModel:
    """What `load_model` gives back.

    Attributes:
        layout: Meaning of the arrays.
        config: How the model was trained.
        variant: Which variant of the network it is; detectors know the variants by these names.
        members: Members of its ensemble.
        model: The parameters, with the leading axes (member; run and member; or none) that they were saved with.
        card: What the caller had added.
    """

    layout: Layout
    config: TrainConfig
    variant: VariantCard
    members: int
    model: Model
    card: dict[str, object]

    def trainer(self, variant: Variant) -> Trainer:
        """The trainer of this model.

        Args:
            variant: The one that the model was trained with.

        Raises:
            ValueError: The model is of another variant.
        """
        if VariantCard.of(variant) != self.variant:
            raise ValueError(f"{VariantCard.of(variant)} given; the model was saved as {self.variant}")
        return Trainer(self.layout, self.config, variant, self.members)


def save_model(folder: Path, trainer: Trainer, model: Model, card: Mapping[str, object] | None = None) -> None:
    """Write a model.

    Args:
        folder: Made where it does not exist; an earlier model of the same shape in it is replaced.
        trainer: What the model was made by.
        model: Its parameters, with any number of leading axes.
        card: More to be kept with it, of what JSON can hold.

    Raises:
        ValueError: The model is not one of this trainer's, or the folder or the card cannot be used.
    """
    arrays = to_arrays(model)
    try:
        _model(trainer.layout, arrays)
    except DamagedDataError as error:
        raise ValueError(f"a model of another layout given: {error}") from None
    variant = VariantCard.of(trainer.variant)
    about: dict[str, object] = {
        "factors": factors_to_json(trainer.layout.factors),
        "action": factors_to_json(_holder(trainer.layout.action)),
        "network": asdict(trainer.layout.network),
        "train": asdict(trainer.config),
        "variant": {"name": variant.name, "options": variant.options},
        "members": trainer.members,
        "card": dict(card or {}),
    }
    write_arrays(folder, "models", arrays, about)


def load_model(folder: Path) -> SavedModel:
    """Read a model, bit for bit as it was saved.

    Raises:
        DamagedDataError: The folder holds no model, or one that is not as it was written.
    """
    arrays, about = read_arrays(folder, "models")
    try:
        layout = Layout(
            factors_from_json(about["factors"]),
            factors_from_json(about["action"]).variables[0].kind,
            from_plain(NetworkConfig, about["network"]),
        )
        config = from_plain(TrainConfig, about["train"])
        variant, members, card = about["variant"], about["members"], about["card"]
    except KeyError as error:
        raise DamagedDataError(f"{folder} holds no model: its card does not give {error}") from None
    except (TypeError, ValueError) as error:
        raise DamagedDataError(f"{folder} holds a model that cannot be rebuilt: {error}") from None
    if not (isinstance(variant, dict) and isinstance(members, int) and isinstance(card, dict)):
        raise DamagedDataError(f"{folder} holds no model: its card names variant {variant!r}, members {members!r}")
    if variant.keys() != {"name", "options"}:
        raise DamagedDataError(f"{folder} names its variant as {variant!r}; a name and options are needed")
    try:
        model = _model(layout, arrays)
    except DamagedDataError as error:
        raise DamagedDataError(f"{folder} holds no model of its layout: {error}") from None
    return SavedModel(layout, config, VariantCard(**variant), members, model, card)


def _model(layout: Layout, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> Model:
    """The model whose leaves these are, with whatever axes come before those of one network.

    Raises:
        DamagedDataError: They are no parameters of such a model.
    """
    net = jax.eval_shape(partial(init_network, layout=layout), jax.random.key(0))
    extra = {
        name.removeprefix(_EXTRA): jnp.zeros(array.shape, jnp.float32)
        for name, array in arrays.items()
        if name.startswith(_EXTRA)
    }
    name, first = named_leaves(Model(net, {}))[0]
    shape = arrays[name].shape if name in arrays else ()
    lead = shape[: max(0, len(shape) - len(first.shape))]
    like: Network = jax.tree.map(lambda leaf: np.empty((*lead, *leaf.shape), leaf.dtype), net)
    return from_arrays(arrays, Model(like, extra))


def _holder(action: Kind) -> Factors:
    """Factors that hold the kind of action, which is stored as they are."""
    return Factors((Entity("actions", (Variable("kind", action),)),))
