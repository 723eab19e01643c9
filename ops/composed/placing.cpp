// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/placing.h"

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "weft/error.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/indexing.h"
#include "weft/ops/networks.h"
#include "weft/ops/parts.h"
#include "weft/ops/reductions.h"
#include "weft/ops/scatter.h"
#include "weft/ops/shapes.h"

namespace weft {

static Tensor flattened(const Tensor& a) { return reshape(a, {a.numel()}); }

Tensor masked_scatter(const Tensor& a, const Tensor& mask, const Tensor& src) {
  check_tensor("masked_scatter", a, src);
  check_mask("masked_scatter", mask);
  const Tensors both = broadcast_tensors({a, mask});
  if (both[0].numel() == 0) return clone(both[0]);
  const Tensor places = sub(cumulative_sum(flattened(both[1]), 0), 1);
  const auto count = static_cast<int64_t>(max(places).full_tensor().item()) + 1;
  if (count > src.numel()) {
    fail("masked_scatter: number of elements of src is ", src.numel(), ", expected at least ",
         count, ", those of the mask that hold");
  }
  if (count == 0) return clone(both[0]);
  const Tensor values = take(flattened(src), clip(places, 0), 0);
  return where(both[1], reshape(values, both[0].shape()), both[0]);
}

Tensor put(const Tensor& a, const Tensor& index, const Tensor& src, bool accumulate) {
  check_tensor("put", a, index, src);
  if (index.numel() != src.numel()) {
    fail("put: number of elements of src is ", src.numel(), ", expected ", index.numel(),
         ", that of the index");
  }
  if (index.numel() == 0) return clone(a);
  return reshape(index_put(flattened(a), {{0, as_indices("put", "index", flattened(index))}},
                           flattened(src), accumulate),
                 a.shape());
}

Tensor take_flat(const Tensor& a, const Tensor& index) {
  check_tensor("take", a, index);
  return reshape(take(flattened(a), flattened(index), 0), index.shape());
}

/// The number of each element of a tensor of this shape, in row-major order.
static Tensor element_numbers(const Tensor& a) {
  return reshape(numbers_next_to(a, 0, a.numel()), a.shape());
}

static Tensor with_elements(const char* what, const Tensor& a, const Tensor& places,
                            const Tensor& src) {
  check_tensor(what, src);
  if (places.shape() == src.shape()) return put(a, places, src);
  fail(what, ": src is ", src.shape(), ", expected ", places.shape());
}

Tensor diagonal_scatter(const Tensor& a, const Tensor& src, int64_t offset, int dim1, int dim2) {
  check_tensor("diagonal_scatter", a);
  return with_elements("diagonal_scatter", a, diagonal(element_numbers(a), offset, dim1, dim2),
                       src);
}

static Tensor strided_places(const Tensor& a, const Shape& sizes,
                             const std::vector<int64_t>& strides, int64_t offset) {
  check_tensor("as_strided", a);
  if (sizes.ndim() != static_cast<int>(strides.size())) {
    fail("as_strided: number of strides is ", strides.size(), ", expected ", sizes.ndim());
  }
  Tensor places = full({}, static_cast<double>(offset), options_next_to(a, DType::i64));
  int64_t last = offset;
  for (int d = 0; d < sizes.ndim(); ++d) {
    const int64_t stride = strides[static_cast<size_t>(d)];
    // Bounds that no product below can exceed.
    if (sizes[d] < 0 || stride < 0 || sizes[d] > a.numel() || stride > a.numel()) {
      fail("as_strided: size and stride of dim ", d, " are ", sizes[d], " and ", stride,
           ", expected 0 to ", a.numel(), ", the number of elements");
    }
    last += (sizes[d] - 1) * stride;
    places = add(unsqueeze(places, -1), mul(numbers_next_to(a, 0, sizes[d]), stride));
  }
  if (places.numel() > 0 && (offset < 0 || last >= a.numel())) {
    fail("as_strided: elements are ", offset, " to ", last, ", expected 0 to ", a.numel() - 1);
  }
  return places;
}

Tensor as_strided(const Tensor& a, const Shape& sizes, const std::vector<int64_t>& strides,
                  int64_t offset) {
  return take_flat(a, strided_places(a, sizes, strides, offset));
}
Tensor as_strided_scatter(const Tensor& a, const Tensor& src, const Shape& sizes,
                          const std::vector<int64_t>& strides, int64_t offset) {
  return with_elements("as_strided_scatter", a, strided_places(a, sizes, strides, offset), src);
}

Tensor fill(const Tensor& a, const Operand& value) {
  check_tensor("fill", a);
  const Tensor one = value.is_number() ? next_to(a, value) : value.tensor;
  check_tensor("fill", one);
  if (one.ndim() != 0) fail("fill: value is ", one.shape(), ", expected a tensor without dims");
  return where(not_equal(zeros_like(a), 0), zeros_like(a), cast(one, a.dtype()));
}

Tensor embedding_bag(const Tensor& weight, const Tensor& ids, const std::optional<Tensor>& offsets,
                     std::string_view mode, const std::optional<Tensor>& scales) {
  check_tensor("embedding_bag", weight, ids);
  if (mode != "sum" && mode != "mean" && mode != "max") {
    fail("embedding_bag: mode is ", in_quotes(mode), ", expected sum, mean or max");
  }
  if (ids.ndim() != (offsets ? 1 : 2)) {
    fail("embedding_bag: ids are ", ids.shape(), ", expected ", offsets ? 1 : 2, " dims ",
         offsets ? "with" : "without", " offsets");
  }
  if (scales && scales->shape() != ids.shape()) {
    fail("embedding_bag: scales are ", scales->shape(), ", expected ", ids.shape());
  }
  if (offsets && (offsets->ndim() != 1 || offsets->numel() == 0 ||
                  slice(*offsets, 0, 0, 1).full_tensor().item() != 0)) {
    fail("embedding_bag: offsets are ", offsets->shape(), ", expected a vector that starts with 0");
  }
  const int64_t bags = offsets ? offsets->numel() : ids.size(0);
  const Tensor bag =
      offsets ? sub(searchsorted(*offsets, numbers_next_to(ids, 0, ids.size(0)), true), 1)
              : flattened(expand(unsqueeze(numbers_next_to(ids, 0, bags), 1), ids.shape()));
  Tensor rows = embedding(weight, flattened(ids));
  if (scales) rows = mul(rows, unsqueeze(flattened(*scales), 1));
  const Tensor none = zeros({bags, weight.size(1)}, options_next_to(weight, weight.dtype()));
  return index_reduce(none, 0, bag, rows, std::string(mode == "max" ? "amax" : mode), false);
}

}  // namespace weft
