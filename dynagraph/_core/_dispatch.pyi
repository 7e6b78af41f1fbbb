from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from os import PathLike
from types import CellType, FunctionType, MethodType
from typing import Any, final, overload

Size = int | tuple[Any, ...]  # a size program: see dynagraph/_core/README.md
Recipe = tuple[Any, ...]
# dtype, shape, whether it is given as a NumPy scalar; the input slot whose memory it is written to, or -1
Output = (
    tuple[Any, tuple[Size, ...], bool]
    | tuple[Any, tuple[Size, ...], bool, int]
    | tuple[Any, tuple[Size, ...], bool, int, tuple[int, ...]]
)
# a recipe that is a memo; the input slot that it gives, dtype, shape, whether it is a scalar
Step = tuple[Recipe] | tuple[Recipe, int, Any, tuple[Size, ...], bool]

MAX_ARRAYS: int  # that a program takes, and that it gives
MAX_REGISTERS: int  # of a guard program
MAX_SYMBOLS: int  # sizes and ints that change

class GuardError(RuntimeError):
    """An entry was run on values that its guards refuse."""

@final
class Library:
    """Loaded machine code, unloaded when this object goes: what may still run it holds it.  Raises OSError."""

    def __init__(self, path: str | PathLike[str]) -> None: ...
    def address(self, symbol: str, /) -> int: ...

@final
class FileMapping:
    """The first bytes of an open file as memory that processes share: a writable buffer, gone with this object.

    It takes the descriptor, and closes it at once unless `keep`.  Raises OSError, and leaves the descriptor to the caller then.
    """

    nbytes: int
    address: int
    file: int  # -1: it was not kept
    def __init__(self, file: int, nbytes: int, keep: bool = True) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def lease(self) -> FileMapping:
        """Another object of the same memory: a weak reference to it says when none of its views are left."""

@final
class NativePlan:
    """Calls an entry point of generated code. Address 0: nothing is computed (there are no outputs), the result is the recipe's."""

    def __init__(
        self,
        address: int,
        keepalive: object,
        n_inputs: int,
        outputs: tuple[Output, ...],
        workspace: Size,
        result: Recipe,
        release_gil: bool,
        n_symbols: int,
        n_checks: int = 0,
        external_call: Callable[..., None] | None = None,
        prologue: tuple[Step, ...] = (),
        limits: tuple[Size, ...] = (),  # the plan bails out if one of these does not fit into 64 bits
        better: Callable[[], tuple[int, object] | bool | None] | None = None,
    ) -> None: ...

@final
class PythonPlan:
    """Calls `callable(*inputs)`, which gives a tuple or list of outputs."""

    def __init__(
        self,
        callable: Callable[..., Any],
        n_inputs: int,
        result: Recipe,
        n_symbols: int = 0,
        n_outputs: int = 256,
        scalars: tuple[bool, ...] = (),
        repeatable: bool = False,
        into: tuple[int, ...] = (),
        n_checks: int = 0,
        may_bail_out: bool = False,
        prologue: tuple[Step, ...] = (),
        axes: tuple[tuple[int, ...], ...] = (),
        launcher: Launcher | None = None,
    ) -> None: ...

@final
class Product:
    """A product of matrices of known sizes by cuBLASLt: descriptors, algorithm and factors."""

    def __init__(
        self,
        matmul: int,  # the address of cublasLtMatmul
        set_attribute: int,  # ... of cublasLtMatmulDescSetAttribute
        handle: int,
        operation: int,  # a cublasLtMatmulDesc_t
        layouts: tuple[int, int, int, int],  # cublasLtMatrixLayout_t of A, B, C and D
        algorithm: bytes,
        alpha: bytes,
        beta: bytes,
        workspace: int,  # bytes
        turns: tuple[tuple[int, ...], ...],  # of each call: bytes from the operands' addresses to what it multiplies
        keepalive: object,
    ) -> None: ...
    @property
    def workspace(self) -> int: ...
    def run(self, operands: tuple[int, ...], workspace: int, stream: int, /) -> int:
        """Start it; A, B, C, D and bias are addresses, 0 where there is none.  Gives cuBLASLt's status."""

@final
class Launcher:
    """The kernels of a program, ready to be launched: it serves the calls of a plan that need no look at their arguments.

    A call is left to the plan's callable before `prepare`, where memory does not begin at a multiple of 16 bytes, where one of
    `sizes` is above `reach`, where an input at one of the positions `values` is an array (or one elsewhere is none), and where
    another device is current.
    """

    def __init__(self) -> None: ...
    @property
    def ready(self) -> bool: ...
    def prepare(
        self,
        launch_address: int,  # of a function with the parameters of cuLaunchKernel
        n_inputs: int,
        n_symbols: int,
        values: tuple[tuple[int, int], ...],  # inputs that are numbers of the host's: position, bytes
        results: tuple[tuple[Any, tuple[Size, ...], int], ...],  # dtype, shape, the input that it is written into or -1
        workspace: Size,  # bytes
        # a function's address, units of work, of which so many for a block, threads of a block, parameters: ("input", position),
        # "output", "value"; ("temp", offset), ("constant", address); ("size", symbol).  Or f(inputs, results, workspace, sizes).
        # Or a product: such an f, g(sizes) -> a Product, or None where f is to be called, the symbols that it depends on, and its
        # matrices A, B, C, D and bias: None, or a parameter and a number of bytes from its beginning
        launches: tuple[
            tuple[int, Size, int, int, tuple[tuple[str, Size], ...]]
            | tuple[
                Callable[..., Any],
                Callable[[tuple[int, ...]], Product | None],
                tuple[int, ...],
                tuple[tuple[str, Size, Size] | None, ...],
            ]
            | Callable[..., Any],
            ...,
        ],
        sizes: tuple[Size, ...],
        reach: int,
        most_blocks: int,
        device: int,
        array_type: type,  # called with shape and dtype
        byte_type: object,  # the dtype of the workspace
        current_device: Callable[[], int],
        current_stream: Callable[[], int],
        on_error: Callable[[int, int], None],  # which launch, CUDA's error or cuBLASLt's status; raises
        keepalive: object,
        symbols: tuple[int, ...],  # those that launches depend on
        # Asked first: takes a key of all that launches depend on, the stream included, and the inputs.  Gives [launch, result...],
        # where `launch()` does what all launches do, or None.
        replay: Callable[[bytes, tuple[Any, ...]], list[Any] | None] | None = None,
        # Takes what `replay` or its launch raised; False: it is somebody else's, and is raised once the call is done.
        replay_failed: Callable[[BaseException], bool] | None = None,
    ) -> None: ...

@final
class Entry:
    """A plan, and what must hold for it to serve a call."""

    def __init__(
        self,
        guards: tuple[tuple[Any, ...], ...],
        n_registers: int,
        plan: NativePlan | PythonPlan,
        closure: tuple[CellType, ...] | None = None,
        measured: bool = False,  # whether the plain function may prove faster
        unasked: int = 0,  # so many calls in a row are then plain without asking the guards, while it is the only entry
    ) -> None: ...
    @property
    def stays_eager(self) -> bool:
        """Whether calls that it could serve run eagerly, as that was measured to be faster."""
    @property
    def hits(self) -> int: ...
    @property
    def plan(self) -> NativePlan | PythonPlan: ...
    def check(self, values: tuple[Any, ...], /) -> int | None:
        """None where all guards hold, else the number of the first instruction that does not."""
    def run(self, values: tuple[Any, ...], /) -> Any:
        """What the plan gives, a `Tail` perhaps; GuardError where a guard does not hold."""
    def run_or(self, values: tuple[Any, ...], other: Any, /) -> Any:
        """`run(values)`, or `other` where a guard does not hold."""
    def call_or(self, values: tuple[Any, ...], other: Any, /) -> Any:
        """`run_or(values, other)`, and the calls that tails ask for."""
    def call(self, values: tuple[Any, ...], /) -> Any:
        """`run(values)`, and the calls that tails ask for."""

@final
class Tail:
    """Returned by a continuation: the trampoline of the outermost call makes the call `function(*args)` in its stead."""

    def __new__(cls, function: Callable[..., Any], /, *args: Any) -> Tail: ...
    @property
    def function(self) -> Callable[..., Any]: ...
    @property
    def args(self) -> tuple[Any, ...]: ...

@final
class GradModes:
    """What `dynagraph.torch` records in the current thread, and in which dtypes; all instances tell the same."""

    grad: bool
    inference: bool
    anomaly: bool
    check_nan: bool
    hooked: bool
    autocast: bool
    autocast_cpu: bool
    autocast_cuda: bool
    autocast_cache: bool
    autocast_cpu_dtype: int
    autocast_cuda_dtype: int
    backward: Any
    casts: dict[Any, Any] | None
    def flags(self) -> int:
        """All but `backward` and `casts` as one int, for guards."""

class HostLoop:
    """Calls `body` again and again with what it gave before, without Python between the calls.

    The body takes an item, if there are items, and the variables.  It gives (way, *variables); way 0: the next turn.
    """

    def __init__(self, body: Callable[..., tuple[Any, ...]]) -> None: ...
    def run(
        self,
        items: Iterator[Any] | None,
        variables: tuple[Any, ...],
        most: int,  # turns; -1: all
        pause: Callable[..., Any],  # called with the variables and `stack` where signals wait, and lets Python handle them
        stack: tuple[Any, ...],
    ) -> tuple[Any, ...]:
        """(way, turns, *variables): the way by which the body left, 0 after `most` turns, None where there are no more items."""
    @property
    def turns(self) -> int:
        """All turns so far."""
    @property
    def quiet_turns(self) -> int:
        """Those that only launched kernels: no Python code ran."""

class NativeLoop:
    """Calls generated code, an `int32_t f(dg_slot *state, const dg_runtime *rt, dg_stop *stop)` that gives the number of its exit.

    A call gives what its exit's row says.  Where the arguments do not fit the parameters it gives `Tail(otherwise, *args)`; where
    `otherwise` is None it raises TypeError.
    """

    def __init__(
        self,
        address: int,
        keepalive: object,
        parameters: tuple[tuple[Any, ...], ...],  # a row for each argument: see dynagraph/_core/README.md
        n_slots: int,
        exits: tuple[tuple[str, Any], ...],
        make_target: Callable[[int], Callable[..., Any]] | None,  # what an exit's tail calls; asked when it is first taken
        otherwise: Callable[..., Any] | None,
        release_gil: bool = True,
        calls_out: tuple[tuple[Any, ...], ...] = (),  # a row for each Python function that the code calls
        # asked at calls, at most every 2 ms, for code that takes this one's place; None: not yet; False: never
        better: Callable[[], tuple[int, object] | bool | None] | None = None,
    ) -> None: ...
    @property
    def calls(self) -> int:
        """All calls, those included whose arguments did not fit."""
    @property
    def exits_taken(self) -> tuple[int, ...]:
        """How often each exit was taken."""
    @property
    def calls_made(self) -> tuple[int, ...]:
        """How often each Python function was called out of the loop."""
    @property
    def targets(self) -> tuple[Callable[..., Any] | None, ...]:
        """What `make_target` gave for each exit; None: not asked yet."""
    def __call__(self, /, *args: Any) -> Any: ...

@final
class Rest:
    """`Rest(make)(*state)` stands in for a callable: called with anything it gives what `make()(*state)` gives, tails followed."""

    def __init__(self, make: Callable[[], Callable[..., Any]]) -> None: ...
    def __call__(self, /, *state: Any) -> Callable[..., Any]: ...

class _Tails:
    def __getitem__(self, parts: tuple[Any, ...]) -> Tail: ...

tails: _Tails  # `tails[function, *args]` is `Tail(function, *args)`; signals are looked for after a call, not after this

PLAINLY: object  # what `on_miss` gives for a plain call of the function, which is timed

def set_clock(clock: Callable[[], float] | None, /) -> None:
    """What gives the seconds by which calls are timed, for tests; None: the system's."""

def note_compiling(seconds: float, /) -> None:
    """So much of the time of the calls under way in this thread went into compiling."""

@final
class CompiledFunction:
    """A function whose calls are served by the first entry whose guards hold; where none does, by `on_miss`."""

    def __init__(
        self, function: FunctionType, on_miss: Callable[[CompiledFunction, tuple[Any, ...], dict[str, Any] | None], Any]
    ) -> None: ...
    @property
    def __wrapped__(self) -> Any: ...  # a FunctionType: said here, mypy would bind it to the CompiledFunction
    @property
    def entries(self) -> list[Entry]:
        """In the order in which they are tried: the one that served last comes first."""
    @property
    def _carrier(self) -> Any: ...
    enabled: bool
    def add_entry(self, entry: Entry, /) -> None:
        """It is tried first by the next call."""
    def clear(self) -> None: ...
    def put_off(self, seconds: float, /) -> None:
        """Calls that no entry serves run eagerly until these have taken so long; then `on_miss` is asked again."""
    @property
    def earned(self) -> float:
        """Seconds that the calls so far would have taken plainly, as far as that is known."""
    def counters(self) -> dict[str, int]:
        """`hits`; `misses`: calls that no entry served; `refusals`: calls that a program bailed out of, for a check that failed;
        `stayed_eager`: calls that an entry could have served and that ran eagerly, to measure that or because it is faster.
        """
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def __get__(self, instance: None, owner: type | None = None, /) -> CompiledFunction: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None, /) -> MethodType: ...
    def __getattr__(self, name: str) -> Any: ...  # it has a __dict__
    def __setattr__(self, name: str, value: Any) -> None: ...

def bind(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None, /) -> tuple[Any, ...]:
    """The bound parameters in order of `co_varnames`. Raises TypeError for a call that does not fit."""

def set_threads(n: int, /) -> None:
    """0: as many as this process may use processors."""

def get_threads() -> int: ...
def set_blas(functions: Mapping[str, int], ilp64: bool, /) -> None: ...
def multiply(a: Any, b: Any, out: Any, isa: str | None = None, /) -> None:
    """Writes the products of matrices to `out`, a contiguous array, on the thread pool; all are of one float dtype.

    Leading axes of `a` and `b` broadcast to those of `out`. `isa`: one of `product_kernels()`.
    """

def convolve(
    which: int,
    a: Any,
    b: Any,
    bias: Any,
    groups: int,
    stride: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    sizes: tuple[int, ...],
    isa: str | None = None,
    /,
) -> Any:
    """A convolution (0), or its gradient by the images (1) or the filters (2), of float32 or float64, on the thread pool.

    `sizes`: the last ones of the result. `isa`: one of `product_kernels()`.
    """

def max_pool(
    x: Any,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    places: tuple[int, ...],
    /,
) -> tuple[Any, Any]:
    """The greatest elements of windows of the last dimensions, and where they stood; of float32 or float64.

    Where several are equal it is the first one, of NaNs the last.
    """

def avg_pool(
    x: Any,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    last: tuple[int, ...],
    whole: bool,
    divisor: int,
    back: bool,
    /,
) -> Any:
    """The means of windows of the last dimensions, of float32 or float64, or, with `back`, the transpose of that.

    `last`: the last sizes of the result.  `divisor`: what sums are divided by; 0: how many elements a window has, the border's
    among them if `whole`.
    """

def put_places(g: Any, places: Any, sizes: tuple[int, ...], /) -> Any:
    """The elements of `g` added up at places among the last dimensions of the result, which are of these sizes."""

def crc32(data: Any, value: int = 0, /) -> int:
    """The checksum of zip files, as zlib.crc32 gives it."""

def write_crc32(descriptor: int, data: Any, /) -> int:
    """Write all of a buffer to a file where it stands; the checksum of it.  Raises OSError."""

def read_crc32(descriptor: int, offset: int, buffer: Any, /) -> tuple[int, int]:
    """Fills the buffer from a place in a file: how many bytes were read, and their checksum."""

def put_rows(g: Any, places: Any, rows: int, /) -> Any:
    """The rows of `g`, float32 or float64, added up in order at integer places of a table of so many rows."""

def adaptive_means(x: Any, size: int, inner: int, count: int, /) -> Any:
    """The means of `count` windows along the middle axis of `x`, read as (planes, size, inner): (planes, count, inner)."""

def adaptive_means_back(g: Any, size: int, inner: int, count: int, /) -> Any:
    """The gradient of `adaptive_means`: (planes, size, inner)."""

def adaptive_maxima(x: Any, sizes: tuple[int, int, int], counts: tuple[int, int, int], /) -> tuple[Any, Any]:
    """The greatest of `counts` windows in boxes of three `sizes`, and where in its box each stood: both (planes, *counts)."""

def normalize(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, sizes: tuple[int, int, int, int], how: int, eps: float,
    baseline: bool = False, /,
) -> tuple[Any, Any, Any]:
    """An array less its means, divided by the roots of its variances, times weights plus biases; the means; the variances.

    It is read in C order as (batch, groups, inner, size), with a channel for each of (groups, inner).  `how` is a sum of 1: of
    statistics of each group over the batch, instead of each group of each element of the batch; 2: channels are the last axis,
    (batch, size, groups); 4: means are 0; 8: statistics are given.  `baseline`: without this processor's vectors.
    """

def normalize_back(
    g: Any, x: Any, weight: Any, mean: Any, variance: Any, sizes: tuple[int, int, int, int], how: int, eps: float, needs: int,
    baseline: bool = False, /,
) -> tuple[Any, Any, Any]:
    """The gradients of `normalize` by `x`, weights and biases; `needs`: a sum of 1, 2 and 4 for those that are asked for."""

def attention(
    q: Any, k: Any, v: Any, mask: Any, other_mask: Any, seed: Any, offset: Any, out: Any, sums: Any, scale: float, causal: bool,
    dropout: float, /,
) -> None:
    """Writes ``softmax(q @ k.T * scale + mask + other_mask) @ v`` to `out`, and what the gradients need of the rows to `sums`.

    All are float32 or float64 arrays (batch..., heads, rows, columns), `sums` of two columns; heads of `k` and `v` may be fewer.
    A mask broadcasts; where it is bool, True is what counts.  With `dropout` two arrays of a uint64 say where the Philox stream
    begins.
    """

def attention_gradient(
    q: Any, k: Any, v: Any, mask: Any, other_mask: Any, seed: Any, offset: Any, out: Any, sums: Any, g: Any, dq: Any, dk: Any,
    dv: Any, by_mask: Any, by_other_mask: Any, scale: float, causal: bool, dropout: float, /,
) -> None:
    """Writes the gradients by `q`, `k`, `v` and the masks to those arrays that are not None, from `g`, that by the result."""

def own_matmul(otherwise: Callable[..., Any], module: str, /) -> Callable[[Any, Any], Any]:
    """``matmul(a, b)``: multiplies NumPy's float matrices as `multiply` does, and calls `otherwise` with all other operands."""

def own_where(otherwise: Callable[..., Any], module: str, /) -> Callable[[Any, Any, Any], Any]:
    """``where(condition, a, b)``: as np.where; calls `otherwise` with what is not NumPy's contiguous arrays and numbers."""

def use_own_products(flag: bool, /) -> None:
    """Whether what `own_matmul` made multiplies anything, or leaves all to the other function."""

def product_kernels() -> list[tuple[str, int, int]]:
    """The instruction sets that this processor has kernels for, the best one first, with the rows and columns of a float32 tile."""

def new_array(shape: Sequence[int], dtype: Any, /) -> Any:
    """An array without values, in recycled memory where it is large: it has no page faults then."""

def new_zeros(shape: Sequence[int], dtype: Any, /) -> Any:
    """An array of zeros.  Large ones begin as pages that nobody has touched, huge ones where the system has them."""

def pool_stats() -> dict[str, int]:
    """Bytes `kept`, `in_use` and the `limit` of bytes kept; blocks `taken`, and `recycled` ones among them."""

def pool_trim(n_bytes: int, /) -> None:
    """Gives memory back to the system until at most so much is kept."""

def pool_set_limit(n_bytes: int, /) -> None: ...
def set_pending_signals(address: int, /) -> None:
    """`_frame_hook.pending_signals()`: where native code sees that signals wait; 0: they wait until it has ended."""

def set_monitoring_tools(address: int, /) -> None:
    """`_frame_hook.monitoring_tools()`: while there is a debugger or a coverage tool, calls run the plain functions."""

def type_version(type: type, /) -> int:
    """A number that is another one when the type or a base has been modified; 0 for one that can have none."""

def set_reducer(reducer: Callable[[CompiledFunction], Any], carrier: Callable[[CompiledFunction], Any], /) -> None: ...
def set_of_signal(function: Callable[[BaseException], bool], /) -> None:
    """What tells of an exception whether a signal's handler raised it: such a one is never taken for a program's bailing out."""

def by_size(small: Callable[..., Any], large: Callable[..., Any], size: int, module: str, /) -> Callable[..., Any]:
    """A function that calls `large` where an argument is an array of so many elements and all are NumPy's or numbers, else `small`.

    `module`: its `__module__`.
    """

def any_large(arrays: tuple[Any, ...], size: int, /) -> bool:
    """Whether one of these has so many elements, and all are NumPy's arrays or numbers."""

def run_each(entries: list[Entry], rows: list[tuple[Any, ...]], shared: Any, /) -> list[tuple[Any, ...]]:
    """Calls a function with the arrays of each row, and last an argument that all share, as one piece of work of the thread pool.

    Gives the rows that are left: those that none of its entries serves; all, where one writes to memory of another.
    """

def step_rows(
    params: list[Any], states: dict[Any, Any], names: tuple[str, ...], counters: tuple[str, ...], /
) -> tuple[list[tuple[Any, tuple[float, ...], list[tuple[Any, ...]], list[tuple[Any, ...]]]], list[Any]]:
    """The arrays of parameters that have gradients, of these, and of states by names; counts the writes to them.

    Gives groups of parameters of one dtype whose counters, arrays of one number, agree: the dtype, the numbers, the
    counters' arrays, the rows; and the parameters that are not plain, of which nothing was done.
    """

def fill_numbers(rows: list[tuple[Any, ...]], values: tuple[float, ...], /) -> None:
    """Stores value k in array k of each row; they are arrays of one number."""
def recurrent_forward(
    kind: str, reverse: bool, x: Any, h0: Any, c0: Any, weights: Any, bias: Any, bias_of_state: Any, projection: Any, counts: Any,
    out: tuple[Any, ...] | None = None,
) -> tuple[Any, ...]:
    """A recurrent layer over all steps, by threads that share the batch: the outputs; of an LSTM its cells; of LSTM and GRU what
    the gates were.

    `x` is the input's part in the gates, (steps, batch, columns), or of packed sequences (rows, columns) with the `counts` of rows
    for each step.  Biases, states and the `projection` of an LSTM may be None.  Arrays are all float32 or all float64.
    `out`: memory for results; that of an LSTM's gates may be `x`.
    """

def recurrent_backward(
    kind: str, reverse: bool, grad_outputs: Any, grad_cells: Any, outputs: Any, cells: Any, gates: Any, h0: Any, c0: Any,
    weights: Any, projection: Any, counts: Any, out: tuple[Any, ...] | None = None,
) -> tuple[Any, ...]:
    """Its gradients: by `x` and `h0`; of an LSTM by `c0`, with a projection by what that gives, and what
    was projected; of a GRU by the state's part."""

def recurrent_before(reverse: bool, outputs: Any, h0: Any, counts: Any, /) -> tuple[Any, ...]:
    """The states before each step, in the order of the outputs' rows."""

def recurrent_cell(
    kind: str, x: Any, of_state: Any, before: Any, out: tuple[Any, ...] | None = None
) -> tuple[Any, ...]:
    """One step of an LSTM or GRU, of the input's and the state's part in the gates: the state, an LSTM's cells, what the gates
    were.

    `before`: an LSTM's cells, a GRU's state.
    """

def recurrent_cell_backward(
    kind: str, grad_h: Any, grad_c: Any, cells: Any, gates: Any, before: Any, out: tuple[Any, ...] | None = None
) -> tuple[Any, ...]:
    """Its gradients: by the input's part in the gates and by `before`; of a GRU by the state's part, too."""

def set_tensor_calls(
    tensor: type, storage: type, node: type, primitive: type, numbers: Any, functions: dict[str, Any], /
) -> tuple[Callable[..., Any], Callable[[Any], Any], Callable[[Any], Any]]:
    """`apply`, `made` and `wrap` of dynagraph.torch, in C.

    They work over its classes' slots, with the functions in Python for what is not plain.
    """

def observe_tensor_calls(function: Callable[[Any, int, int, Any], Any] | None, /) -> Callable[[Any, int, int, Any], Any] | None:
    """Have a function called with each operation on tensors of dynagraph.torch after it has run, or none; the one before.

    It is given the primitive and its operands, or the node that backward has run and None, and when it began and ended, in
    nanoseconds of the monotonic clock.
    """

def set_tensor_backward(functions: dict[str, Any], /) -> Callable[[Any, list[tuple[Any, int, Any]], bool], None]:
    """What runs backward of dynagraph.torch, in C: called with a `_Run`, its roots, and whether the graph is kept.

    It works over the slots that `set_tensor_calls` was told of.  Nodes and leaves with hooks go to the run's methods.
    """

def set_full_tracebacks(flag: bool, /) -> None:
    """Whether exceptions that leave a `CompiledFunction` keep the frames of dynagraph's own modules. At first they do not."""

def set_errstate(variable: ContextVar[Any] | None, harmless: Callable[[], bool], /) -> None:
    """NumPy's variable of its floating-point error state, and what tells whether the state in force only warns.

    Before the first call no "errstate" guard holds.
    """
