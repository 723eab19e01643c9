# SPDX-License-Identifier: Apache-2.0
"""The array standard's linear algebra, as far as it is made of products and sums.

What decomposes a matrix is not here: docs/array-api.md says why.
"""

from weft._weft import (
    cross as cross,
    diagonal as diagonal,
    matmul as matmul,
    matrix_norm as matrix_norm,
    matrix_transpose as matrix_transpose,
    outer as outer,
    tensordot as tensordot,
    trace as trace,
    vecdot as vecdot,
    vector_norm as vector_norm,
)
