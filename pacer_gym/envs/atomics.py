"""Numbers that threads share within kernels (`njit` has no atomic operations of its own)."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic


def _as_any(generate: Any) -> Any:
    """`intrinsic`, whose types say that a kernel passes the compiler's context as well."""
    return intrinsic(generate)


@_as_any
def load_shared(_context: Any, shared: Any, owner: Any, row: Any) -> Any:
    """``shared[owner, row, 0]`` of a (n, k, m) array of int64, as other threads have left it."""
    signature = types.int64(shared, types.intp, types.intp)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.load_atomic(_pointer(context, builder, signature, args), "acquire", 8)

    return signature, generate


@_as_any
def store_shared(_context: Any, shared: Any, owner: Any, row: Any, value: Any) -> Any:
    """Set ``shared[owner, row, 0]`` for other threads to see, and all that was written before."""
    signature = types.void(shared, types.intp, types.intp, types.int64)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        builder.store_atomic(args[3], _pointer(context, builder, signature, args), "release", 8)
        return context.get_dummy_value()

    return signature, generate


@_as_any
def add_shared(_context: Any, shared: Any, owner: Any, row: Any, value: Any) -> Any:
    """Add to ``shared[owner, row, 0]`` in one piece; what it was before."""
    signature = types.int64(shared, types.intp, types.intp, types.int64)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        return builder.atomic_rmw("add", _pointer(context, builder, signature, args), args[3], "seq_cst")

    return signature, generate


def _pointer(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
    """Where ``shared[owner, row, 0]`` lies."""
    array = context.make_array(signature.args[0])(context, builder, args[0])
    rows, width = (builder.extract_value(array.shape, axis) for axis in (1, 2))
    return builder.gep(array.data, [builder.mul(builder.add(builder.mul(args[1], rows), args[2]), width)])
