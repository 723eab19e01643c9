// SPDX-License-Identifier: Apache-2.0
#include "weft/torch.h"

#include <algorithm>
#include <cmath>

#include "ops/complex.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "weft/ops.h"

namespace weft::torch {

/// function(a, more...) for a tensor with dims; one without dims gets one for the call.
template <class Function, class... More>
static Tensor with_dim(const char* what, const Function& function, const Tensor& a,
                       const More&... more) {
  check_tensor(what, a);
  return a.ndim() > 0 ? function(a, more...) : reshape(function(unsqueeze(a, 0), more...), {});
}

static Tensor cast_to(const char* what, const Tensor& a, std::optional<DType> dtype) {
  check_tensor(what, a);
  return dtype ? cast(a, *dtype) : a;
}

Tensor sum(const Tensor& a, const std::vector<int>& dim, bool keepdim, std::optional<DType> dtype) {
  // Sums of integers are i64 unless asked for otherwise.
  return cast_to("sum", with_dim("sum", weft::sum, cast_to("sum", a, dtype), dim, keepdim), dtype);
}
Tensor mean(const Tensor& a, const std::vector<int>& dim, bool keepdim,
            std::optional<DType> dtype) {
  return with_dim("mean", weft::mean, cast_to("mean", a, dtype), dim, keepdim);
}

using Along = ValuesAndIndices (*)(const Tensor&, int, bool);

static ValuesAndIndices pair_along(const char* what, Along function, const Tensor& a, int dim,
                                   bool keepdim) {
  check_tensor(what, a);
  return a.ndim() > 0 ? function(a, dim, keepdim) : function(unsqueeze(a, 0), dim, false);
}

ValuesAndIndices max(const Tensor& a, int dim, bool keepdim) {
  return pair_along("max", max_along, a, dim, keepdim);
}
ValuesAndIndices min(const Tensor& a, int dim, bool keepdim) {
  return pair_along("min", min_along, a, dim, keepdim);
}

using Index = Tensor (*)(const Tensor&, int, bool);

static Tensor index_of(const char* what, Index function, const Tensor& a, std::optional<int> dim,
                       bool keepdim) {
  check_tensor(what, a);
  if (dim && a.ndim() > 0) return function(a, *dim, keepdim);
  if (dim) normalized_dim(what, *dim, 1);
  const Tensor index = function(reshape(a, {a.numel()}), 0, false);
  return keepdim ? reshape(index, Shape::filled(a.ndim(), 1)) : index;
}
Tensor argmax(const Tensor& a, std::optional<int> dim, bool keepdim) {
  return index_of("argmax", weft::argmax, a, dim, keepdim);
}
Tensor argmin(const Tensor& a, std::optional<int> dim, bool keepdim) {
  return index_of("argmin", weft::argmin, a, dim, keepdim);
}

Tensor var(const Tensor& a, const std::vector<int>& dim, double correction, bool keepdim) {
  return with_dim("var", weft::var, a, dim, correction, keepdim);
}
Tensor std(const Tensor& a, const std::vector<int>& dim, double correction, bool keepdim) {
  return with_dim("std", weft::stddev, a, dim, correction, keepdim);
}

Tensor logsumexp(const Tensor& a, const std::vector<int>& dim, bool keepdim) {
  const auto function = [&](const Tensor& given) {
    const Tensor x = as_floating("logsumexp", given);  // a difference of integers may wrap
    if (dim.size() == 1) return weft::logsumexp(x, dim[0], keepdim);
    Tensor most = weft::max(x.detach(), dim, true);
    most = masked_fill(most, logical_not(isfinite(most)), 0);
    const Tensor sums = log(weft::sum(exp(weft::sub(x, most)), dim, keepdim));
    return weft::add(sums, reshape(most, sums.shape()));
  };
  return with_dim("logsumexp", function, a);
}

using OfRows = Tensor (*)(const Tensor&);

static Tensor along_rows(const char* what, OfRows function, const Tensor& a, int dim) {
  const auto along = [&](const Tensor& x) {
    const int at = normalized_dim(what, dim, x.ndim());
    if (at == x.ndim() - 1) return function(x);
    return transpose(function(transpose(x, at, -1)), at, -1);
  };
  return with_dim(what, along, a);
}
Tensor softmax(const Tensor& a, int dim) { return along_rows("softmax", weft::softmax, a, dim); }
Tensor log_softmax(const Tensor& a, int dim) {
  return along_rows("log_softmax", weft::log_softmax, a, dim);
}

Tensor cumsum(const Tensor& a, int dim) {
  return with_dim("cumsum", cumulative_sum, a, dim, false);
}
Tensor cumprod(const Tensor& a, int dim) {
  return with_dim("cumprod", cumulative_prod, a, dim, false);
}

bool equal(const Tensor& a, const Tensor& b) {
  check_tensor("equal", a, b);
  return a.shape() == b.shape() && all(weft::equal(a, b)).full_tensor().item() != 0;
}

Tensor nonzero_static(const Tensor& a, int64_t size, int64_t fill_value) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (size < 0 || size > kMost) {
    fail("nonzero_static: size is ", size, ", expected 0 to ", kMost);
  }
  const Tensor rows = argwhere(a);
  const int64_t found = std::min(size, rows.size(0));
  const Tensor first = weft::slice(rows, 0, 0, found);
  if (found == size) return first;
  return weft::cat({first, full({size - found, rows.size(1)}, static_cast<double>(fill_value),
                                options_next_to(rows, DType::i64))},
                   0);
}

/// norm(x, weight, bias) of the last dims as one.
template <class Norm>
static Tensor along_last(const char* what, const Tensor& x, const Shape& dims, const Tensor& weight,
                         const Tensor& bias, const Norm& norm) {
  check_tensor(what, x);
  const int first = x.ndim() - dims.ndim();
  if (dims.ndim() == 0 || first < 0 ||
      !std::equal(dims.begin(), dims.end(), x.shape().begin() + first)) {
    fail(what, ": normalized_shape is ", dims, ", expected the last dims of ", x.shape());
  }
  const auto flat = [&](const Tensor& given) {
    if (given && !(given.shape() == dims)) {
      fail(what, ": a parameter is ", given.shape(), ", expected ", dims, ", normalized_shape");
    }
    return given && dims.ndim() > 1 ? reshape(given, {given.numel()}) : given;
  };
  const Tensor made = norm(dims.ndim() > 1 ? flatten(x, first) : x, flat(weight), flat(bias));
  return dims.ndim() > 1 ? reshape(made, x.shape()) : made;
}

Tensor layer_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight,
                  const Tensor& bias, double eps) {
  return along_last("layer_norm", x, normalized_shape, weight, bias,
                    [&](const Tensor& flat, const Tensor& scale, const Tensor& shift) {
                      return weft::layer_norm(flat, scale, shift, eps);
                    });
}
Tensor rms_norm(const Tensor& x, const Shape& normalized_shape, const Tensor& weight, double eps) {
  return along_last("rms_norm", x, normalized_shape, weight, {},
                    [&](const Tensor& flat, const Tensor& scale, const Tensor&) {
                      return weft::rms_norm(flat, scale, eps);
                    });
}

void promote_by_dims(std::span<Tensor> operands) {
  const auto kind_of = [](const Tensor& x) {
    return is_floating(x.dtype()) ? 2 : x.dtype() == DType::boolean ? 0 : 1;
  };
  int kind = -1;
  DType dtype{};
  for (const Tensor& x : operands) {
    if (!x || x.ndim() == 0 || kind_of(x) < kind) continue;
    dtype = kind_of(x) > kind ? x.dtype() : promote(dtype, x.dtype());
    kind = kind_of(x);
  }
  for (Tensor& x : operands) {
    if (!x || x.ndim() > 0 || kind_of(x) != kind) continue;
    x = as_dtype(x, is_complex(x.dtype()) ? complex_dtype(dtype) : real_dtype(dtype));
  }
}

using OfTwo = Tensor (*)(const Tensor&, const Tensor&);
/// function(a, alpha * b), where the product has the dtype that both promote to.
static Tensor of_promoted(const char* what, OfTwo function, const Tensor& a, const Operand& b,
                          const Number& alpha = 1) {
  check_tensor(what, a);
  Tensor both[] = {a, next_to(a, b)};
  promote_by_dims(both);
  if (is_real(alpha, 1) || !both[1]) return function(both[0], both[1]);
  const DType dtype = promote(both[0].dtype(), both[1].dtype());
  return function(both[0], mul(as_dtype(both[1], dtype), alpha));
}
Tensor add(const Tensor& a, const Operand& b, Number alpha) {
  return of_promoted("add", weft::add, a, b, alpha);
}
Tensor sub(const Tensor& a, const Operand& b, Number alpha) {
  return of_promoted("sub", weft::sub, a, b, alpha);
}

Tensor div(const Tensor& a, const Operand& b, std::string_view rounding_mode) {
  check_tensor("div", a);
  const Tensor other = next_to(a, b);
  if (rounding_mode.empty()) return of_promoted("div", weft::div, a, other);
  if (rounding_mode == "floor") return floor_divide(a, other);
  if (rounding_mode != "trunc") {
    fail("div: rounding_mode is ", in_quotes(rounding_mode), ", expected floor or trunc");
  }
  if (is_floating(promote(a.dtype(), other.dtype()))) return trunc(weft::div(a, other));
  return floor_divide(weft::sub(a, fmod(a, other)), other);
}

Tensor round(const Tensor& a, int decimals) {
  if (decimals == 0) return weft::round(a);
  if (decimals < -300 || decimals > 300) {
    fail("round: decimals is ", decimals, ", expected -300 to 300");
  }
  const double scale = std::pow(10.0, std::abs(decimals));
  if (decimals > 0) return weft::div(weft::round(mul(a, scale)), scale);
  return mul(weft::round(weft::div(a, scale)), scale);
}

Tensor squeeze(const Tensor& a, const std::optional<std::vector<int>>& dims) {
  check_tensor("squeeze", a);
  int64_t chosen = dims ? 0 : -1;
  if (dims && !dims->empty()) chosen = bits_of_dims("squeeze", atleast_1d(a), *dims);
  Tensor made = a;
  for (int d = a.ndim() - 1; d >= 0; --d) {
    if (a.size(d) == 1 && (chosen >> d & 1)) made = weft::squeeze(made, d);
  }
  return made;
}

Tensor cat(Tensors tensors, int dim) {
  const auto is_nothing = [](const Tensor& one) { return one && one.shape() == Shape{0}; };
  if (!std::all_of(tensors.begin(), tensors.end(), is_nothing)) std::erase_if(tensors, is_nothing);
  return weft::cat(tensors, dim);
}

Tensor slice(const Tensor& a, int dim, std::optional<int64_t> start, std::optional<int64_t> stop,
             int64_t step) {
  const int at = checked_dim("slice", a, dim);
  return weft::slice(a, at, start.value_or(0), stop.value_or(a.size(at)), step);
}

Tensor tensordot(const Tensor& a, const Tensor& b, const std::vector<int>& dims_of_a,
                 const std::vector<int>& dims_of_b) {
  check_tensor("tensordot", a, b);
  Tensor x = a, y = b;
  for (size_t i = 0; i < std::min(dims_of_a.size(), dims_of_b.size()); ++i) {
    const int p = normalized_dim("tensordot", dims_of_a[i], a.ndim());
    const int q = normalized_dim("tensordot", dims_of_b[i], b.ndim());
    if (x.size(p) == 1 && y.size(q) != 1) y = weft::sum(y, {q}, true);
    if (y.size(q) == 1 && x.size(p) != 1) x = weft::sum(x, {p}, true);
  }
  return weft::tensordot(x, y, dims_of_a, dims_of_b);
}

static constexpr const char* kAttention = "scaled_dot_product_attention";

static Tensor sequence_first(const char* name, const Tensor& x) {
  check_tensor(kAttention, x);
  if (x.ndim() != 4) {
    fail(kAttention, ": ", name, " is ", x.shape(), ", expected [batch, heads, sequence, d]");
  }
  return x.transpose(1, 2);
}

Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const Tensor& attn_mask, double dropout_p, bool is_causal,
                                    std::optional<double> scale, bool) {
  if (is_causal && attn_mask) {
    fail(kAttention, ": is_causal and attn_mask are given, expected one");
  }
  Tensor q = sequence_first("query", query);
  const Tensor k = sequence_first("key", key), v = sequence_first("value", value);
  if (is_causal && q.size(1) != k.size(1)) {
    fail(kAttention, ": number of queries is ", q.size(1), ", expected ", k.size(1),
         ", that of keys, for is_causal");
  }
  if (scale == 0.0) q = mul(q, 0), scale = 1;  // 0 stands for the default there
  const bool drops_all = dropout_p == 1;
  const Tensor made = attention(q, k, v,
                                {.causal = is_causal,
                                 .scale = scale.value_or(0),
                                 .mask = attn_mask,
                                 .dropout = drops_all ? 0 : dropout_p});
  return (drops_all ? mul(made, 0) : made).transpose(1, 2);
}

}  // namespace weft::torch
