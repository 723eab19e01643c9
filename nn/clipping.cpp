// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "nn/adjacency.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/mesh.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/reductions.h"
#include "weft/ops/updates.h"
#include "weft/optimizers.h"

namespace weft {

namespace {

/// Gradients over one mesh (an absent one: of one device).
struct MeshGradients {
  DeviceMesh mesh;
  Tensors gradients;
  /// Axes along which some gradient is cut.
  std::vector<bool> cut;
};

}  // namespace

static Tensors gradients_of(const std::vector<ParameterPtr>& parameters) {
  Tensors gradients;
  for (const ParameterPtr& parameter : parameters) {
    if (Tensor gradient = parameter->grad()) gradients.push_back(std::move(gradient));
  }
  if (gradients.empty()) {
    fail("gradient norm: none of the ", parameters.size(), " parameters has a gradient");
  }
  return gradients;
}

static std::vector<MeshGradients> by_mesh(const Tensors& gradients) {
  std::vector<MeshGradients> meshes;
  for (const Tensor& gradient : gradients) {
    const Sharding sharding = gradient.sharding();
    if (sharding && sharding.has_partial()) {
      fail("gradient norm: a gradient ", gradient.shape(), " is laid out as ", sharding,
           "; its parts are not added up yet");
    }
    const DeviceMesh mesh = sharding ? sharding.mesh() : DeviceMesh();
    auto found = std::find_if(meshes.begin(), meshes.end(),
                              [&](const MeshGradients& other) { return other.mesh == mesh; });
    if (found == meshes.end()) {
      meshes.push_back({mesh, {}, std::vector<bool>(sharding ? sharding.axes() : 0)});
      found = meshes.end() - 1;
    }
    found->gradients.push_back(gradient);
    for (size_t axis = 0; axis < found->cut.size(); ++axis) {
      if (sharding[static_cast<int>(axis)].is_shard()) found->cut[axis] = true;
    }
  }
  return meshes;
}

/// Along a cut axis the ranks' sums are added up; what is whole along it counts on its first rank.
static bool counts_here(const MeshGradients& of, const Tensor& gradient) {
  for (size_t axis = 0; axis < of.cut.size(); ++axis) {
    const int number = static_cast<int>(axis);
    const bool is_whole = !gradient.sharding()[number].is_shard();
    if (of.cut[axis] && is_whole && of.mesh.coordinate(number) > 0) return false;
  }
  return true;
}

/// This rank's part of the sum of squares.
static Tensor local_squares(const MeshGradients& of) {
  std::vector<size_t> counted;
  for (size_t i = 0; i < of.gradients.size(); ++i) {
    if (counts_here(of, of.gradients[i])) counted.push_back(i);
  }
  Tensor sum = zeros({}, {.device = of.gradients[0].device()});
  for (const Run& run :
       adjacent_runs({&of.gradients}, counted, [](size_t, size_t) { return true; })) {
    sum = sum + sum_squares(flat(of.gradients, run)).to(f32);
  }
  return sum;
}

static Tensor squares(const MeshGradients& of) {
  const Tensor local = local_squares(of);
  if (std::find(of.cut.begin(), of.cut.end(), true) == of.cut.end()) return local;
  std::vector<Placement> placements;
  for (const bool cut : of.cut) {
    placements.push_back(cut ? Placement(Partial()) : Placement(Replicate()));
  }
  return from_local(local, of.mesh, Placements(placements), {}).full_tensor();
}

Tensor gradient_norm(const std::vector<ParameterPtr>& parameters) {
  NoGrad no_grad;
  Tensor sum;
  for (const MeshGradients& mesh : by_mesh(gradients_of(parameters))) {
    const Tensor part = squares(mesh);
    sum = sum ? sum + part : part;
  }
  return sqrt(sum);
}

Tensor clip_scale(const Tensor& norm, double max_norm) {
  if (!(max_norm > 0)) fail("clip: the greatest norm ", max_norm, " is not positive");
  NoGrad no_grad;
  const Tensor one = ones(norm.shape(), {.device = norm.device(), .sharding = norm.sharding()});
  return minimum(max_norm / (norm + 1e-6), one);
}

double clip_grad_norm(const std::vector<ParameterPtr>& parameters, double max_norm) {
  const Tensor norm = gradient_norm(parameters);
  const Tensor scale = clip_scale(norm, max_norm);
  const double before = norm.item();
  if (scale.item() == 1) return before;
  NoGrad no_grad;
  const Tensors gradients = gradients_of(parameters);
  std::vector<size_t> all;
  for (size_t i = 0; i < gradients.size(); ++i) all.push_back(i);
  for (const Run& run : adjacent_runs({&gradients}, all, [](size_t, size_t) { return true; })) {
    scale_(flat(gradients, run), scale);
  }
  return before;
}

}  // namespace weft
