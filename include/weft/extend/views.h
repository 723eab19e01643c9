// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include "weft/export.h"
#include "weft/extend/call.h"
#include "weft/extend/op.h"
#include "weft/tensor.h"

namespace weft {

/// True when a change of elements of `view` changes `base`, which it or a tensor that it is a view
/// of was made from: they share memory, or the view is a copy that the engine keeps equal.
WEFT_API bool is_view_of(const Tensor& view, const Tensor& base);

/// True when the tensor is a view that the engine holds as a copy and keeps equal to its base: what
/// is written to its memory reaches the base by `mark_written` only.
WEFT_API bool is_copied_view(const Tensor& tensor);
/// Called before code writes to a tensor's memory itself: throws std::invalid_argument "<what>:
/// ..." when the change would be lost. Equal on all ranks.
WEFT_API void check_writable(const char* what, const Tensor& tensor);
/// States afterwards that the elements have changed: on all ranks of a sharded tensor, also those
/// that hold none of the elements.
WEFT_API void mark_written(const Tensor& tensor);

/// flip as a view: a change of the result is one of `a`, and the other way round.
WEFT_API Tensor turned(const Tensor& a, const std::vector<int>& dims);

/// Changes the elements of `base`, operand 0 of a view op, that a view shows to those of `part`,
/// where the view had to be a copy.
using Put = std::function<void(const Attributes&, const Tensor& base, const Tensor& part)>;
/// States how a view op puts; otherwise the engine finds the places by numbers. Returns true.
WEFT_API bool puts(const Op& op, Put put);

}  // namespace weft
