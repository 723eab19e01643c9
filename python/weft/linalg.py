# SPDX-License-Identifier: Apache-2.0
"""The array standard's linear algebra, as far as it is made of products and sums.

What decomposes a matrix is not here: docs/array-api.md says why.
"""

from weft._weft import (
    cross,
    diagonal,
    matmul,
    matrix_norm,
    matrix_transpose,
    outer,
    tensordot,
    trace,
    vecdot,
    vector_norm,
)

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_transpose",
    "outer",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]
