"""Updates and graphs per second of the dynamics models, beside the matmul peak of the same machine in the same run.

An update is one of Adam with the derivative penalty in the loss, for a batch of 32 from real CarWash transitions; many
of them are one jitted scan. A graph is the `gradient` detector's, for all members. Compile time is measured apart.

The share of the peak counts the floating-point operations of the matrix products alone. With F those of one forward
pass: a graph takes 2 F (forward, and back to the inputs), an update 6 F (the same, and both again twice for the
gradient with respect to parameters and what passes through).
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Bool
from rich.console import Console
from rich.table import Table

import elden
from elden.data import CollectConfig, collect
from elden.dynamics.config import NetworkConfig, Precision, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.dynamics.training import Model, Trainer, Transitions
from elden.factors import Discrete, Granularity
from elden.graphs.base import Reference
from elden.graphs.gradient import Gradient
from elden.provenance import provenance


@dataclass(frozen=True)
class Case:
    """One figure to take."""

    what: Literal["updates", "graphs"]
    children: Granularity
    members: int
    precision: Precision = "float32"


THRESHOLD = 3e-4

CASES = (
    Case("updates", "entity", 1),
    Case("updates", "variable", 1),
    Case("updates", "variable", 5),
    Case("updates", "entity", 1, "bfloat16"),
    Case("updates", "variable", 1, "bfloat16"),
    Case("updates", "variable", 5, "bfloat16"),
    Case("graphs", "variable", 5),
)


@dataclass(frozen=True)
class Args:
    """What to measure."""

    world: str = "carwash"
    """World whose transitions are learnt."""
    updates: int = 20
    """Updates in one timed run (GPU: take 1000)."""
    graphs: int = 2048
    """Transitions in one timed reading of graphs (GPU: take 131072)."""
    chunk: int = 256
    """Transitions that are read at a time (GPU: take 4096)."""
    repeats: int = 5
    """Timed runs; the figure is their median."""
    skip_bfloat16: bool = False
    """Leave out half precision, which CPUs only emulate."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass(frozen=True)
class Row:
    """One figure: updates of one ensemble, or transitions, by the second."""

    what: str
    children: str
    members: int
    precision: str
    per_s: float
    fastest_per_s: float
    compile_s: float
    gflop_per_s: float
    share_of_peak: float


def timed(repeats: int, run: Callable[[], object]) -> tuple[float, float, float]:
    """Median and shortest time of a call, and the time of the first one, which compiles."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        for leaf in jax.tree.leaves(run()):
            leaf.block_until_ready()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:]), min(times[1:]), times[0]


def peak_gflop_per_s() -> float:
    """What a large float32 matrix product reaches here."""
    size = 8192 if jax.default_backend() == "gpu" else 2048
    matrix = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    _, shortest, _ = timed(10, lambda: product(matrix))
    return 2 * size**3 / shortest / 1e9


def forward_flops(layout: Layout) -> int:
    """Operations of the matrix products of one forward pass of all children, for one example."""
    config, inputs = layout.network, layout.num_inputs
    width, projected = config.width, config.heads * config.head_size
    sizes = (layout.input_entries, *config.features)
    mlp = sum(a * b for a, b in zip((width, *config.mlp), config.mlp, strict=False))
    per_input = sum(a * b for a, b in itertools.pairwise(sizes)) + width * projected * 4 + mlp
    per_input += width * projected * 2  # keys and values of the second layer
    once = width * projected * 2 + mlp + width * layout.num_slots * layout.num_entries
    return 2 * layout.num_children * (inputs * per_input + once)


def graphs(
    layout: Layout, chunk: int, models: Model, transitions: Transitions, reference: Reference
) -> Bool[Array, "chunk member transition dst src"]:
    """Every member's local graph of every transition."""

    def some(part: Transitions) -> Bool[Array, "member transition dst src"]:
        batch = encode(layout, part.obs, part.action, part.next_obs)
        scores = jax.vmap(lambda model: Gradient().scores(layout, model, batch, reference))(models)
        return scores >= THRESHOLD

    chunks: Transitions = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk, *leaf.shape[1:]), transitions)
    read: Bool[Array, "chunk member transition dst src"] = jax.lax.map(some, chunks)
    return read


def measure(args: Args, case: Case, data: Transitions, peak: float) -> Row:
    """Take one figure."""
    world = elden.make(args.world)
    layout = Layout(world.factors, Discrete(world.num_actions), NetworkConfig(children=case.children))
    trainer = Trainer(layout, TrainConfig(precision=case.precision), members=case.members)
    state = trainer.init(jax.random.key(0))
    forward = forward_flops(layout) * case.members
    if case.what == "updates":
        train = jax.jit(trainer.train, static_argnums=4)
        settings, key = trainer.settings(), jax.random.key(1)
        median, shortest, first = timed(args.repeats, lambda: train(state, settings, data, key, args.updates))
        amount, flops = args.updates, 6 * forward * args.updates * trainer.config.batch_size
    else:
        reference = Reference.of(layout, data.obs[:64], data.action[:64], data.next_obs[:64])
        some: Transitions = jax.tree.map(lambda leaf: leaf[: args.graphs], data)

        read = jax.jit(partial(graphs, layout, args.chunk))
        median, shortest, first = timed(args.repeats, lambda: read(state.model, some, reference))
        amount, flops = args.graphs, 2 * forward * args.graphs
    rate = flops / median / 1e9
    return Row(
        **asdict(case),
        per_s=round(amount / median, 1),
        fastest_per_s=round(amount / shortest, 1),
        compile_s=round(first - median, 1),
        gflop_per_s=round(rate, 1),
        share_of_peak=round(rate / peak, 3),
    )


def show(rows: list[Row], peak: float) -> None:
    """Print the table."""
    table = Table(title=f"peak matmul {peak:,.0f} GFLOP/s")
    names = ("what", "children", "members", "precision", "per_s", "compile_s", "share_of_peak")
    for name in names:
        table.add_column(name)
    for row in rows:
        table.add_row(*(str(getattr(row, name)) for name in names))
    Console().print(table)


def main(args: Args) -> None:
    """Take all figures."""
    split = collect(elden.make(args.world), CollectConfig(transitions=max(20_000, 2 * args.graphs))).train
    data = Transitions(*(jnp.asarray(part) for part in (split.obs, split.action, split.next_obs)))
    rows, peaks = [], [peak_gflop_per_s()]
    for case in CASES:
        if args.skip_bfloat16 and case.precision == "bfloat16":
            continue
        peaks.append(peak_gflop_per_s())  # other work on the machine slows both down alike
        rows.append(measure(args, case, data, max(peaks)))
    show(rows, max(peaks))
    if args.out is not None:
        said = {"peak_gflop_per_s": [round(peak, 1) for peak in peaks], "rows": [asdict(row) for row in rows]}
        args.out.write_text(json.dumps({**provenance(), **said}, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
