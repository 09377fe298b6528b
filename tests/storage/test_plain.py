"""Settings come back from JSON as they were, or not at all."""

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from elden.storage.plain import from_plain, plain


@dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = (3, 4)
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    rate: float = 0.5
    number: int = 2
    limit: int | None = None
    on: bool = True
    name: str = "some"
    inner: Inner = field(default_factory=Inner)


def test_settings_come_back() -> None:
    for made in (Outer(), Outer(rate=1, limit=3, inner=Inner((), "b"))):
        data: Any = plain(made)
        assert from_plain(Outer, data) == made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rate": "fast"}, "rate is 'fast'; expected is float"),
        ({"rate": True}, "rate is True; expected is float"),
        ({"number": 2.5}, "number is 2.5; expected is int"),
        ({"number": True}, "number is True; expected is int"),
        ({"limit": "no"}, r"limit is 'no'; expected is int \| None"),
        ({"on": 1}, "on is 1; expected is bool"),
        ({"name": None}, "name is None; expected is str"),
        ({"inner": 3}, "inner is 3; an object is expected"),
        ({"inner": {"sizes": [3, "x"], "kind": "a"}}, r"inner.sizes is \[3, 'x'\]; expected is tuple"),
        ({"inner": {"sizes": [3], "kind": "c"}}, r"inner.kind is 'c'; expected is Literal\['a', 'b'\]"),
        ({"more": 3}, "expected are"),
    ],
)
def test_settings_that_were_edited_by_hand_are_refused(change: dict[str, object], message: str) -> None:
    data: Any = plain(Outer())
    with pytest.raises(ValueError, match=message):
        from_plain(Outer, {**data, **change})
