// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "nn/parameter_memory.h"
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

namespace {

/// A root mesh, and whether some tensor is sharded over it.
struct CutMesh {
  DeviceMesh mesh;
  bool cuts;
};

}  // namespace

static std::vector<CutMesh> cut_meshes(const char* what, const Tensors& tensors) {
  std::vector<CutMesh> meshes;
  for (const Tensor& tensor : tensors) {
    const Sharding sharding = tensor.sharding();
    if (!sharding) continue;
    if (sharding.has_partial()) {
      fail(what, ": a gradient ", tensor.shape(), " is laid out as ", sharding,
           ", expected no Partial");
    }
    const DeviceMesh mesh = sharding.mesh();
    auto found = std::find_if(meshes.begin(), meshes.end(),
                              [&](const CutMesh& other) { return other.mesh == mesh; });
    if (found == meshes.end()) {
      meshes.push_back({mesh, false});
      found = meshes.end() - 1;
    }
    for (int axis = 0; axis < mesh.ndim(); ++axis) {
      found->cuts |= sharding[axis].is_shard() && mesh.axis_size(axis) > 1;
    }
  }
  return meshes;
}

/// Returns the ranks of the largest mesh, which must include those of the other meshes. Of equally
/// large meshes it prefers one over which a tensor is sharded.
static Communicator widest_ranks(const char* what, const std::vector<CutMesh>& meshes) {
  const auto width = [](const CutMesh& of) { return std::pair(of.mesh.size(), of.cuts); };
  const CutMesh* widest = &meshes[0];
  for (const CutMesh& other : meshes) {
    if (width(other) > width(*widest)) widest = &other;
  }
  const Communicator ranks = widest->mesh.communicator();
  for (const CutMesh& other : meshes) {
    const Communicator others = other.mesh.communicator();
    // Ranks might choose differently among equally large meshes with different communicators.
    const bool is_ambiguous = width(other) == width(*widest) && other.cuts && !(others == ranks);
    if (ranks.contains(others) && !is_ambiguous) continue;
    fail(what, ": tensors are laid out over ", widest->mesh, " of ", ranks.name(), " and over ",
         other.mesh, " of ", others.name(), ", expected ranks of which one has all of the other");
  }
  return ranks;
}

/// True on the first of the ranks that hold the same elements.
static bool is_first_holder(const Sharding& sharding) {
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (!sharding[axis].is_shard() && mesh.coordinate(axis) > 0) return false;
  }
  return true;
}

SquaresReduction::SquaresReduction(const char* what, const Tensors& tensors)
    : counts_(tensors.size(), true) {
  const std::vector<CutMesh> meshes = cut_meshes(what, tensors);
  if (meshes.empty()) return;
  ranks_ = widest_ranks(what, meshes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Sharding sharding = tensors[i].sharding();
    counts_[i] = sharding ? is_first_holder(sharding) : ranks_.rank() == 0;
  }
}

void SquaresReduction::reduce(const Tensor& sums) const {
  if (!ranks_ || ranks_.size() == 1) return;
  const int64_t count = sums.numel();
  void* data = sums.block().data;
  const Piece piece{.send = data,
                    .recv = data,
                    .dtype = sums.dtype(),
                    .counts = {&count, 1},
                    .device = sums.device()};
  ranks_.all_reduce({&piece, 1}, ReduceOp::sum).wait();
  sums.storage()->mark_changed();
}

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
  for (const Run& run : adjacent_runs({&gradients}, counted)) {
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
  std::vector<size_t> all(gradients.size());
  std::iota(all.begin(), all.end(), size_t{0});
  // Those on disk pass through memory one by one.
  const auto may_follow = [&](size_t first, size_t) { return !rests_on_disk(gradients[first]); };
  for (const Run& run : adjacent_runs({&gradients}, all, may_follow)) {
    const Tensor &first = gradients[run[0]], read = in_memory(first);
    const Tensor part = rests_on_disk(first) ? read.local() : flat(gradients, run);
    scale_(part, scale.to(part.dtype() == f64 ? f64 : f32).to(part.device()));
    if (rests_on_disk(first)) write_to_disk(first, read);
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
