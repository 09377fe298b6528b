"""Updates and graphs per second of the dynamics models, beside the matmul peak of the same machine in the same run.

An update is one of Adam with the derivative penalty in the loss, for a batch of 32 from real CarWash transitions; many
of them are one jitted scan. A graph is the `gradient` detector's, for all members. Compile time is measured apart.
Where there is more than one device, independent runs are also trained side by side, and transitions are also read side
by side, an equal share on each device. Every core of a CPU is a device, but one device's work may use all of them.

The share of the peak counts the floating-point operations of the matrix products alone, padding left out. With F those
of one forward pass: a graph takes 2 F (forward, and back to the inputs), an update 6 F (the same, and both again twice
for the gradient with respect to parameters and what passes through). The peak is the best that was seen: that of a CPU
with all its cores, or that of one accelerator times their number.
"""

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Bool, Key
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

import elden
from elden.dynamics.config import NetworkConfig, Precision, TrainConfig
from elden.dynamics.layout import Layout
from elden.dynamics.likelihood import encode
from elden.dynamics.spread import Spread
from elden.dynamics.training import Metrics, Model, Settings, Trainer, TrainState
from elden.factors import Discrete, Granularity
from elden.graphs.base import Reference
from elden.graphs.gradient import Gradient
from elden.provenance import provenance
from elden.studies.dataset import CollectConfig, collect
from elden.transitions import Transitions

What: TypeAlias = Literal["updates", "graphs", "graphs over devices"]


@dataclass(frozen=True)
class Case:
    """One figure to take.

    Attributes:
        what: Updates, graphs on one device, or graphs with the transitions spread over all devices.
        children: What one network predicts.
        members: Networks in an ensemble.
        precision: Number format of activations.
        runs: Independent ensembles that are trained side by side, spread over devices.
    """

    what: What
    children: Granularity
    members: int
    precision: Precision = "float32"
    runs: int = 1


THRESHOLD = 3e-4

CASES = (
    Case("updates", "entity", 1),
    Case("updates", "variable", 1),
    Case("updates", "variable", 5),
    Case("updates", "entity", 1, "bfloat16"),
    Case("updates", "variable", 1, "bfloat16"),
    Case("updates", "variable", 5, "bfloat16"),
    Case("graphs", "variable", 5),
    Case("graphs", "variable", 5, "bfloat16"),
)
SPREAD_CASES = (
    Case("updates", "entity", 1, runs=2),
    Case("updates", "variable", 1, runs=2),
    Case("graphs over devices", "variable", 5),
)
"""Cases that need more than one device."""


@dataclass(frozen=True)
class Args:
    """What to measure."""

    world: str = "carwash"
    """World whose transitions are learnt."""
    updates: int = 20
    """Updates in one timed run (GPU: take 1000)."""
    graphs: int = 2048
    """Transitions in one timed reading of graphs (GPU: take 131072)."""
    chunk: int = 64
    """Transitions that are read at a time, on each device (GPU: take 4096)."""
    repeats: int = 5
    """Timed runs; the figure is their median."""
    skip_bfloat16: bool = False
    """Leave out half precision, which CPUs only emulate."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass(frozen=True)
class Row:
    """One figure: updates of one ensemble, those of all runs together, or transitions, by the second."""

    what: str
    children: str
    members: int
    precision: str
    runs: int
    devices: int
    per_s: float
    fastest_per_s: float
    compile_s: float
    gflop_per_s: float
    share_of_peak: float = float("nan")

    def beside(self, peak: float) -> "Row":
        """The same with its share of this peak of one device, on a CPU of the whole machine."""
        whole = peak if jax.default_backend() == "cpu" else peak * self.devices
        return replace(self, share_of_peak=round(self.gflop_per_s / whole, 3))


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
    """Operations of the matrix products of one forward pass of all children, for one example, without padding."""
    config, inputs = layout.network, layout.num_inputs
    width, projected = config.width, config.heads * config.head_size
    first = int((layout.input_source >= 0).sum()) * config.features[0]
    mlp = sum(a * b for a, b in zip((width, *config.mlp), config.mlp, strict=False))
    per_input = sum(a * b for a, b in itertools.pairwise(config.features)) + width * projected * 4 + mlp
    per_input += width * projected * 2  # keys and values of the second layer
    once = width * projected * 2 + mlp
    heads = width * int(layout.target_mask.sum())
    return 2 * (layout.num_children * (first + inputs * per_input + once) + heads)


def graphs(
    layout: Layout, chunk: int, precision: Precision, models: Model, transitions: Transitions, reference: Reference
) -> Bool[Array, "chunk member transition dst src"]:
    """Every member's local graph of every transition."""
    models = jax.tree.map(lambda leaf: leaf.astype(precision), models)

    def some(part: Transitions) -> Bool[Array, "member transition dst src"]:
        batch = encode(layout, part.obs, part.action, part.next_obs)
        batch = replace(batch, inputs=batch.inputs.astype(precision))
        scores = jax.vmap(lambda model: Gradient().scores(layout, model, batch, reference))(models)
        return scores >= THRESHOLD

    chunks: Transitions = jax.tree.map(lambda leaf: leaf.reshape(-1, chunk, *leaf.shape[1:]), transitions)
    read: Bool[Array, "chunk member transition dst src"] = jax.lax.map(some, chunks)
    return read


_Timed: TypeAlias = tuple[float, float, float]


def time_updates(args: Args, trainer: Trainer, spread: Spread, data: Transitions) -> _Timed:
    """Train runs side by side, as `elden.dynamics.runs` does."""

    def train(
        state: TrainState, settings: Settings, data: Transitions, key: Key[Array, ""]
    ) -> tuple[TrainState, Metrics]:
        return trainer.train(state, settings, data, key, args.updates)

    keys = jax.random.split(jax.random.key(0), spread.runs)
    settings: Settings = jax.tree.map(lambda leaf: jnp.stack([leaf] * spread.runs), trainer.settings())
    own = spread.deal((jax.vmap(trainer.init)(keys), settings, keys))
    shared = spread.copy(data)
    program = jax.jit(spread.over(jax.vmap(train, in_axes=(0, 0, None, 0)), (True, True, False, True)))
    return timed(args.repeats, lambda: program(own[0], own[1], shared, own[2]))


def time_graphs(
    args: Args, layout: Layout, precision: Precision, model: Model, spread: Spread, data: Transitions
) -> _Timed:
    """Read the graphs of equal parts of the transitions side by side."""
    some: Transitions = jax.tree.map(lambda leaf: leaf[: args.graphs].reshape(spread.runs, -1, *leaf.shape[1:]), data)
    reference = Reference.of(layout, data.obs[:64], data.action[:64], data.next_obs[:64])
    read = jax.vmap(partial(graphs, layout, args.chunk, precision), in_axes=(None, 0, None))
    program = jax.jit(spread.over(read, (False, True, False)))
    arguments = spread.copy(model), spread.deal(some), spread.copy(reference)
    return timed(args.repeats, lambda: program(*arguments))


def measure(args: Args, case: Case, data: Transitions) -> Row:
    """Take one figure."""
    world = elden.make(args.world)
    layout = Layout(world.factors, Discrete(world.num_actions), NetworkConfig(children=case.children))
    trainer = Trainer(layout, TrainConfig(precision=case.precision), members=case.members)
    forward = forward_flops(layout) * case.members
    if case.what == "updates":
        spread = Spread.here(case.runs)
        median, shortest, first = time_updates(args, trainer, spread, data)
        amount = args.updates * case.runs
        flops = 6 * forward * amount * trainer.config.batch_size
    else:
        spread = Spread.here(1 if case.what == "graphs" else jax.local_device_count())
        model = trainer.init(jax.random.key(0)).model
        median, shortest, first = time_graphs(args, layout, case.precision, model, spread, data)
        amount, flops = args.graphs, 2 * forward * args.graphs
    return Row(
        **asdict(case),
        devices=spread.devices,
        per_s=round(amount / median, 1),
        fastest_per_s=round(amount / shortest, 1),
        compile_s=round(first - median, 1),
        gflop_per_s=round(flops / median / 1e9, 1),
    )


def show(rows: list[Row], peak: float) -> None:
    """Print the table."""
    table = Table(title=f"peak matmul {peak:,.0f} GFLOP/s", box=SIMPLE_HEAD)
    names = ("what", "children", "members", "precision", "runs", "per_s", "compile_s", "share_of_peak")
    for name in names:
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*(str(getattr(row, name)) for name in names))
    Console().print(table)


def cases_of(args: Args) -> list[Case]:
    """The cases that can be taken here."""
    cases = [*CASES, *(SPREAD_CASES if jax.local_device_count() > 1 else ())]
    return [case for case in cases if not (args.skip_bfloat16 and case.precision == "bfloat16")]


def check(args: Args) -> None:
    """End with one line where the transitions cannot be cut into equal pieces."""
    if args.graphs % args.chunk:
        sys.exit(f"--graphs {args.graphs} given; it must be a multiple of --chunk, which is {args.chunk}")
    devices = jax.local_device_count()
    if args.graphs % (args.chunk * devices):
        sys.exit(f"--graphs {args.graphs} given; for {devices} devices it must be a multiple of {args.chunk * devices}")


def main(args: Args) -> None:
    """Take all figures."""
    jax.config.update("jax_num_cpu_devices", os.cpu_count())  # type: ignore[no-untyped-call]
    check(args)
    split = collect(elden.make(args.world), CollectConfig(transitions=max(20_000, 2 * args.graphs))).train
    data = Transitions(*(jnp.asarray(part) for part in (split.obs, split.action, split.next_obs)))
    rows, peaks = [], [peak_gflop_per_s()]
    for case in cases_of(args):
        rows.append(measure(args, case, data))
        peaks.append(peak_gflop_per_s())  # other work on the machine slows both down alike
    rows = [row.beside(max(peaks)) for row in rows]
    show(rows, max(peaks))
    if args.out is not None:
        said = {"peak_gflop_per_s": [round(peak, 1) for peak in peaks], "rows": [asdict(row) for row in rows]}
        args.out.write_text(json.dumps({**provenance(), **said}, indent=2) + "\n")


if __name__ == "__main__":
    main(tyro.cli(Args))
