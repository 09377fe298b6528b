"""Factors as cards hold them."""

import math
import operator
from collections.abc import Mapping
from typing import Any

from elden.factors import Continuous, Discrete, Entity, Factors, Kind, Variable
from elden.storage.arrays import DamagedDataError


def factors_to_json(factors: Factors) -> list[object]:
    """Factors as JSON can hold them; a bound that is not there is null."""
    return [
        {"name": entity.name, "variables": [{"name": v.name, **kind_to_json(v.kind)} for v in entity.variables]}
        for entity in factors.entities
    ]


def factors_from_json(data: object) -> Factors:
    """Inverse of `factors_to_json`.

    Raises:
        DamagedDataError: These are no factors.
    """
    entities: Any = data
    try:
        return Factors(
            tuple(
                Entity(entity["name"], tuple(Variable(v["name"], kind_from_json(v)) for v in entity["variables"]))
                for entity in entities
            )
        )
    except KeyError as error:
        raise DamagedDataError(f"the factors cannot be rebuilt: {error} is not given") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise DamagedDataError(f"the factors cannot be rebuilt: {error}") from None


def kind_to_json(kind: Kind) -> dict[str, object]:
    """A kind as JSON can hold it; a bound that is not there is null."""
    if isinstance(kind, Discrete):
        return {"kind": "discrete", "n": kind.n}
    low, high = (float(bound) if math.isfinite(bound) else None for bound in (kind.low, kind.high))
    return {"kind": "continuous", "size": kind.size, "low": low, "high": high}


def kind_from_json(data: Mapping[str, Any]) -> Kind:
    """Inverse of `kind_to_json`.

    Raises:
        KeyError, TypeError, ValueError: This is no kind.
    """
    if data["kind"] == "discrete":
        return Discrete(operator.index(data["n"]))
    if data["kind"] == "continuous":
        low = -math.inf if data["low"] is None else float(data["low"])
        high = math.inf if data["high"] is None else float(data["high"])
        return Continuous(operator.index(data["size"]), low, high)
    raise ValueError(f"kind {data['kind']!r} is neither 'discrete' nor 'continuous'")
