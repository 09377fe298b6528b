"""The paper's Tables 1 and 2: mean and standard error over three seeds, of ROC-AUC and of the best F1."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from elden.viewing import Cell, LambdaPoint

PAPER_WORLDS = ("thawing", "carwash", "kitchen")
"""The worlds of both tables, in order."""

METRICS: Mapping[str, str] = MappingProxyType({"roc_auc": "ROC-AUC", "f1": "F1"})
"""The metrics of both tables, in order, and their names."""

_Numbers: TypeAlias = tuple[float, float, float, float]

TABLE_1: Mapping[str, Mapping[str, _Numbers]] = MappingProxyType(
    {
        "gradient": {
            "thawing": (0.71, 0.01, 0.57, 0.00),
            "carwash": (0.78, 0.02, 0.66, 0.02),
            "kitchen": (0.66, 0.01, 0.25, 0.01),
        },
        "pcmi": {
            "thawing": (0.55, 0.01, 0.60, 0.00),
            "carwash": (0.73, 0.02, 0.78, 0.01),
            "kitchen": (0.60, 0.00, 0.28, 0.00),
        },
        "attention": {
            "thawing": (0.65, 0.04, 0.63, 0.01),
            "carwash": (0.66, 0.01, 0.55, 0.03),
            "kitchen": (0.51, 0.01, 0.22, 0.02),
        },
        "input-mask": {
            "thawing": (0.50, 0.00, 0.40, 0.00),
            "carwash": (0.50, 0.00, 0.32, 0.01),
            "kitchen": (0.50, 0.00, 0.08, 0.00),
        },
        "attention-mask": {
            "thawing": (0.45, 0.03, 0.47, 0.02),
            "carwash": (0.47, 0.07, 0.43, 0.03),
            "kitchen": (0.52, 0.01, 0.13, 0.01),
        },
    }
)
"""Method → world → ROC-AUC, its error, F1, its error."""

TABLE_2: Mapping[float | None, Mapping[str, _Numbers]] = MappingProxyType(
    {
        None: {"thawing": (0.48, 0.01, 0.42, 0.01), "carwash": (0.44, 0.00, 0.27, 0.01)},
        0.0: {
            "thawing": (0.57, 0.01, 0.52, 0.01),
            "carwash": (0.54, 0.01, 0.42, 0.01),
            "kitchen": (0.64, 0.01, 0.24, 0.01),
        },
        1e-5: {
            "thawing": (0.63, 0.00, 0.53, 0.01),
            "carwash": (0.72, 0.00, 0.57, 0.00),
            "kitchen": (0.65, 0.01, 0.24, 0.01),
        },
        1e-4: {
            "thawing": (0.65, 0.02, 0.55, 0.01),
            "carwash": (0.75, 0.01, 0.60, 0.01),
            "kitchen": (0.66, 0.00, 0.25, 0.01),
        },
        1e-3: {
            "thawing": (0.64, 0.01, 0.55, 0.01),
            "carwash": (0.78, 0.02, 0.66, 0.02),
            "kitchen": (0.65, 0.00, 0.24, 0.01),
        },
        1e-2: {
            "thawing": (0.71, 0.01, 0.57, 0.00),
            "carwash": (0.76, 0.01, 0.60, 0.00),
            "kitchen": (0.60, 0.01, 0.21, 0.01),
        },
        1e-1: {
            "thawing": (0.68, 0.00, 0.57, 0.00),
            "carwash": (0.73, 0.01, 0.58, 0.02),
            "kitchen": (0.55, 0.00, 0.14, 0.00),
        },
    }
)
"""λ → world → ROC-AUC, its error, F1, its error; None stands for no mixup and no penalty."""


def paper_cells() -> list[Cell]:
    """Table 1 as numbers to draw and to print."""
    return [
        Cell(world, method, metric, numbers[2 * i], numbers[2 * i + 1])
        for method, worlds in TABLE_1.items()
        for world, numbers in worlds.items()
        for i, metric in enumerate(METRICS)
    ]


def paper_points() -> list[LambdaPoint]:
    """Table 2 as numbers to draw and to print."""
    return [
        LambdaPoint(world, coefficient, metric, numbers[2 * i], numbers[2 * i + 1])
        for coefficient, worlds in TABLE_2.items()
        for world, numbers in worlds.items()
        for i, metric in enumerate(METRICS)
    ]


def row_name(coefficient: float | None) -> str:
    """What the rows of Table 2 are called."""
    if coefficient is None:
        return "no mixup, no penalty"
    return "λ = 0" if coefficient == 0 else f"λ = {coefficient:g}"
