// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/scatter.h"

#include <algorithm>

#include "ops/engine/tensor_body.h"
#include "ops/composed/scatter_shapes.h"
#include "ops/take.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/parts.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"

namespace weft {

Tensor index_along(const char* what, const Tensor& a, int dim, const Tensor& index) {
  check_tensor(what, index);
  if (index.ndim() > 1) fail(what, ": index is ", index.shape(), ", expected one dim");
  Shape shape = Shape::filled(a.ndim(), 1);
  shape[dim] = index.numel();
  return reshape(index, shape);
}

Tensor counts_of(const Tensor& index, int dim, int64_t size) {
  return add_along_dim(ones_like(cast(index, DType::i32)), index, dim, size);
}

Tensor padded(Tensor x, const Tensor& a, int dim) {
  for (int d = 0; d < a.ndim(); ++d) {
    if (d != dim && x.size(d) < a.size(d)) x = pad(x, d, 0, a.size(d) - x.size(d));
  }
  return x;
}

static void check_distinct(const char* what, const Tensor& counts) {
  if (counts.numel() == 0 || max(counts).full_tensor().item() <= 1) return;
  fail(what, ": two indices are equal, expected distinct ones");
}

Tensor index_add(const Tensor& a, int dim, const Tensor& index, const Tensor& src, Number alpha) {
  check_tensor("index_add", a);
  if (a.ndim() == 0) {
    return reshape(index_add(unsqueeze(a, 0), 0, index, reshape(src, {1}), alpha), {});
  }
  const int at = normalized_dim("index_add", dim, a.ndim());
  const Tensor scaled = alpha.value == 1 ? src : mul(src, alpha);
  const Tensor indices = index_along("index_add", a, at, index);
  return add(a, add_along_dim(scaled, expand(indices, src.shape()), at, a.size(at)));
}

Tensor index_copy(const Tensor& a, int dim, const Tensor& index, const Tensor& src) {
  check_tensor("index_copy", a);
  if (a.ndim() == 0) {
    return reshape(index_copy(unsqueeze(a, 0), 0, index, reshape(src, {1})), {});
  }
  const int at = normalized_dim("index_copy", dim, a.ndim());
  const Tensor indices = index_along("index_copy", a, at, index);
  const Tensor counts = counts_of(indices, at, a.size(at));
  check_distinct("index_copy", counts);
  const Tensor placed = add_along_dim(src, expand(indices, src.shape()), at, a.size(at));
  return where(greater(counts, 0), placed, a);
}

Tensor index_fill(const Tensor& a, int dim, const Tensor& index, const Operand& value) {
  check_tensor("index_fill", a);
  if (a.ndim() == 0) return reshape(index_fill(unsqueeze(a, 0), 0, index, value), {});
  const int at = normalized_dim("index_fill", dim, a.ndim());
  const Tensor counts = counts_of(index_along("index_fill", a, at, index), at, a.size(at));
  return masked_fill(a, greater(counts, 0), value);
}

int check_scatter(const char* what, const Tensor& a, int dim, const Tensor& index,
                  const Shape& src) {
  check_tensor(what, index);
  const int at = normalized_dim(what, dim, a.ndim());
  if (index.ndim() != a.ndim() || src.ndim() != a.ndim()) {
    fail(what, ": index is ", index.shape(), " and src ", src, ", expected as many dims as ",
         a.shape(), " has");
  }
  for (int d = 0; d < a.ndim(); ++d) {
    if (index.size(d) <= src[d] && (d == at || index.size(d) <= a.size(d))) continue;
    fail(what, ": index is ", index.shape(), ", expected at most ", std::min(src[d], a.size(d)),
         " in dim ", d);
  }
  return at;
}

Tensor cut_to(Tensor x, const Shape& shape) {
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) > shape[d]) x = slice(x, d, 0, shape[d]);
  }
  return x;
}

Tensor scatter_add(const Tensor& a, int dim, const Tensor& index, const Tensor& src) {
  check_tensor("scatter_add", a);
  check_tensor("scatter_add", src);
  if (a.ndim() == 0) {
    return reshape(
        scatter_add(unsqueeze(a, 0), 0, reshape(index, {index.numel()}), reshape(src, {1})), {});
  }
  const int at = check_scatter("scatter_add", a, dim, index, src.shape());
  if (index.numel() == 0) return clone(a);
  const Tensor added = add_along_dim(cut_to(src, index.shape()), index, at, a.size(at));
  return add(a, padded(added, a, at));
}

Tensor scatter_along_dim(const Tensor& a, int dim, const Tensor& index, const Operand& src) {
  check_tensor("scatter", a);
  if (a.ndim() == 0) {
    const Operand one = src.is_number() ? src : Operand(reshape(src.tensor, {1}));
    return reshape(scatter_along_dim(unsqueeze(a, 0), 0, reshape(index, {index.numel()}), one), {});
  }
  const int at =
      check_scatter("scatter", a, dim, index, src.is_number() ? index.shape() : src.tensor.shape());
  if (index.numel() == 0) return clone(a);
  const Tensor counts = counts_of(index, at, a.size(at));
  const Tensor mask = greater(padded(counts, a, at), 0);
  if (src.is_number()) return masked_fill(a, mask, src);
  check_distinct("scatter", counts);
  const Tensor placed = add_along_dim(cut_to(src.tensor, index.shape()), index, at, a.size(at));
  return where(mask, padded(placed, a, at), a);
}

Tensor select_scatter(const Tensor& a, const Tensor& src, int dim, int64_t index) {
  check_tensor("select_scatter", a);
  const int at = normalized_dim("select_scatter", dim, a.ndim());
  const int64_t size = a.size(at), place = index < 0 ? index + size : index;
  if (place < 0 || place >= size) {
    fail("select_scatter: index is ", index, ", expected one of the ", size, " of dim ", at);
  }
  return slice_scatter(a, unsqueeze(src, at), at, place, place + 1);
}

Tensor slice_scatter(const Tensor& a, const Tensor& src, int dim, int64_t start, int64_t stop,
                     int64_t step) {
  check_tensor("slice_scatter", a);
  const int at = normalized_dim("slice_scatter", dim, a.ndim());
  if (step < 1) fail("slice_scatter: step is ", step, ", expected at least 1");
  const int64_t size = a.size(at);
  const auto place = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + size : i, 0, size); };
  const int64_t first = place(start), last = std::max(first, place(stop));
  const int64_t count = (last - first + step - 1) / step;
  if (count == 0) return clone(a);
  Shape expected = a.shape();
  expected[at] = count;
  if (!(src.shape() == expected)) {
    fail("slice_scatter: src is ", src.shape(), ", expected ", expected);
  }
  TensorOptions options{.dtype = DType::i64, .device = a.device()};
  if (a.is_sharded()) options.sharding = Sharding(a.sharding().mesh(), {});
  return index_copy(a, at,
                    arange(static_cast<double>(first), static_cast<double>(last),
                           static_cast<double>(step), options),
                    src);
}

}  // namespace weft
