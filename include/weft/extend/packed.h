// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/export.h"
#include "weft/extend/quantize.h"
#include "weft/tensor.h"

namespace weft {

// Packed matrices, as `weft/extend/quantize.h` defines them.

/// Returns a floating matrix packed with 4 or 8 bits. A block with NaN or infinity becomes NaN.
WEFT_API Tensor pack_rows(const Tensor& matrix, int bits);
/// Returns the matrix of so many columns that `packed` stands for, in a floating dtype.
WEFT_API Tensor unpack_rows(const Tensor& packed, int64_t columns, DType dtype = DType::f32);
/// x [..., columns] times the transpose of a packed matrix: [..., rows], of the dtype of x. Unpacks
/// the matrix into temporary memory, in forward and again in backward; the gradient is x's only.
/// An axis may cut the rows, or the blocks if 64 divides the columns.
WEFT_API Tensor packed_linear(const Tensor& x, const Tensor& packed);

/// Returns f32 memory for the matrix that `packed` stands for: its rows are cut as those of
/// `packed`, the columns are whole.
WEFT_API Tensor unpacked_like(const Tensor& packed, int64_t columns);
/// Packs such a matrix into `packed`. No traffic.
WEFT_API void pack_into(const Tensor& packed, const Tensor& matrix);

}  // namespace weft
