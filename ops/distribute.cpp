// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include "mesh/grid.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "src/kernels/copy/copy.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/tape.h"
#include "weft/graph.h"
#include "weft/ops/elementwise.h"

namespace weft {

static void check_for_mesh(const char* what, const Tensor& tensor, const DeviceMesh& mesh) {
  if (!mesh) fail(what, ": this rank is not in the mesh, expected one of its ranks");
  check_tensor(what, tensor);
  if (tensor.is_sharded()) {
    fail(what, ": the tensor ", tensor.shape(), " is laid out over ", tensor.sharding(),
         ", expected one without a mesh; use redistribute");
  }
}

/// Records `result` as `input` in another layout; `function` returns the gradient of `input`.
template <class Function>
static Tensor recorded(const char* name, const Tensor& input, const Tensor& result,
                       const Function& function) {
  if (!is_recorded(input)) return result;
  return record(name, {input}, {result}, BackwardFunction(function))[0];
}

/// Returns `gradient` in the layout and dtype of a tensor laid out as `layout`, by one plan;
/// Partial becomes Replicate.
static Tensor gradient_moved_to(const Tensor& gradient, const Layout& layout) {
  const Sharding& sharding = layout.sharding;
  const Sharding target = sharding.has_partial() ? reduced_sharding(sharding) : sharding;
  const Tensor moved = move_recorded(gradient, layout_of(target, layout.shape, gradient.dtype()));
  return moved.dtype() == layout.dtype ? moved : moved.to(layout.dtype);
}

constexpr int kSamples = 16;
constexpr int64_t kSampleBytes = 64 << 10;

/// Sample number `i` of a tensor: a box of at most kSampleBytes; the samples are spread over it.
static Box sample_of(const Shape& shape, DType dtype, int i) {
  Box box{Dims::filled(shape.ndim(), 0), shape};
  int64_t bytes = shape.product() * static_cast<int64_t>(size_of(dtype));
  while (bytes > kSampleBytes) {
    int longest = 0;
    for (int d = 1; d < shape.ndim(); ++d) {
      if (box.shape[d] > box.shape[longest]) longest = d;
    }
    const int64_t kept = std::max<int64_t>(1, box.shape[longest] * kSampleBytes / bytes);
    bytes = bytes / box.shape[longest] * kept;
    box.shape[longest] = kept;
    box.offset[longest] = (shape[longest] - kept) * i / (kSamples - 1);
  }
  return box;
}

static uint64_t hash_of_elements(const MemoryBlock& block, uint64_t seed = 0) {
  std::vector<std::byte> content(static_cast<size_t>(block.numel()) * size_of(block.dtype));
  copy(dense_block(content.data(), block.dtype, block.shape), block);
  return xxh3_of(content, seed);
}

/// Hash of the elements: of all of them up to 1 MiB, of kSamples boxes of a larger tensor.
static uint64_t sampled_hash(const Tensor& whole) {
  const int64_t bytes = whole.numel() * static_cast<int64_t>(size_of(whole.dtype()));
  if (bytes <= kSamples * kSampleBytes) return hash_of_elements(whole.block());
  uint64_t hash = 0;
  for (int i = 0; i < kSamples; ++i) {
    const Box sample = sample_of(whole.shape(), whole.dtype(), i);
    hash = hash_of_elements(whole.block().part(sample), hash);
  }
  return hash;
}

/// Claims that all ranks pass the same values, in the first calls for each layout and in each
/// 16th later one: the next collective compares the claims.
static void claim_equality(const Tensor& whole, const Sharding& sharding) {
  constexpr uint64_t kClaims = 16;
  MeshGrid& grid = *sharding.body()->grid;
  if (grid.ranks().size() == 1 || Graph::recording()) return;
  uint64_t kind = hash_of(sharding.pattern()) ^ static_cast<uint64_t>(whole.dtype());
  for (const int64_t size : whole.shape()) kind = mixed(kind, static_cast<uint64_t>(size));
  const uint64_t before = grid.next_claim_of(kind);
  if (before >= kClaims && before % kClaims != 0) return;
  grid.claim(sampled_hash(whole), concat("distribute(", whole.dtype(), ", ", whole.shape(), ')'));
}

/// Checks that all ranks pass the same values, as the context asks.
static void check_equal_on_ranks(const Tensor& whole, const DeviceMesh& mesh,
                                 const Sharding& sharding) {
  const std::optional<bool> checks = Context::current().checks_equality;
  if (checks == false || whole.device().kind == DeviceKind::meta) return;
  if (!checks) {
    claim_equality(whole, sharding);
    return;
  }
  const Communicator& ranks = mesh.communicator();
  const auto own = static_cast<int64_t>(hash_of_elements(whole.block()));
  const std::vector<int64_t> all = ranks.all_gather_numbers({&own, 1});
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    fail("distribute: the tensor ", whole.shape(), " of rank ", rank,
         " differs from that of rank 0, ",
         "expected equal values; scatter or from_local take others");
  }
}

/// The sharding of a tensor of that shape whose values one rank has, or all have.
static Sharding checked_sharding(const char* what, const DeviceMesh& mesh,
                                 const Placements& placements, const Shape& shape) {
  check_sizes(what, placements, shape);
  Sharding sharding(mesh, placements, shape.ndim());
  if (!sharding.has_partial()) return sharding;
  fail(what, ": a placement is Partial, expected Shard or Replicate; use from_local");
}

/// Returns whether a change of memory that both share would reach one replica only.
static bool cuts_more(const Sharding& to, const Sharding& from) {
  for (int axis = 0; axis < to.axes(); ++axis) {
    const bool is_alone = to.mesh().axis_size(axis) == 1;
    if (!is_alone && to[axis].is_shard() && from[axis].is_replicate()) return true;
  }
  return false;
}

/// Returns `moved`, copied if it shares memory with `from`.
static Tensor copied_apart(const Tensor& from, const Tensor& moved) {
  if (!(moved.storage() == from.storage())) return moved;
  const Tensor result = new_tensor(layout_of(moved), moved.device());
  if (moved.device().kind != DeviceKind::meta) copy(result.block(), moved.block());
  return result;
}

Tensor distribute(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements) {
  check_for_mesh("distribute", whole, mesh);
  const Shape shape = whole.shape();
  const Sharding sharding = checked_sharding("distribute", mesh, placements, shape);
  check_equal_on_ranks(whole, mesh, sharding);
  const Sharding everywhere(mesh.root(), {});
  Tensor result = moved_to(relabeled(whole, layout_of(everywhere, shape, whole.dtype())),
                           layout_of(sharding, shape, whole.dtype()));
  if (cuts_more(sharding, everywhere)) result = copied_apart(whole, result);
  return recorded("distribute", whole, result, [everywhere, shape](const Tensors& g) {
    const Tensor moved = move_recorded(g[0], layout_of(everywhere, shape, g[0].dtype()));
    return Tensors{relabel_recorded("distribute", moved, {}, shape)};
  });
}

Tensor Tensor::redistribute(const Placements& placements) const {
  check_tensor("redistribute", *this);
  if (!is_sharded()) {
    fail("redistribute: the tensor ", shape(),
         " has no mesh, expected one over a mesh; use distribute");
  }
  check_sizes("redistribute", placements, shape());
  return redistributed(*this, Sharding(sharding().mesh(), placements, ndim()));
}

Tensor redistributed(const Tensor& tensor, const Sharding& target) {
  Tensor moved = moved_to(tensor, layout_of(target, tensor.shape(), tensor.dtype()));
  if (cuts_more(target, tensor.sharding())) moved = copied_apart(tensor, moved);
  if (!is_recorded(tensor)) return moved;
  return record_move("redistribute", tensor, moved,
                     [from = layout_of(tensor)](const Tensors& gradients) {
                       return Tensors{gradient_moved_to(gradients[0], *from)};
                     });
}

/// Records `local` as made from `tensor`; `gradient` is the layout of its gradient.
static Tensor recorded_local(const char* name, const Tensor& tensor, const Tensor& local,
                             const Ref<Layout>& gradient) {
  if (!is_recorded(tensor)) return local;
  return recorded(name, tensor, local, [gradient](const Tensors& g) {
    return Tensors{relabel_recorded("to_local", g[0], gradient->sharding, gradient->shape)};
  });
}

Tensor Tensor::full_tensor() const {
  check_tensor("full_tensor", *this);
  if (!is_sharded()) return *this;
  const auto everywhere = layout_of(Sharding(sharding().mesh().root(), {}), shape(), dtype());
  const Tensor moved = moved_to(*this, everywhere);
  const Tensor whole = body_->copied ? copied_apart(*this, moved) : moved;
  return recorded_local("full_tensor", *this, whole.local(), everywhere);
}

/// Sharding of the gradient of `sharding`: Shards stay; other axes as `stated`.
static Sharding stated_gradient(const Sharding& sharding, const Placements& stated, int ndim) {
  Sharding given(sharding.mesh(), stated, ndim);
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (!sharding[axis].is_shard() || given[axis] == sharding[axis]) continue;
    fail("to_local: placements of the gradient are ", given, ", expected ", sharding,
         ", those of the tensor, where they shard");
  }
  return given;
}

Tensor Tensor::to_local(const Placements& gradient) const {
  check_tensor("to_local", *this);
  if (!is_sharded()) return *this;
  const Sharding given = stated_gradient(sharding(), gradient, ndim());
  return recorded_local("to_local", *this, local(), layout_of(given, shape(), dtype()));
}

Tensor Tensor::to_local() const {
  check_tensor("to_local", *this);
  const Sharding& own = layout_of(*this)->sharding;
  if (!own) return *this;
  const auto is_shard = [](const Placement& placement) { return placement.is_shard(); };
  if (is_recorded(*this) && !std::ranges::all_of(own.placements(), is_shard)) {
    fail("to_local: placements of the gradient are missing, expected them for a tensor ", shape(),
         " laid out as ", own, ": gradients of the ranks may be equal or parts of a sum");
  }
  return recorded_local("to_local", *this, local(), layout_of(*this));
}

/// Returns the gradient of a rank's part from that of the whole; Partial(avg) divides by the ranks.
static Tensor gradient_of_part(const Tensor& gradient, const Sharding& sharding) {
  int64_t averaged = 1;
  for (int axis = 0; axis < sharding.axes(); ++axis) {
    if (sharding[axis] == Partial(ReduceOp::avg)) averaged *= sharding.mesh().axis_size(axis);
  }
  const Tensor local = relabel_recorded("from_local", gradient, {}, layout_of(gradient)->box.shape);
  return averaged == 1 ? local : mul(local, 1.0 / static_cast<double>(averaged));
}

/// Labels `local` as this rank's part of a tensor of that layout.
static Tensor wrapped(const Tensor& local, const Ref<Layout>& layout) {
  const Sharding& sharding = layout->sharding;
  for (const Placement& placement : sharding.placements()) {
    bool ordered = placement.is_partial() && placement.op() != ReduceOp::sum &&
                   placement.op() != ReduceOp::avg;
    if (ordered && is_recorded(local)) {
      fail("from_local: placement is ", placement,
           ", expected one with a gradient; reduce it first");
    }
  }
  return recorded("from_local", local, relabeled(local, layout),
                  [sharding](const Tensors& gradients) {
                    return Tensors{gradient_of_part(gradients[0], sharding)};
                  });
}

Tensor from_local(const Tensor& local, const DeviceMesh& mesh, const Placements& placements,
                  const Shape& shape) {
  check_for_mesh("from_local", local, mesh);
  check_sizes("from_local", placements, shape);
  Sharding sharding(mesh, placements, local.ndim());
  Ref<Layout> layout = layout_of(sharding, shape, local.dtype());
  if (!(layout->box.shape == local.shape())) {
    fail("from_local: part of rank ", mesh.rank(), " is ", local.shape(), ", expected ",
         layout->box.shape, " of a tensor ", shape, " laid out as ", sharding);
  }
  return wrapped(local, layout);
}

/// Returns the local shapes of all ranks.
static std::vector<Shape> exchanged_shapes(const Tensor& local, const DeviceMesh& mesh) {
  Communicator ranks = mesh.root().communicator();
  constexpr int kNumbers = kMaxDims + 1;
  std::vector<int64_t> mine(kNumbers);
  mine[0] = local.ndim();
  for (int d = 0; d < local.ndim(); ++d) mine[static_cast<size_t>(d) + 1] = local.size(d);
  const std::vector<int64_t> all = ranks.all_gather_numbers(mine);
  std::vector<Shape> shapes;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    auto numbers =
        std::span<const int64_t>(all).subspan(static_cast<size_t>(rank * kNumbers), kNumbers);
    shapes.emplace_back(numbers.subspan(1, static_cast<size_t>(numbers[0])));
  }
  return shapes;
}

/// Returns the parts of dim `dim` along the axes that cut it, in their order: those of the ranks
/// that are first along all other axes.
static std::vector<int64_t> parts_along(const Sharding& sharding, const std::vector<Shape>& shapes,
                                        int dim) {
  const MeshGrid& grid = *sharding.body()->grid;
  const std::vector<int> members = grid.members(sharding.axes_cutting(dim), Coordinates{});
  std::vector<int64_t> parts;
  for (const int rank : members) parts.push_back(shapes[static_cast<size_t>(rank)][dim]);
  return parts;
}

void set_parts(Pattern& pattern, const MeshGrid& grid, int dim, std::vector<int64_t> parts) {
  const Axes axes = pattern.cutting(dim);
  for (int i = axes.size(); i-- > 0;) {
    pattern.set_sizes(axes[i], parts);
    const auto count = static_cast<size_t>(grid.size(axes[i]));
    for (size_t at = 0; at < parts.size() / count; ++at) {
      const auto first = parts.begin() + static_cast<ptrdiff_t>(at * count);
      parts[at] = std::accumulate(first, first + static_cast<ptrdiff_t>(count), int64_t{0});
    }
    parts.resize(parts.size() / count);
  }
}

/// True when the caller states sizes for parts of `dim`, which may be those of chunks.
static bool states_sizes(const Placements& placements, int dim, int ndim) {
  const auto states = [&](const Placement& placement) {
    return placement.has_sizes() && placement.counted(ndim).is_shard(dim);
  };
  return std::ranges::any_of(placements.by_position(), states) ||
         std::ranges::any_of(placements.by_name(), states, &NamedPlacement::placement);
}

Tensor from_local(const Tensor& local, const DeviceMesh& mesh, const Placements& placements) {
  check_for_mesh("from_local", local, mesh);
  const Sharding stated(mesh, placements, local.ndim());
  if (stated.has_inner())
    fail("from_local: layout is ", stated, ", expected cuts of whole dims; or state the shape");
  std::vector<Shape> shapes = exchanged_shapes(local, mesh);
  for (size_t rank = 0; rank < shapes.size(); ++rank) {
    if (shapes[rank].ndim() == shapes[0].ndim()) continue;
    fail("from_local: part of rank ", rank, " is ", shapes[rank], ", expected ", shapes[0].ndim(),
         " dims, as ", shapes[0], " of rank 0");
  }
  const MeshGrid& grid = *stated.body()->grid;
  Pattern pattern = stated.pattern();
  Shape shape;
  for (int d = 0; d < local.ndim(); ++d) {
    std::vector<int64_t> parts = parts_along(stated, shapes, d);
    shape.push_back(std::accumulate(parts.begin(), parts.end(), int64_t{0}));
    // Sizes that the caller states are compared with the actual ones below.
    if (parts.size() > 1 && !states_sizes(placements, d, local.ndim())) {
      set_parts(pattern, grid, d, std::move(parts));
    }
  }
  const Sharding sharding = Sharding::of(mesh, pattern);
  Ref<Layout> layout = layout_of(sharding, shape, local.dtype());
  for (size_t rank = 0; rank < shapes.size(); ++rank) {
    Shape expected = layout->box_of(static_cast<int>(rank)).shape;
    if (expected == shapes[rank]) continue;
    fail("from_local: part of rank ", rank, " is ", shapes[rank], ", expected ", expected, " of ",
         shape, " laid out as ", sharding);
  }
  return wrapped(local, layout);
}

/// Broadcasts from root whether it has a tensor, and its dtype, shape and requires_grad.
static std::vector<int64_t> broadcast_header(const Tensor& whole, const Communicator& ranks,
                                             int root) {
  std::vector<int64_t> header(kMaxDims + 4);
  if (ranks.rank() == root && whole && !whole.is_sharded()) {
    header[0] = 1;
    header[1] = static_cast<int64_t>(whole.dtype());
    header[2] = whole.ndim();
    for (int d = 0; d < whole.ndim(); ++d) header[static_cast<size_t>(d) + 4] = whole.size(d);
    header[3] = whole.requires_grad();
  }
  std::vector<int64_t> count{static_cast<int64_t>(header.size())};
  Piece piece{header.data(), header.data(), DType::i64, count};
  ranks.broadcast(std::span(&piece, 1), root).wait();
  return header;
}

Tensor scatter(const Tensor& whole, const DeviceMesh& mesh, const Placements& placements,
               int root) {
  if (!mesh) fail("scatter: this rank is not in the mesh, expected one of its ranks");
  Communicator ranks = mesh.root().communicator();
  if (root < 0 || root >= ranks.size()) {
    fail("scatter: root is ", root, ", expected one of the ", ranks.size(), " ranks");
  }
  std::vector<int64_t> header = broadcast_header(whole, ranks, root);
  if (!header[0])
    fail("scatter: tensor of root ", root, " is empty or over a mesh, expected one of one device");
  Shape shape(std::span<const int64_t>(header).subspan(4, static_cast<size_t>(header[2])));
  const Sharding sharding = checked_sharding("scatter", mesh, placements, shape);
  const Ref<Layout> layout = layout_of(sharding, shape, static_cast<DType>(header[1])),
                    parts = in_factors(layout);
  Tensor result = new_tensor(layout, cpu);
  // Root packs the parts in rank order: one scatter with exact counts.
  std::vector<int64_t> counts;
  for (int rank = 0; rank < ranks.size(); ++rank)
    counts.push_back(parts->box_of(rank).shape.product());
  Tensor packed;
  if (ranks.rank() == root) {
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    packed = new_tensor(layout_of(Sharding(), {total}, layout->dtype), cpu);
    char* at = packed.block().as<char>();
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const MemoryBlock part = divided(whole.block(), parts->shape).part(parts->box_of(rank));
      copy(dense_block(at, layout->dtype, part.shape), part);
      at += part.numel() * static_cast<int64_t>(size_of(layout->dtype));
    }
  }
  Piece piece{packed ? packed.block().data : nullptr, result.block().data, layout->dtype, counts};
  ranks.scatter(std::span(&piece, 1), root).wait();
  if (header[3]) result.set_requires_grad();
  return result;
}

}  // namespace weft
