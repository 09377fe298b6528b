"""Data on disk: arrays with a card that vouches for them, and transitions collected from worlds."""

from elden.data.collect import (
    CollectConfig,
    Dataset,
    OtherCollectionError,
    Split,
    collect,
    held_out_episodes,
    load_dataset,
)
from elden.data.store import DamagedDataError, factors_from_json, factors_to_json, read_arrays, read_card, write_arrays

__all__ = [
    "CollectConfig",
    "DamagedDataError",
    "Dataset",
    "OtherCollectionError",
    "Split",
    "collect",
    "factors_from_json",
    "factors_to_json",
    "held_out_episodes",
    "load_dataset",
    "read_arrays",
    "read_card",
    "write_arrays",
]
