// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <vector>

#include "ops/decompositions.h"
#include "ops/engine/tensor_body.h"
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

/// Returns the greatest of each number on all ranks.
static std::vector<double> greatest_of(const std::vector<double>& own, const DeviceMesh& mesh) {
  const std::vector<Placement> kinds(static_cast<size_t>(mesh.ndim()), Partial(ReduceOp::max));
  const Shape shape{static_cast<int64_t>(own.size())};
  const Tensor part = from_values(own, shape, {.dtype = DType::f64, .device = mesh.device()});
  const Sharding sharding(mesh, Placements(kinds));
  return relabeled(part, layout_of(sharding, shape, DType::f64)).full_tensor().to_vector<double>();
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
  const std::vector<double> greatest = greatest_of(sums, mesh);
  bool differ = false;
  for (size_t i = 0; i < allowed.size(); ++i) {
    // The greatest sum and the least one; a NaN differs from all.
    differ = differ || !(greatest[2 * i] + greatest[2 * i + 1] <= allowed[i]);
  }
  // The bounds follow from each rank's values, so that the ranks decide together.
  if (greatest_of({differ ? 1.0 : 0.0}, mesh)[0] == 0) return results;
  for (const Tensor& result : results) {
    copy(result.block(), scatter(result.local(), mesh, {}).local().block());
  }
  return results;
}

}  // namespace weft
