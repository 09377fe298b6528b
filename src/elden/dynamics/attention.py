"""Attention over a few inputs, for very many examples.

`composed` is made of the products of `elden.dynamics.products`, one after the other. On a GPU each of them reads its
operands from memory once for every other input. `fused` does the same in one kernel: a thread has one example, and the
weights of a few inputs over all inputs stay in its registers. So do its derivatives, but these cannot be differentiated
again: it serves reading, and training has `composed`.

With `l = q kᵀ / √size`, `w = softmax(l)` and `o = w v`, and `g` the derivative of a sum with respect to `o`, the
derivatives are (sums over sources s for the row of a destination d)

    w' = g vᵀ      D = Σ_s w w'      l' = w (w' - D)      dq = l' k / √size      dk = l'ᵀ q / √size      dv = wᵀ g

Where inputs are many, a program has the rows of some destinations, or the columns of some sources, which read the sums
over sources from the rows' kernel. So whatever the number of inputs, a thread holds few numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from operator import add, mul
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas.triton import CompilerParams
from jaxtyping import Array, Float, Int

from elden.dynamics.products import PerDst, PerPair, PerSrc, attended, pair_products, softmax

_MOST_INPUTS = 64
"""More inputs than this are left to `composed`: programs grow with their number."""
_FEWEST_EXAMPLES = 512
"""Fewer examples than this are left to `composed`, which is as fast there (`results/attention_kernels_gpu.json`)."""
_LEAST_CAPABILITY = 8.0
_REGISTERS = 128
"""Numbers that a thread may hold of the matrices over pairs of inputs."""
_THREADS = 128
"""Examples of one block, at most."""
_WARP = 32

_Ref: TypeAlias = Any
"""An array that a kernel reads or writes, `[size, input, example]`; Pallas has no public type for it."""
_Vector: TypeAlias = Float[Array, " example"]
_Rows: TypeAlias = list[list[_Vector]]
"""For each of a kernel's own inputs a vector for each of the others."""
_Index: TypeAlias = int | Int[Array, ""]


def worth_fusing(inputs: int, batch: int) -> bool:
    """Whether this process has a GPU with such kernels, and these are faster there for so many inputs and examples.

    In half precision kernels round less: they sum in float32, while `composed` rounds every product.
    """
    return inputs <= _MOST_INPUTS and batch >= _FEWEST_EXAMPLES and _has_kernels()


@cache
def _has_kernels() -> bool:
    """Triton, which compiles them, knows NVIDIA's GPUs from Ampere on."""
    if jax.default_backend() != "gpu":
        return False
    capability = getattr(jax.local_devices()[0], "compute_capability", None)
    try:
        return capability is not None and float(capability) >= _LEAST_CAPABILITY
    except ValueError:  # that of AMD's is a name
        return False


def composed(
    query: PerDst, key: PerSrc, value: PerSrc, bias: Float[Array, "child dst src batch"] | None = None
) -> tuple[PerDst, PerPair]:
    """What every destination gets from the sources, and how much of each; the bias is added to the logits."""
    weights = weights_of(query, key, bias)
    return attended(weights, value), weights


def weights_of(query: PerDst, key: PerSrc, bias: Float[Array, "child dst src batch"] | None = None) -> PerPair:
    """How much every destination attends to every source."""
    logits = pair_products(query, key) * query.shape[2] ** -0.5
    return softmax(logits if bias is None else logits + bias[:, None], axis=3)


def fused(query: PerDst, key: PerSrc, value: PerSrc, interpret: bool = False) -> PerDst:
    """The values of `composed` by kernels on NVIDIA's GPUs, and by products elsewhere.

    Args:
        query: Of the destinations.
        key: Of the sources.
        value: Of the sources.
        interpret: Run the kernels anywhere, interpreted; that is slow, and for tests.
    """
    children, heads, size, num_dst, batch = query.shape
    padding = -batch % _WARP
    parts = [part.reshape(children * heads, size, -1, batch) for part in (query, key, value)]
    if padding:
        parts = [jnp.pad(part, ((0, 0), (0, 0), (0, 0), (0, padding))) for part in parts]
    return _values(interpret, *parts)[..., :batch].reshape(children, heads, size, num_dst, batch)


_PerDst: TypeAlias = Float[Array, "net size dst batch"]
_PerSrc: TypeAlias = Float[Array, "net size src batch"]
_Three: TypeAlias = tuple[_PerDst, _PerSrc, _PerSrc]


def _products(q: _PerDst, k: _PerSrc, v: _PerSrc) -> _PerDst:
    return composed(q[None], k[None], v[None])[0][0]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _values(interpret: bool, q: _PerDst, k: _PerSrc, v: _PerSrc) -> _PerDst:
    def kernel(q: _PerDst, k: _PerSrc, v: _PerSrc) -> _PerDst:
        (o,) = _call(_values_kernel, (q, k, v), interpret, own=q, other=k, outputs=(q,), held=1, scaled=(0,))
        return o

    if interpret:
        return kernel(q, k, v)
    values: _PerDst = jax.lax.platform_dependent(q, k, v, cuda=kernel, default=_products)
    return values


def _derivatives(interpret: bool, saved: _Three, g: _PerDst) -> _Three:
    def kernels(q: _PerDst, k: _PerSrc, v: _PerSrc, g: _PerDst) -> _Three:
        given = q, k, v, g
        call = partial(_call, interpret=interpret, held=2)
        if 2 * q.shape[2] * k.shape[2] <= _REGISTERS:
            dq, dk, dv = call(_whole_kernel, given, own=q, other=k, outputs=(q, k, v), scaled=(0, 4))
            return dq, dk, dv
        two = jax.ShapeDtypeStruct((q.shape[0], 2, *q.shape[2:]), jnp.float32)  # type: ignore[no-untyped-call]
        dq, sums = call(_rows_kernel, given, own=q, other=k, outputs=(q, two), scaled=(0, 4))
        dk, dv = call(_columns_kernel, (*given, sums), own=k, other=q, outputs=(k, v), scaled=(0,))
        return dq, dk, dv

    def products(q: _PerDst, k: _PerSrc, v: _PerSrc, g: _PerDst) -> _Three:
        derived: _Three = jax.vjp(_products, q, k, v)[1](g)
        return derived

    if interpret:
        return kernels(*saved, g)
    derived: _Three = jax.lax.platform_dependent(*saved, g, cuda=kernels, default=products)
    return derived


_values.defvjp(lambda interpret, q, k, v: (_values(interpret, q, k, v), (q, k, v)), _derivatives)


_Kernel: TypeAlias = Callable[["_Tile"], None]


@dataclass(frozen=True)
class _Tile:
    """What one program of a kernel works on.

    Attributes:
        refs: The arrays, operands first, then results.
        own: The inputs whose rows (or columns) it has.
        other: All inputs on the other side.
        factors: What some of the arrays are multiplied by where they are read or written.
    """

    refs: Sequence[_Ref]
    own: Sequence[_Index]
    other: Sequence[_Index]
    factors: Mapping[int, float]

    def read(self, operand: int, f: _Index, inputs: Sequence[_Index]) -> list[_Vector]:
        """One feature of these inputs."""
        factor = self.factors.get(operand)
        rows = [self.refs[operand][f, i, :].astype(jnp.float32) for i in inputs]
        return rows if factor is None else [row * factor for row in rows]

    def pairs(self, *couples: tuple[int, int]) -> list[_Rows]:
        """`Σ_size a[own] · b[other]` for every pair of inputs, and every couple of operands."""
        size, _, block = self.refs[couples[0][0]].shape

        def body(f: _Index, totals: tuple[_Vector, ...]) -> tuple[_Vector, ...]:
            read = [(self.read(a, f, self.own), self.read(b, f, self.other)) for a, b in couples]
            products = [x * y for xs, ys in read for x in xs for y in ys]
            return tuple(total + product for total, product in zip(totals, products, strict=True))

        num_own, num_other = len(self.own), len(self.other)
        zeros = (jnp.zeros(block, jnp.float32),) * (len(couples) * num_own * num_other)
        sums = jax.lax.fori_loop(0, size, body, zeros)
        rows = [list(sums[i : i + num_other]) for i in range(0, len(sums), num_other)]
        return [rows[i : i + num_own] for i in range(0, len(rows), num_own)]

    def put(self, *results: tuple[int, _Rows, int], turned: Sequence[tuple[int, _Rows, int]] = ()) -> None:
        """Write results, each being a matrix times an operand: of own inputs from the others, or turned round."""
        tasks = [(out, matrix, operand, self.own, self.other) for out, matrix, operand in results]
        tasks += [(out, _transposed(matrix), operand, self.other, self.own) for out, matrix, operand in turned]

        def body(f: _Index, nothing: tuple[()]) -> tuple[()]:
            read = [self.read(operand, f, inputs) for _, _, operand, _, inputs in tasks]
            for (out, matrix, _, written, _), xs in zip(tasks, read, strict=True):
                ref, factor = self.refs[out], self.factors.get(out, 1.0)
                for input_, row in zip(written, matrix, strict=True):
                    total = reduce(add, [w * x for w, x in zip(row, xs, strict=True)])
                    ref[f, input_, :] = (total * factor).astype(ref.dtype)
            return nothing

        jax.lax.fori_loop(0, self.refs[tasks[0][0]].shape[0], body, ())

    def keep(self, out: int, *sums: list[_Vector]) -> None:
        """Write one number for each own row, of each of these sums."""
        for number, rows in enumerate(sums):
            for input_, row in zip(self.own, rows, strict=True):
                self.refs[out][number, input_, :] = row

    def kept(self, operand: int, number: int) -> list[_Vector]:
        """What rows have written, of all inputs on the other side."""
        return [self.refs[operand][number, i, :] for i in self.other]


def _transposed(matrix: _Rows) -> _Rows:
    return [list(column) for column in zip(*matrix, strict=True)]


def _by_row(function: Callable[..., _Vector], numbers: Sequence[_Vector], *matrices: _Rows) -> _Rows:
    """A function of the number of each row and its entries."""
    rows = zip(numbers, *matrices, strict=True)
    return [[function(number, *entries) for entries in zip(*parts, strict=True)] for number, *parts in rows]


def _by_column(function: Callable[..., _Vector], numbers: Sequence[_Vector], *matrices: _Rows) -> _Rows:
    """A function of the number of each column and its entries."""
    return [
        [function(*entries) for entries in zip(numbers, *rows, strict=True)] for rows in zip(*matrices, strict=True)
    ]


def _row_sums(*factors: _Rows) -> list[_Vector]:
    """Sums over the products of entries."""
    return [
        reduce(add, [reduce(mul, entries) for entries in zip(*rows, strict=True)])
        for rows in zip(*factors, strict=True)
    ]


def _softmax(logits: _Rows) -> tuple[_Rows, list[_Vector]]:
    """Weights, and the logarithms of what they were divided by."""
    tops = [reduce(jnp.maximum, row) for row in logits]
    powers = _by_row(lambda top, logit: jnp.exp(logit - top), tops, logits)
    totals = _row_sums(powers)
    weights = _by_row(lambda total, power: power / total, totals, powers)
    return weights, [top + jnp.log(total) for top, total in zip(tops, totals, strict=True)]


def _of_logits(mean: _Vector, weight: _Vector, slope: _Vector) -> _Vector:
    """From derivatives with respect to weights to those with respect to logits."""
    return weight * (slope - mean)


def _values_kernel(at: _Tile) -> None:
    q, k, v, o = range(4)
    (logits,) = at.pairs((q, k))
    at.put((o, _softmax(logits)[0], v))


def _whole_kernel(at: _Tile) -> None:
    q, k, v, g, dq, dk, dv = range(7)
    logits, slopes = at.pairs((q, k), (g, v))
    weights, _ = _softmax(logits)
    of_logits = _by_row(_of_logits, _row_sums(weights, slopes), weights, slopes)
    at.put((dq, of_logits, k), turned=[(dk, of_logits, q), (dv, weights, g)])


def _rows_kernel(at: _Tile) -> None:
    q, k, v, g, dq, sums = range(6)
    logits, slopes = at.pairs((q, k), (g, v))
    weights, logs = _softmax(logits)
    means = _row_sums(weights, slopes)
    at.put((dq, _by_row(_of_logits, means, weights, slopes), k))
    at.keep(sums, logs, means)


def _columns_kernel(at: _Tile) -> None:
    q, k, v, g, sums, dk, dv = range(7)
    logits, slopes = at.pairs((k, q), (v, g))
    weights = _by_column(lambda log, logit: jnp.exp(logit - log), at.kept(sums, 0), logits)
    at.put((dk, _by_column(_of_logits, at.kept(sums, 1), weights, slopes), q), (dv, weights, g))


def _call(
    kernel: _Kernel,
    operands: Sequence[Float[Array, "net _ _ batch"]],
    interpret: bool,
    *,
    own: Float[Array, "net size own batch"],
    other: Float[Array, "net size other batch"],
    outputs: Sequence[Float[Array, "net _ _ batch"] | jax.ShapeDtypeStruct],
    held: int,
    scaled: Sequence[int],
) -> list[Float[Array, "net _ _ batch"]]:
    """Run a kernel for every network, block of examples and group of its own inputs.

    Args:
        kernel: What a program does.
        operands: What it reads.
        interpret: Whether to run without a GPU.
        own: An array with the inputs that are divided into groups.
        other: An array with the inputs on the other side.
        outputs: Shapes of what it writes.
        held: Matrices over pairs of inputs that it holds at a time.
        scaled: Which operands and results, by number, are divided by the square root of the number of features.
    """
    nets, _, num_own, batch = own.shape
    num_other = other.shape[2]
    groups = -(-num_own // max(1, _REGISTERS // (held * num_other)))
    group = -(-num_own // groups)
    block = next(size for size in (_THREADS, _THREADS // 2, _WARP) if batch % size == 0)

    def program(*refs: _Ref) -> None:
        # The last group begins earlier where inputs do not go even: some are then computed twice, to the same result.
        start: _Index = jnp.minimum(pl.program_id(2) * group, num_own - group) if groups > 1 else 0
        factors = dict.fromkeys(scaled, own.shape[1] ** -0.5)
        kernel(_Tile(refs, [start + i for i in range(group)], range(num_other), factors))

    def spec(array: Float[Array, "net _ _ batch"] | jax.ShapeDtypeStruct) -> pl.BlockSpec:
        return pl.BlockSpec((None, *array.shape[1:3], block), lambda net, part, _: (net, 0, 0, part))

    run = pl.pallas_call(
        program,
        out_shape=[jax.ShapeDtypeStruct(each.shape, each.dtype) for each in outputs],  # type: ignore[no-untyped-call]
        grid=(nets, batch // block, groups),
        in_specs=[spec(each) for each in operands],
        out_specs=[spec(each) for each in outputs],
        compiler_params=CompilerParams(num_warps=block // _WARP, num_stages=1),
        interpret=interpret,
        name=kernel.__name__.strip("_"),
    )
    return list(run(*operands))
