# SPDX-License-Identifier: Apache-2.0
"""Every built-in op by its name, as the engine has it: weft.ops.matmul(a, b).

They take `structure` and `values` as their kernels do (`op.structure` says what the numbers are,
`op.samples` are calls that work); the functions of `weft` are these with named
arguments. `weft.Op` makes ops of one's own.
"""

from weft import _weft

_BY_NAME = {op.name: op for op in _weft.all_ops()}


def __getattr__(name):
    try:
        return _BY_NAME[name]
    except KeyError:
        raise AttributeError(f"weft has no op {name!r}; weft.all_ops() lists them") from None


def __dir__():
    return sorted(_BY_NAME)
