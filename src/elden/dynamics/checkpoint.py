"""Models on disk: one array for each leaf, and a card that says what they are. No pickle.

The name of an array is its place in the model: `net.mix.project`, `net.features.0.weight`, `extra.bandwidth`. The card
holds the layout (factors, kind of action, network), the training config, the variant by name and options, and whatever
the caller adds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from elden.dynamics.config import NetworkConfig, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.network import Network, init_network
from elden.dynamics.training import Model, Trainer
from elden.dynamics.variants import Variant
from elden.factors import Entity, Factors, Kind, Variable
from elden.storage.arrays import (
    DamagedDataError,
    factors_from_json,
    factors_to_json,
    plain_json,
    read_arrays,
    write_arrays,
)

_EXTRA = "extra."
_NET = "net."
_Config = TypeVar("_Config", NetworkConfig, TrainConfig)


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
    arrays = _named("", model)
    lead = _leading(trainer.layout, {name: array.shape for name, array in arrays.items()})
    if lead is None:
        raise ValueError(f"a model of another layout given: it has {_shapes(arrays)}")
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
    write_arrays(folder, arrays, about)


def load_model(folder: Path) -> SavedModel:
    """Read a model, bit for bit as it was saved.

    Raises:
        DamagedDataError: The folder holds no model, or one that is not as it was written.
    """
    arrays, about = read_arrays(folder)
    try:
        layout = Layout(
            factors_from_json(about["factors"]),
            factors_from_json(about["action"]).variables[0].kind,
            _config(NetworkConfig, about["network"]),
        )
        config = _config(TrainConfig, about["train"])
        variant, members, card = about["variant"], about["members"], about["card"]
    except KeyError as error:
        raise DamagedDataError(f"{folder} holds no model: its card does not give {error}") from None
    if not (isinstance(variant, dict) and isinstance(members, int) and isinstance(card, dict)):
        raise DamagedDataError(f"{folder} holds no model: its card names variant {variant!r}, members {members!r}")
    if variant.keys() != {"name", "options"}:
        raise DamagedDataError(f"{folder} names its variant as {variant!r}; a name and options are needed")
    return SavedModel(layout, config, VariantCard(**variant), members, _model(folder, layout, arrays), card)


def _model(folder: Path, layout: Layout, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> Model:
    """The model whose leaves these are."""
    if _leading(layout, {name: array.shape for name, array in arrays.items()}) is None:
        raise DamagedDataError(f"{folder} holds arrays that are no model of its layout: {_shapes(arrays)}")
    if strange := [name for name, array in arrays.items() if array.dtype != np.float32]:
        raise DamagedDataError(f"{folder} holds parameters that are not float32: {', '.join(strange)}")
    structure = jax.tree.structure(_blank(layout))
    leaves = [jnp.asarray(arrays[name]) for name in _named(_NET, _blank(layout))]
    net: Network = jax.tree.unflatten(structure, leaves)
    extra = {name.removeprefix(_EXTRA): jnp.asarray(arrays[name]) for name in arrays if name.startswith(_EXTRA)}
    return Model(net, extra)


def _blank(layout: Layout) -> Network:
    """A network of this layout, whose values do not matter."""
    return init_network(jax.random.key(0), layout)


def _named(prefix: str, tree: Model | Network) -> dict[str, Float[np.ndarray, "..."]]:
    """Leaves by their places."""
    leaves = jax.tree.leaves_with_path(tree)
    return {prefix + jax.tree_util.keystr(path, simple=True, separator="."): np.asarray(leaf) for path, leaf in leaves}


def _leading(layout: Layout, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    """The axes before those of one network of this layout; None where these are no parameters of it."""
    own = {name: array.shape for name, array in _named(_NET, _blank(layout)).items()}
    given = {name: shape for name, shape in shapes.items() if not name.startswith(_EXTRA)}
    if given.keys() != own.keys():
        return None
    leads = {given[name][: len(given[name]) - len(own[name])] for name in own}
    lead = leads.pop()
    same = not leads and all(given[name] == (*lead, *own[name]) for name in own)
    return lead if same else None


def _shapes(arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())


def _holder(action: Kind) -> Factors:
    """Factors that hold the kind of action, which is stored as they are."""
    return Factors((Entity("actions", (Variable("kind", action),)),))


def _config(cls: type[_Config], data: object) -> _Config:
    """A config from the values of its fields."""
    names = {field.name for field in fields(cls)}
    if not isinstance(data, dict) or data.keys() != names:
        raise DamagedDataError(f"{cls.__name__} has fields {', '.join(sorted(names))}; the card gives {data!r}")
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise DamagedDataError(f"the {cls.__name__} cannot be rebuilt: {error}") from None
