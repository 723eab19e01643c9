# SPDX-License-Identifier: Apache-2.0
"""Every built-in op by its name in the engine: weft.ops.matmul(a, b).

Ops take `structure` and `values` as their kernels do (`op.structure` documents the numbers,
`op.samples` are valid calls); the functions of `weft` call them with named arguments. `weft.Op`
makes custom ops.
"""

from weft import _weft

_BY_NAME = {op.name: op for op in _weft.all_ops()}


def __getattr__(name):
    try:
        return _BY_NAME[name]
    except KeyError:
        raise AttributeError(
            f"weft.ops has no attribute {name!r}; weft.all_ops() lists the ops"
        ) from None


def __dir__():
    return sorted(_BY_NAME)
