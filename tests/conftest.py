"""The harness: shape and type checks on every call, strict promotion, two CPU devices.

`filterwarnings = error` is set in pyproject.toml. All of this must happen before `elden` is imported.
"""

import gc
import os
import platform
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import pytest
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_num_cpu_devices", 2)  # type: ignore[no-untyped-call]
jax.config.update("jax_numpy_dtype_promotion", "strict")  # type: ignore[no-untyped-call]
# The suite compiles much and runs little.
jax.config.update("jax_disable_most_optimizations", True)  # type: ignore[no-untyped-call]
# XLA's older emitters compile in half the time. They fuse sums and products where two programs differ in other places,
# so without the instructions that round such a pair once: the same iterations have the same bits in either program.
# An unknown flag would end the process; hence only where these are known. Processes that tests start inherit them.
if jax.__version_info__ < (0, 11) and platform.machine() in ("x86_64", "AMD64"):
    flags = ("--xla_cpu_use_fusion_emitters=false", "--xla_cpu_max_isa=AVX", os.environ.get("XLA_FLAGS", ""))
    os.environ["XLA_FLAGS"] = " ".join(filter(None, flags))

install_import_hook("elden", "beartype.beartype")

# jit compiles on the first example of a property, so a per-example deadline would only measure the compiler.
settings.register_profile("elden", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("elden")


@pytest.fixture
def key() -> jax.Array:
    """A fixed random key."""
    return jax.random.key(0)


# Files whose tests are few and long. They come first, so that no worker is left alone with one of them at the end.
_LONG = (
    *("bonuses", "api", "detection", "solvable", "worlds", "exploring", "detectors", "gym", "network"),
    *("spec_vectors", "cli", "evaluating"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; their tests keep their order."""
    first = {f"test_{name}": place for place, name in enumerate(_LONG)}
    items.sort(key=lambda item: first.get(item.path.stem, len(first)))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what was imported: it would go through all of it again and again while tracing."""
    gc.collect()
    gc.freeze()


_MOST_MAPPINGS = 25_000


@pytest.fixture(autouse=True, scope="module")
def few_mappings() -> Iterator[None]:
    """Let go of compiled programs before the process has as many memory mappings as Linux allows (65,530)."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > _MOST_MAPPINGS:
        jax.clear_caches()  # type: ignore[no-untyped-call]
        gc.collect()
