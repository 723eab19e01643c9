# SPDX-License-Identifier: Apache-2.0
"""The array standard's linear algebra, as far as it is made of products and sums.

What decomposes a matrix is not here: docs/array-api.md says why.
"""

from weft._weft import cross as cross, diagonal as diagonal, matmul as matmul
from weft._weft import matrix_norm as matrix_norm, matrix_transpose as matrix_transpose
from weft._weft import outer as outer, tensordot as tensordot, trace as trace, vecdot as vecdot
from weft._weft import vector_norm as vector_norm
