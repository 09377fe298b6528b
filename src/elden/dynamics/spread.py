"""Independent runs over all devices there are: one program, each device with its share of the runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

_Tree = TypeVar("_Tree")
_Result = TypeVar("_Result")

_AXIS = "run"


@dataclass(frozen=True)
class Spread:
    """Runs dealt out to devices in equal parts; where they do not go even, the last run is repeated.

    Runs do not talk to each other, so nothing about a run depends on where it is.

    Attributes:
        runs: Number of runs.
        devices: Number of devices to use.
    """

    runs: int
    devices: int

    @classmethod
    def here(cls, runs: int) -> "Spread":
        """Over all devices of this process, of which no more are used than there are runs."""
        return cls(runs, min(runs, jax.local_device_count()))

    def deal(self, tree: _Tree) -> _Tree:
        """Put the runs, which are the first axis of every leaf, on their devices."""
        if self.devices == 1:
            return tree
        place = np.minimum(np.arange(-(-self.runs // self.devices) * self.devices), self.runs - 1)
        dealt: _Tree = jax.device_put(jax.tree.map(lambda leaf: leaf[place], tree), self._sharding(_AXIS))
        return dealt

    def copy(self, tree: _Tree) -> _Tree:
        """Put what all runs read on every device."""
        if self.devices == 1:
            return tree
        copied: _Tree = jax.device_put(tree, self._sharding())
        return copied

    def collect(self, tree: _Tree) -> _Tree:
        """What `deal` has dealt out, or a result in its form, on one device again and without repetitions."""
        if self.devices == 1:
            return tree
        together = jax.device_put(tree, jax.local_devices()[0])
        collected: _Tree = jax.tree.map(lambda leaf: leaf[: self.runs], together)
        return collected

    def over(self, function: Callable[..., _Result], dealt: tuple[bool, ...]) -> Callable[..., _Result]:
        """A function that maps over runs as one that does so on every device.

        Args:
            function: Maps over the first axis of its result and of some of its arguments.
            dealt: For each argument whether it is one of these, from `deal`; the others are from `copy`.
        """
        if self.devices == 1:
            return function
        inside = tuple(_spec(_AXIS) if each else _spec() for each in dealt)
        return jax.shard_map(function, mesh=self._mesh, in_specs=inside, out_specs=_spec(_AXIS), check_vma=False)

    @property
    def _mesh(self) -> jax.sharding.Mesh:
        return jax.sharding.Mesh(np.array(jax.local_devices()[: self.devices]), (_AXIS,))

    def _sharding(self, *axes: str) -> NamedSharding:
        return NamedSharding(self._mesh, _spec(*axes))


def _spec(*axes: str) -> PartitionSpec:
    spec: PartitionSpec = PartitionSpec(*axes)  # type: ignore[no-untyped-call]
    return spec
