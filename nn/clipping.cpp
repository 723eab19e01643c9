// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "nn/adjacency.h"
#include "nn/squares.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/reductions.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

namespace weft {

static Tensors gradients_of(const std::vector<ParameterPtr>& parameters) {
  Tensors gradients;
  for (const ParameterPtr& parameter : parameters) {
    if (Tensor gradient = parameter->grad()) gradients.push_back(std::move(gradient));
  }
  if (gradients.empty()) {
    fail("gradient norm: number of gradients is 0, expected at least one of ", parameters.size());
  }
  return gradients;
}

Tensor gradient_norm(const std::vector<ParameterPtr>& parameters) {
  NoGrad no_grad;
  const Tensors gradients = gradients_of(parameters);
  const SquaresReduction reduction("gradient norm", gradients);
  std::vector<size_t> counted;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (reduction.counts_here(i)) counted.push_back(i);
  }
  const bool exact = std::any_of(gradients.begin(), gradients.end(),
                                 [](const Tensor& gradient) { return gradient.dtype() == f64; });
  const DType dtype = exact ? f64 : f32;
  Tensor sum = zeros({}, {.dtype = dtype, .device = gradients[0].device()});
  for (const Run& run : adjacent_runs({&gradients}, counted, [](size_t, size_t) { return true; })) {
    sum = sum + sum_squares(copied_flat(gradients, run)).to(dtype).to(sum.device());
  }
  // In f64 on all ranks: other ranks may have gradients of another dtype.
  sum = sum.to(f64);
  reduction.reduce(sum);
  return sqrt(sum).to(dtype);
}

/// Returns min(1, max_norm / (norm + 1e-6)) in the norm's dtype.
static Tensor factor_to(double max_norm, const Tensor& norm) {
  if (!(max_norm > 0)) fail("clip: max_norm is ", max_norm, ", expected one above 0");
  const Tensor one = ones(
      norm.shape(), {.dtype = norm.dtype(), .device = norm.device(), .sharding = norm.sharding()});
  return minimum(max_norm / (norm + 1e-6), one);
}

Tensor clip_scale(const Tensor& norm, double max_norm) {
  NoGrad no_grad;
  return factor_to(max_norm, norm).to(f32);
}

double clip_grad_norm(const std::vector<ParameterPtr>& parameters, double max_norm) {
  NoGrad no_grad;
  const Tensor norm = gradient_norm(parameters);
  const Tensor scale = factor_to(max_norm, norm);
  const double before = norm.item();
  if (scale.item() == 1) return before;
  const Tensors gradients = gradients_of(parameters);
  std::vector<size_t> all;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!rests_on_disk(gradients[i])) {
      all.push_back(i);
      continue;
    }
    const Tensor part = in_memory(gradients[i]);
    scale_(part.local(), scale.to(part.dtype() == f64 ? f64 : f32).to(part.device()));
    write_to_disk(gradients[i], part);
  }
  for (const Run& run : adjacent_runs({&gradients}, all, [](size_t, size_t) { return true; })) {
    const Tensor part = flat(gradients, run);
    scale_(part, scale.to(part.dtype() == f64 ? f64 : f32).to(part.device()));
  }
  return before;
}

void clip_grad_value(const std::vector<ParameterPtr>& parameters, double clip_value) {
  NoGrad no_grad;
  for (const ParameterPtr& parameter : parameters) {
    const Tensor gradient = parameter->grad();
    if (!gradient) continue;
    const Tensor part = in_memory(gradient);
    clamp_(part, -clip_value, clip_value);
    if (rests_on_disk(gradient)) write_to_disk(gradient, part);
  }
}

}  // namespace weft
