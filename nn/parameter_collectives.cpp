// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "nn/parameter_memory.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/hash.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/replicas.h"
#include "weft/extend/subject.h"
#include "weft/extend/views.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/reductions.h"
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
    auto found = std::ranges::find(meshes, mesh, &CutMesh::mesh);
    if (found == meshes.end()) found = meshes.insert(found, {mesh, false});
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

SquaresReduction::SquaresReduction(const char* what, const Tensors& tensors, uint64_t model)
    : what_(what), model_(model), counts_(tensors.size(), true) {
  const std::vector<CutMesh> meshes = cut_meshes(what, tensors);
  if (meshes.empty()) return;
  ranks_ = widest_ranks(what, meshes);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Sharding sharding = tensors[i].sharding();
    counts_[i] = sharding ? is_first_holder(sharding) : ranks_.rank() == 0;
  }
}

void SquaresReduction::reduce(const Tensor& sums, ReduceOp op) const {
  if (!ranks_ || ranks_.size() == 1) return;
  const SubjectScope subject(model_, what_);
  const int64_t count = sums.numel();
  void* data = sums.block().data;
  const Piece piece{.send = data,
                    .recv = data,
                    .dtype = sums.dtype(),
                    .counts = {&count, 1},
                    .device = sums.device()};
  ranks_.all_reduce({&piece, 1}, op).wait();
  mark_written(sums);
}

void SquaresReduction::reduce_numbers(std::span<int64_t> numbers, ReduceOp op) const {
  if (!ranks_ || ranks_.size() == 1) return;
  const SubjectScope subject(model_, what_);
  ranks_.all_reduce_numbers(numbers, op);
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

/// Returns the sum of |x|^order over local elements, or the greatest |x| for infinity.
static Tensor norm_part(const Tensor& local, double order, DType dtype) {
  if (order == 2) return sum_squares(local).to(dtype);
  const Tensor sizes = abs(local).to(dtype);
  if (order == 1) return sum(sizes);
  return std::isinf(order) ? max(sizes) : sum(pow(sizes, order));
}

static Tensor norm_of(const Tensors& tensors, double order, uint64_t model) {
  if (!(order > 0)) fail("gradient norm: norm_type is ", order, ", expected one above 0");
  if (tensors.empty()) return zeros({}, {.dtype = f32});
  NoGrad no_grad;
  const SquaresReduction reduction("gradient norm", tensors, model);
  std::vector<size_t> counted;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (reduction.counts_here(i)) counted.push_back(i);
  }
  const bool exact = std::ranges::find(tensors, f64, &Tensor::dtype) != tensors.end();
  const DType dtype = exact ? f64 : f32;
  // Sums of powers leave the range of f32 before their root does.
  const DType summed = order == 1 || order == 2 || std::isinf(order) ? dtype : f64;
  Tensor all = zeros({}, {.dtype = summed, .device = tensors[0].device()});
  for (const Run& run : adjacent_runs({&tensors}, counted)) {
    const Tensor part = norm_part(copied_flat(tensors, run), order, summed).to(all.device());
    all = std::isinf(order) ? maximum(all, part) : all + part;
  }
  // The sum is in f64 on all ranks: other ranks may have gradients of another dtype.
  all = all.to(f64);
  reduction.reduce(all, std::isinf(order) ? ReduceOp::max : ReduceOp::sum);
  if (order == 2) return sqrt(all).to(dtype);
  return (order == 1 || std::isinf(order) ? all : pow(all, 1 / order)).to(dtype);
}

Tensor total_norm(const Tensors& tensors, double order) { return norm_of(tensors, order, 0); }

Tensor gradient_norm(const std::vector<ParameterPtr>& parameters, double order) {
  const Tensors gradients = gradients_of(parameters);
  uint64_t model = 0;
  for (const ParameterPtr& parameter : parameters) model = least_model(model, *parameter);
  return norm_of(gradients, order, model);
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

void clip_grads_with_norm(const std::vector<ParameterPtr>& parameters, double max_norm,
                          const Tensor& norm) {
  NoGrad no_grad;
  const Tensor scale = factor_to(max_norm, norm);
  if (scale.item() == 1) return;
  const Tensors gradients = gradients_of(parameters);
  for (const Tensor& gradient : gradients) {
    if (is_copied_view(gradient)) check_writable("clip", gradient);
  }
  std::vector<size_t> all(gradients.size());
  std::iota(all.begin(), all.end(), size_t{0});
  // Gradients on disk pass through memory one by one.
  const auto may_follow = [&](size_t first, size_t) { return !rests_on_disk(gradients[first]); };
  for (const Run& run : adjacent_runs({&gradients}, all, may_follow)) {
    const Tensor &first = gradients[run[0]], read = in_memory(first);
    const Tensor part = rests_on_disk(first) ? read.local() : flat(gradients, run);
    scale_(part, scale.to(part.dtype() == f64 ? f64 : f32).to(part.device()));
    if (rests_on_disk(first)) write_to_disk(first, read);
  }
  // Also those of which this rank holds no element, so that all ranks see the change.
  for (const Tensor& gradient : gradients) mark_written(gradient);
}

double clip_grad_norm(const std::vector<ParameterPtr>& parameters, double max_norm, double order) {
  const Tensor norm = gradient_norm(parameters, order);
  clip_grads_with_norm(parameters, max_norm, norm);
  return norm.item();
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

/// XXH3 of this rank's elements.
static int64_t hash_of_local(const Tensor& value) {
  const NoGrad no_grad;
  const Tensor local = contiguous(in_memory(value).local().to(cpu));
  const auto bytes = static_cast<size_t>(local.numel()) * size_of(local.dtype());
  return std::bit_cast<int64_t>(
      xxh3_of({static_cast<const std::byte*>(local.block().data), bytes}));
}

namespace {

/// A tensor that ranks hold alike along the axes that replicate it, and its name in errors.
struct NamedReplica {
  std::string name;
  Tensor value;
};

using Replicas = std::vector<NamedReplica>;

}  // namespace

/// Returns the hash that more than half of the ranks have; without one, that of the first rank.
static int64_t hash_of_most(const std::vector<int64_t>& hashes) {
  for (const int64_t hash : hashes) {
    if (2 * std::ranges::count(hashes, hash) > std::ssize(hashes)) return hash;
  }
  return hashes[0];
}

/// Along `axis` of `mesh`, whose ranks each give the hashes of the same tensors: what is wrong, or
/// "".
static std::string difference_along(const DeviceMesh& mesh, int axis, const Replicas& replicas,
                                    const std::vector<int64_t>& hashes) {
  // max(~h) is ~min(h): one all-reduce gives both ends.
  std::vector<int64_t> ends = hashes;
  for (const int64_t hash : hashes) ends.push_back(~hash);
  const Communicator group = mesh[mesh.axis_name(axis)].communicator();
  group.all_reduce_numbers(ends, ReduceOp::max);
  size_t at = 0;
  while (at < hashes.size() && ends[at] == ~ends[at + hashes.size()]) ++at;
  if (at == hashes.size()) return "";

  const std::vector<int64_t> all = group.all_gather_numbers({&hashes[at], 1});
  int stride = 1;
  for (int inner = axis + 1; inner < mesh.ndim(); ++inner) stride *= mesh.axis_size(inner);
  const int first = mesh.rank() - mesh.coordinate(axis) * stride;
  const int64_t right = hash_of_most(all);
  std::string wrong;
  int count = 0, reference = -1;
  for (size_t i = 0; i < all.size(); ++i) {
    const int rank = first + static_cast<int>(i) * stride;
    if (all[i] == right && reference < 0) reference = rank;
    if (all[i] != right) wrong += concat(count++ > 0 ? ", " : "", rank);
  }
  return concat("check_replicas: ", replicas[at].name, count > 1 ? " on ranks " : " on rank ",
                wrong, count > 1 ? " differ from that on rank " : " differs from that on rank ",
                reference, ", expected equal replicas along axis ", mesh.axis_name(axis));
}

/// Compares the tensors that are laid out over one root mesh.
static void check_replicas_over(const DeviceMesh& mesh, const Replicas& replicas) {
  std::vector<int64_t> hashes(replicas.size());
  std::vector<bool> hashed(replicas.size());
  std::string mistake;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    if (mesh.axis_size(axis) == 1) continue;
    Replicas replicated;
    std::vector<int64_t> own;
    for (size_t i = 0; i < replicas.size(); ++i) {
      const Tensor& value = replicas[i].value;
      if (value.sharding()[axis].is_shard()) continue;
      if (!hashed[i]) hashes[i] = hash_of_local(value);
      hashed[i] = true;
      replicated.push_back(replicas[i]);
      own.push_back(hashes[i]);
    }
    if (own.empty()) continue;
    const std::string difference = difference_along(mesh, axis, replicated, own);
    if (mistake.empty()) mistake = difference;
  }
  fail_on_all_ranks(mesh.communicator(), mistake);
}

/// Compares tensors over several root meshes, in the order in which these first come.
static void check_replicas_of(const Replicas& replicas) {
  std::vector<std::pair<DeviceMesh, Replicas>> meshes;
  for (const NamedReplica& replica : replicas) {
    const Sharding sharding = replica.value.sharding();
    if (!sharding || sharding.mesh().size() == 1) continue;
    auto found =
        std::ranges::find(meshes, sharding.mesh(), &std::pair<DeviceMesh, Replicas>::first);
    if (found == meshes.end()) found = meshes.insert(found, {sharding.mesh(), {}});
    found->second.push_back(replica);
  }
  for (const auto& [mesh, some] : meshes) check_replicas_over(mesh, some);
}

void check_replicas(const Module& module) {
  Replicas replicas;
  for (const NamedParameter& named : module.named_parameters()) {
    if (!named.parameter->is_materialized()) {
      fail("check_replicas: parameter ", in_quotes(named.name()),
           " has no memory, expected some; call materialize first");
    }
    ModuleSharder::lazy_init(*named.parameter);
    replicas.push_back({concat("parameter ", in_quotes(named.name())), named.parameter->value()});
  }
  check_replicas_of(replicas);
}

void check_replicas(Optimizer& optimizer) {
  Replicas replicas;
  const std::vector<std::string> moments = optimizer.moments();
  for (size_t p = 0; p < optimizer.parameters().size(); ++p) {
    if (optimizer.steps(p) == 0) continue;
    const Tensors& state = optimizer.state(p);
    for (size_t i = 0; i < state.size(); ++i) {
      const std::string moment = i < moments.size() ? moments[i] : std::to_string(i);
      const std::string name = concat(optimizer.parameters()[p].name(), '.', moment);
      replicas.push_back({concat("optimizer state ", in_quotes(name)), state[i]});
    }
  }
  check_replicas_of(replicas);
}

}  // namespace weft
