// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <complex>
#include <vector>

#include "ops/decompositions.h"
#include "src/kernels/copy/copy.h"
#include "weft/context.h"
#include "weft/extend/hash.h"
#include "weft/ops.h"

namespace weft {

static constexpr int kSums = 2;

/// Sums of the values with signs that look random, and how much rounding may change them.
static void add_sums(const Tensor& part, std::vector<double>& sums, std::vector<double>& allowed) {
  const std::vector<double> values = part.to_vector<double>();
  double all = 0;
  for (const double value : values) all += std::abs(value);
  const double eps = part.dtype() == DType::f64 ? 0x1p-52 : 0x1p-23;
  for (uint64_t sum = 0; sum < kSums; ++sum) {
    double total = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool is_negative = (mixed(sum, i) >> 40 & 1) != 0;
      total += is_negative ? -values[i] : values[i];
    }
    sums.insert(sums.end(), {total, -total});
    allowed.push_back(is_floating(part.dtype()) ? 64 * eps * all : 0);
  }
}

Tensors agreed(Tensors results) {
  const Tensor& first = results[0];
  if (!first.is_sharded() || !first.sharding().is_replicated()) return results;
  const DeviceMesh mesh = first.sharding().mesh();
  if (mesh.size() == 1 || first.device().kind == DeviceKind::meta) return results;
  const NoGrad no_grad;
  std::vector<double> sums, allowed;
  for (const Tensor& result : results) {
    const Tensor part = result.local();
    add_sums(is_complex(part.dtype()) ? view_as_real(part) : part, sums, allowed);
  }
  const std::vector<Placement> kinds(static_cast<size_t>(mesh.ndim()), Partial(ReduceOp::max));
  const auto count = static_cast<int64_t>(sums.size());
  const Tensor bounds =
      from_local(from_values(sums, {count}, {.dtype = DType::f64}), mesh, Placements(kinds));
  const std::vector<double> greatest = bounds.full_tensor().to_vector<double>();
  bool differ = false;
  for (size_t i = 0; i < allowed.size(); ++i) {
    // The greatest sum and the least one; a NaN differs from all.
    differ = differ || !(greatest[2 * i] + greatest[2 * i + 1] <= allowed[i]);
  }
  // Sums of rounding errors differ between ranks, so that one of them decides.
  const std::vector<double> flag = {differ ? 1.0 : 0.0};
  const Tensor any =
      from_local(from_values(flag, {1}, {.dtype = DType::f64}), mesh, Placements(kinds));
  if (any.full_tensor().item() == 0) return results;
  for (const Tensor& result : results) {
    copy(result.block(), scatter(result.local(), mesh, {}).local().block());
  }
  return results;
}

}  // namespace weft
