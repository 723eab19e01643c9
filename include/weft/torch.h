// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/ops.h"
#include "weft/tensor.h"

/// PyTorch's functions whose meaning differs from that of the array API, which `weft::` has. All
/// other functions of PyTorch are those of `weft::`. Negative dims count from the end; a tensor
/// without dims counts as one of one element.
namespace weft::torch {

/// All elements added up, or along `dim`; cast to `dtype` first where it is given. No dims are all.
WEFT_API Tensor sum(const Tensor& a, const std::vector<int>& dim = {}, bool keepdim = false,
                    std::optional<DType> dtype = {});
WEFT_API Tensor mean(const Tensor& a, const std::vector<int>& dim = {}, bool keepdim = false,
                     std::optional<DType> dtype = {});
/// The maximum or minimum of all elements, along a dim with the indices, or of two tensors.
inline Tensor max(const Tensor& a) { return weft::max(a); }
WEFT_API ValuesAndIndices max(const Tensor& a, int dim, bool keepdim = false);
inline Tensor max(const Tensor& a, const Tensor& b) { return maximum(a, b); }
inline Tensor min(const Tensor& a) { return weft::min(a); }
WEFT_API ValuesAndIndices min(const Tensor& a, int dim, bool keepdim = false);
inline Tensor min(const Tensor& a, const Tensor& b) { return minimum(a, b); }
/// The index in the flattened tensor, or along a dim.
WEFT_API Tensor argmax(const Tensor& a, std::optional<int> dim = {}, bool keepdim = false);
WEFT_API Tensor argmin(const Tensor& a, std::optional<int> dim = {}, bool keepdim = false);

/// Divided by the number of elements - correction.
WEFT_API Tensor var(const Tensor& a, const std::vector<int>& dim = {}, double correction = 1,
                    bool keepdim = false);
WEFT_API Tensor std(const Tensor& a, const std::vector<int>& dim = {}, double correction = 1,
                    bool keepdim = false);
/// log of the sum of exp along all of the dims.
WEFT_API Tensor logsumexp(const Tensor& a, const std::vector<int>& dim, bool keepdim = false);
WEFT_API Tensor softmax(const Tensor& a, int dim);
WEFT_API Tensor log_softmax(const Tensor& a, int dim);

inline ValuesAndIndices sort(const Tensor& a, int dim = -1, bool descending = false) {
  return sort_along(a, dim, descending);
}
WEFT_API Tensor cumsum(const Tensor& a, int dim);
WEFT_API Tensor cumprod(const Tensor& a, int dim);
/// True when both have the same shape and elements: equal on all ranks.
WEFT_API bool equal(const Tensor& a, const Tensor& b);
/// The indices of the nonzero elements: [n, dims].
inline Tensor nonzero(const Tensor& a) { return argwhere(a); }
/// The first `size` rows of nonzero, with rows of `fill_value` behind them where there are fewer.
WEFT_API Tensor nonzero_static(const Tensor& a, int64_t size, int64_t fill_value = -1);
/// The elements at `index` of the flattened tensor.
inline Tensor take(const Tensor& a, const Tensor& index) { return take_flat(a, index); }

/// a + alpha * b, and a - alpha * b.
WEFT_API Tensor add(const Tensor& a, const Operand& b, Number alpha = 1);
WEFT_API Tensor sub(const Tensor& a, const Operand& b, Number alpha = 1);
/// The quotient, rounded if `rounding_mode` is "floor" or "trunc".
WEFT_API Tensor div(const Tensor& a, const Operand& b, std::string_view rounding_mode = "");
/// Rounds to so many decimals; negative ones are places before the point.
WEFT_API Tensor round(const Tensor& a, int decimals = 0);
/// Limited to [low, high].
inline Tensor clamp(const Tensor& a, const std::optional<Operand>& low,
                    const std::optional<Operand>& high = {}) {
  return clip(a, low, high);
}

/// The diagonal of two dims, the first two unless given.
inline Tensor diagonal(const Tensor& a, int64_t offset = 0, int dim1 = 0, int dim2 = 1) {
  return weft::diagonal(a, offset, dim1, dim2);
}
/// Removes the dims of size 1, or those of `dims` that have it.
WEFT_API Tensor squeeze(const Tensor& a, const std::optional<std::vector<int>>& dims = {});
/// Joined along a dim; vectors without elements are left out.
WEFT_API Tensor cat(Tensors tensors, int dim = 0);
/// Elements start, start + step, ... before stop along `dim`.
WEFT_API Tensor slice(const Tensor& a, int dim = 0, std::optional<int64_t> start = {},
                      std::optional<int64_t> stop = {}, int64_t step = 1);
/// weft::tensordot, where a dim of size 1 of one tensor is repeated to that of the other.
WEFT_API Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_of_a,
                          const std::vector<int>& dims_of_b);

/// weft::layer_norm and weft::rms_norm along all of the last dims, whose sizes are
/// `normalized_shape`; weight and bias have that shape.
WEFT_API Tensor layer_norm(const Tensor& x, const Shape& normalized_shape,
                           const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);
WEFT_API Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight = {},
                         double eps = 1e-5);

/// Casts the operands of an op to what PyTorch promotes: an operand without dims does not decide
/// the dtype next to one of its kind (bool, integer, floating) that has dims.
WEFT_API void promote_by_dims(std::span<Tensor> operands);

/// softmax(query key^T * scale) value of [batch, heads, sequence, d]; key and value may have fewer
/// heads, each of which serves as many query heads, with `enable_gqa` or without. attn_mask: bool
/// (false hides a key) or numbers that are added. scale is 1 / sqrt(d) unless given.
WEFT_API Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                             const Tensor& value, const Tensor& attn_mask = {},
                                             double dropout_p = 0, bool is_causal = false,
                                             std::optional<double> scale = {},
                                             bool enable_gqa = false);

}  // namespace weft::torch
