// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// The position of each token within its document: i64 [batch, sequence], counted from 0 where the
/// number of `segments` (integers [batch, sequence], see AttentionOptions::segments) differs from
/// that of the token before.
WEFT_API Tensor document_positions(const Tensor& segments);

/// Rotary position embedding, as `rope` of networks.h, of tokens at given positions: integers
/// [batch, sequence], equal to those of x [batch, sequence, heads, d].
WEFT_API Tensor rope(const Tensor& x, double theta, const Tensor& positions);
WEFT_API Tensor rope(const Tensor& x, const Tensor& frequencies, double scale,
                     const Tensor& positions);

}  // namespace weft
