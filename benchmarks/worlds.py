"""Steps per second of every world, and of MiniGrid's Empty stepped in Python, in one run on one machine.

Each figure is a jitted scan over whole environment steps: random actions, the step with its local graph (carried from
step to step, so that it is really written), and new layouts where episodes end. Compile time is measured apart.
"""

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import tyro
from jaxtyping import Array, Bool, Key
from rich.console import Console
from rich.table import Table

import elden
from elden.provenance import provenance
from elden.worlds.base import World, WorldState

CASES: dict[str, dict[str, str]] = {
    "thawing skills teleport": {"name": "thawing"},
    "thawing skills path": {"name": "thawing", "goto": "path"},
    "thawing primitives": {"name": "thawing", "profile": "primitives"},
    "carwash skills teleport": {"name": "carwash"},
    "carwash skills path": {"name": "carwash", "goto": "path"},
    "carwash primitives": {"name": "carwash", "profile": "primitives"},
    "minecraft skills teleport": {"name": "minecraft"},
    "minecraft skills path": {"name": "minecraft", "goto": "path"},
    "minecraft primitives": {"name": "minecraft", "profile": "primitives"},
    "kitchen": {"name": "kitchen"},
    "empty primitives": {"name": "empty"},
    "chain": {"name": "chain"},
}

Carry = tuple[Key[Array, ""], WorldState, Bool[Array, "env dst src"]]


@dataclass(frozen=True)
class Args:
    """What to measure."""

    envs: tuple[int, ...] = (1, 64, 1024, 8192)
    """Numbers of environments."""
    cases: tuple[str, ...] = tuple(CASES)
    """Worlds and profiles."""
    seconds: float = 0.5
    """Length of one timed run, about; every figure is the median of five."""
    minigrid: bool = True
    """Step MiniGrid's Empty in Python too, and report ratios."""
    out: Path | None = None
    """Where to write the JSON; None writes nothing."""


@dataclass(frozen=True)
class Row:
    """One figure."""

    case: str
    num_envs: int
    steps_per_s: float
    slowest_steps_per_s: float
    ms_per_batch_step: float
    compile_s: float
    ratio_to_minigrid: float | None


def play(world: World, num_envs: int, length: int, carry: Carry) -> Carry:
    """`length` steps of `num_envs` environments."""

    def step(carry: Carry, _: None) -> tuple[Carry, None]:
        key, action_key, step_key = jax.random.split(carry[0], 3)
        actions = jax.random.randint(action_key, (num_envs,), 0, world.num_actions, jnp.int32)
        states, transition = world.step_many(step_key, carry[1], actions)
        return (key, states, transition.graph), None

    return jax.lax.scan(step, carry, None, length)[0]


def finished(carry: Carry) -> Carry:
    """The same, once it has really been computed."""
    for leaf in jax.tree.leaves(carry):
        leaf.block_until_ready()
    return carry


def measure(case: str, num_envs: int, args: Args, minigrid: float | None) -> Row:
    """Time one world at one number of environments."""
    options = dict(CASES[case])
    world = elden.make(options.pop("name"), **options)
    n = world.factors.num_variables
    states = jax.jit(world.reset_many, static_argnums=1)(jax.random.key(0), num_envs)
    carry: Carry = (jax.random.key(1), states, jnp.zeros((num_envs, n, n + 1), bool))
    begin = time.perf_counter()
    probe = jax.jit(lambda carry: play(world, num_envs, 100, carry)).lower(carry).compile()
    compile_s = time.perf_counter() - begin
    carry = finished(probe(carry))
    begin = time.perf_counter()
    carry = finished(probe(carry))
    calls = max(1, round(args.seconds / (time.perf_counter() - begin)))
    rates = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(calls):
            carry = probe(carry)
        finished(carry)
        rates.append(calls * 100 * num_envs / (time.perf_counter() - begin))
    rate = statistics.median(rates)
    ratio = rate / minigrid if minigrid else None
    return Row(case, num_envs, rate, min(rates), 1000 * num_envs / rate, compile_s, ratio)


def minigrid_rate(seconds: float) -> float | None:
    """Steps per second of MiniGrid's Empty (10 x 10), one environment, random actions, resets included."""
    try:
        from minigrid.envs.empty import EmptyEnv
    except ImportError:
        return None
    env = EmptyEnv(size=10, max_steps=40)
    env.reset(seed=0)
    env.action_space.seed(0)
    rates = []
    for _ in range(5):
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < seconds:
            *_, terminated, truncated, _ = env.step(int(env.action_space.sample()) % 3)
            steps += 1
            if terminated or truncated:
                env.reset()
        rates.append(steps / (time.perf_counter() - begin))
    return statistics.median(rates)


def show(rows: list[Row], minigrid: float | None) -> None:
    """Print the figures as a table."""
    table = Table(title=f"environment steps per second on {jax.devices()[0].device_kind}, local graph included")
    for heading in ("world", "envs", "steps/s", "slowest of 5", "ms a batch step", "compile s", "x MiniGrid"):
        table.add_column(heading, justify="left" if heading == "world" else "right")
    for row in rows:
        ratio = "-" if row.ratio_to_minigrid is None else f"{row.ratio_to_minigrid:,.0f}"
        figures = (f"{row.steps_per_s:,.0f}", f"{row.slowest_steps_per_s:,.0f}", f"{row.ms_per_batch_step:.3f}")
        table.add_row(row.case, f"{row.num_envs:,}", *figures, f"{row.compile_s:.1f}", ratio)
    console = Console(width=120)
    console.print(table)
    if minigrid:
        console.print(f"MiniGrid Empty in Python, one environment: {minigrid:,.0f} steps/s")


def main() -> None:
    args = tyro.cli(Args, description=__doc__)
    minigrid = minigrid_rate(args.seconds) if args.minigrid else None
    console = Console(stderr=True)
    rows = []
    for case in args.cases:
        for num_envs in args.envs:
            console.print(f"{case}, {num_envs:,} environments")
            rows.append(measure(case, num_envs, args, minigrid))
    report = {**provenance(), "minigrid_steps_per_s": minigrid, "rows": [asdict(row) for row in rows]}
    text = json.dumps(report, indent=1)
    if args.out is not None:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n")
    print(text)
    show(rows, minigrid)


if __name__ == "__main__":
    main()
