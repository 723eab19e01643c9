// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "ops/engine/tensor_body.h"
#include "ops/promotion.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/factories.h"

namespace weft {

/// Makes a tensor of `values`, Replicate over the mesh of `a` and on its device.
template <class T>
static Tensor replicated_with(const Tensor& a, std::vector<T> values, const Shape& shape,
                              DType dtype = DType::i64) {
  TensorOptions options{.dtype = dtype};
  if (a.is_sharded()) options.sharding = Sharding(a.sharding().mesh(), {});
  const Tensor made = empty(shape, options);
  constexpr DType kFrom = std::is_same_v<T, double> ? DType::f64 : DType::i64;
  copy(made.block(), dense_block(values.data(), kFrom, shape));
  return made.to(a.device());
}

static Shape shape_of(size_t elements) { return {static_cast<int64_t>(elements)}; }

template <class T>
static std::vector<T> values_of(const char* what, const Tensor& a) {
  check_tensor(what, a);
  return a.detach().full_tensor().to_vector<T>();
}

/// Calls `function.operator()<T>()` with the type that holds all values of the dtype.
template <class Function>
static auto in_exact_type(DType dtype, const Function& function) {
  return is_floating(dtype) ? function.template operator()<double>()
                            : function.template operator()<int64_t>();
}

/// NaN is the greatest value.
template <class T>
static bool comes_before(T a, T b) {
  return a < b || (b != b && a == a);
}

Tensors nonzero(const Tensor& a) {
  const std::vector<double> values = values_of<double>("nonzero", a);
  if (a.ndim() == 0) fail("nonzero: number of dims is 0, expected at least 1");
  std::vector<std::vector<int64_t>> indices(static_cast<size_t>(a.ndim()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    auto rest = static_cast<int64_t>(i);
    for (int d = a.ndim() - 1; d >= 0; --d) {
      indices[static_cast<size_t>(d)].push_back(rest % a.size(d));
      rest /= a.size(d);
    }
  }
  Tensors results;
  for (auto& found : indices) {
    const Shape shape = shape_of(found.size());
    results.push_back(replicated_with(a, std::move(found), shape));
  }
  return results;
}

/// Returns the stable order of the values.
template <class T>
static std::vector<int64_t> order_of(const std::vector<T>& values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
    return comes_before(values[static_cast<size_t>(i)], values[static_cast<size_t>(j)]);
  });
  return order;
}

template <class T>
static Tensor searched(const Tensor& sorted, const Tensor& a, bool right, const Tensor& sorter) {
  std::vector<T> from = values_of<T>("searchsorted", sorted);
  if (sorter) {
    const std::vector<T> unsorted = from;
    const auto order = values_of<int64_t>("searchsorted", sorter);
    from.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i] < 0 || order[i] >= sorted.numel()) {
        fail("searchsorted: an index of sorter is ", order[i], ", expected one of ",
             sorted.shape());
      }
      from[i] = unsorted[static_cast<size_t>(order[i])];
    }
  }
  std::vector<int64_t> found;
  for (const T value : values_of<T>("searchsorted", a)) {
    const auto at = right ? std::upper_bound(from.begin(), from.end(), value, comes_before<T>)
                          : std::lower_bound(from.begin(), from.end(), value, comes_before<T>);
    found.push_back(at - from.begin());
  }
  return replicated_with(a, std::move(found), a.shape());
}

Tensor searchsorted(const Tensor& sorted, const Tensor& a, bool right, const Tensor& sorter) {
  check_tensor("searchsorted", sorted);
  check_tensor("searchsorted", a);
  if (sorted.ndim() != 1) {
    fail("searchsorted: the sorted tensor is ", sorted.shape(), ", expected one dim");
  }
  return in_exact_type(promote(sorted.dtype(), a.dtype()),
                       [&]<class T>() { return searched<T>(sorted, a, right, sorter); });
}

Unique unique(const Tensor& a) {
  check_tensor("unique", a);
  return in_exact_type(a.dtype(), [&]<class T>() {
    const std::vector<T> all = values_of<T>("unique", a);
    std::vector<T> values;
    std::vector<int64_t> indices, counts, inverse(all.size());
    for (const int64_t i : order_of(all)) {
      const T value = all[static_cast<size_t>(i)];
      if (values.empty() || values.back() != value) {
        values.push_back(value);
        indices.push_back(i);
        counts.push_back(0);
      }
      ++counts.back();
      inverse[static_cast<size_t>(i)] = static_cast<int64_t>(values.size()) - 1;
    }
    const Shape shape = shape_of(values.size());
    return Unique{replicated_with(a, std::move(values), shape, a.dtype()),
                  replicated_with(a, std::move(indices), shape),
                  replicated_with(a, std::move(inverse), a.shape()),
                  replicated_with(a, std::move(counts), shape)};
  });
}

}  // namespace weft
