// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "weft/export.h"
#include "weft/ops/in_place.h"
#include "weft/tensor.h"

// The update of AdamW with moments of 8 bits; never recorded. `gradient_scale` has one element.

namespace weft {

/// Columns of a matrix that have one scale in 8 bits: blocks begin at each multiple of it.
inline constexpr int64_t kScaleBlock = 128;

/// The moments of AdamW in 8 bits, all of one rank: codes [rows, columns] of u8, and scales [rows,
/// blocks] of f32, the greatest magnitudes of blocks of `kScaleBlock` columns of the whole matrix.
/// A code of m is a sign, 4 bits of exponent and 3 of mantissa; a code of v has 5 and 3 bits, and
/// is above 0 where v is.
struct Moments8 {
  Tensor m, v;
  Tensor m_scales, v_scales;
};

/// Writes to [rows, blocks] the greatest magnitudes that m and v have after a step by the part of a
/// matrix, [rows, columns], that begins at column `first_column`; other blocks are left alone.
WEFT_API void adamw8_scales_(const Tensor& m_scales, const Tensor& v_scales, const Tensor& gradient,
                             const Tensor& gradient_scale, const Moments8& before,
                             const AdamWStep& step, int64_t first_column = 0);
/// Performs that step. The parameter, [rows, columns], changes as in `adamw_` with moments of f32,
/// the codes become those of the new scales, which take the place of `moments`' own.
WEFT_API void adamw8_(const Tensor& parameter, const Tensor& gradient, const Tensor& gradient_scale,
                      const Moments8& moments, const Tensor& m_scales, const Tensor& v_scales,
                      const AdamWStep& step, int64_t first_column = 0);

}  // namespace weft
