// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/block.h"
#include "weft/device.h"
#include "weft/extend/pattern.h"
#include "weft/extend/ref.h"
#include "weft/sharding.h"

namespace weft {

class MeshGrid;

/// The part of a tensor that each rank holds: an immutable entry of the mesh's cache, pinned by the
/// tensors and plans that hold it and evictable otherwise. Without a sharding it describes a tensor
/// of one device.
class Layout final : public RefCounted {
 public:
  Shape shape;
  DType dtype;
  Sharding sharding;
  /// Box of this rank's part. Where an inner factor of a dim is cut, its elements are not those at
  /// these positions of the dim; see `box_of` in pattern.h.
  Box box;
  Strides local_strides;
  /// Hash of the content; equal on all ranks, in all processes.
  uint64_t hash;

  /// Box of another rank of the root mesh.
  Box box_of(int rank) const;
  /// Bytes of this rank's part.
  int64_t local_bytes() const { return box.shape.product() * static_cast<int64_t>(size_of(dtype)); }

  static void destroy(Layout* layout) { delete layout; }

  /// Owner of `sharding`; null without one.
  std::shared_ptr<MeshGrid> grid;
};

/// Returns the layout for that sharding, shape and dtype; without a sharding, from the calling
/// rank's own cache. std::invalid_argument when a Shard names a dim that the shape does not have.
Ref<Layout> layout_of(const Sharding& sharding, const Shape& shape, DType dtype);

/// "[4, 8] f32 mesh(dp=2, tp=2)[S(0), R]".
std::ostream& operator<<(std::ostream& out, const Layout& layout);

/// Returns the layout; where it cuts inner factors, one of the shape that has these as dims, in
/// which each rank's part is a box.
Ref<Layout> in_factors(const Ref<Layout>& layout);

/// Predicted cost of a redistribution.
struct PlanCost {
  /// Time of the busiest rank; equal on all ranks.
  double seconds = 0;
  /// Bytes that this rank receives from others.
  int64_t bytes = 0;
  /// Peak memory on this rank in addition to the source: intermediate blocks and the result.
  int64_t peak_bytes = 0;
};

/// A collective step of a plan, or one that each rank does by itself (`local`).
struct PlanStep {
  enum class Kind : uint8_t {
    /// Slices, zeros or relabels what this rank holds.
    local,
    all_gather,
    reduce_scatter,
    all_reduce,
    all_to_all,
    /// Each rank reads the boxes it needs from its peers' memory, reducing while it reads.
    exchange,
  };
  Kind kind = Kind::local;
  /// The ranks that differ along these axes take part, ordered by them.
  Axes axes = {};
  /// Reduction of the Partial axes that the step reduces.
  ReduceOp op = ReduceOp::sum;
  Ref<Layout> from = {};
  Ref<Layout> to = {};
  PlanCost cost = {};
};

/// Constraints for making a plan.
struct PlanOptions {
  /// Makes a Partial whole in two phases on ranks that share memory: each rank reduces its part,
  /// then reads the others' parts, even if it is predicted cheaper that every rank reduces
  /// everything.
  bool two_step = false;
  /// Plans collectives even where ranks share memory.
  bool collectives = false;
  /// Device of the blocks: ranks may be able to read each other's host memory but not GPU memory.
  DeviceKind device = DeviceKind::cpu;
  bool operator==(const PlanOptions&) const = default;
};

class PlanProgram;

/// The steps that turn one layout into another of the same shape. Exactly these steps are run. The
/// steps between layouts with cuts of inner factors are of a shape that has these factors as dims.
class Plan final : public RefCounted {
 public:
  Ref<Layout> from = {};
  Ref<Layout> to = {};
  std::vector<PlanStep> steps;
  PlanCost cost = {};
  PlanOptions options;
  /// This rank's part of the plan, worked out when the plan first runs.
  mutable std::shared_ptr<const PlanProgram> program;
  /// The plan to use on a GPU, where ranks cannot read each other's memory; see `plan_on`.
  mutable Ref<Plan> on_gpu = {};

  /// True when no byte moves between ranks, on any of them.
  bool is_free() const;
  static void destroy(Plan* plan) { delete plan; }
};

/// Returns the plan of least predicted time, from the mesh's cache. Both layouts must have the same
/// root mesh, shape and dtype. Equal on all ranks.
Ref<Plan> plan_between(const Ref<Layout>& from, const Ref<Layout>& to,
                       const PlanOptions& options = {});

/// Returns a time that no plan between the layouts is predicted to be shorter than, in a fraction
/// of the time that finding the plan takes; 0 where no byte crosses ranks, and for inner cuts.
/// Equal on all ranks.
double least_seconds(const Layout& from, const Layout& to);

/// Returns the plan to run on a device: `plan` itself, or one of collectives between the same
/// layouts if `plan` reads memory that ranks cannot see of each other.
const Plan& plan_on(DeviceKind device, const Plan& plan);

/// For a plan that only slices or relabels: returns the part of the local block (in its own
/// coordinates) that is the result, so that no rank needs a copy. nullopt for any other plan.
std::optional<Box> local_part(const Plan& plan);

/// Predicted time of one exchange over a mesh's ranks in which the busiest rank receives `bytes`;
/// equal on all ranks.
double predicted_exchange_seconds(const DeviceMesh& mesh, int64_t bytes);

/// Returns the block with dims divided into factors, or a dense block of any other shape with as
/// many elements.
MemoryBlock divided(const MemoryBlock& block, const Shape& shape);

/// Runs a plan from the local block `in` into the local block `out` (dense, of plan.to's local
/// shape). Collective over the ranks that the steps name. `in` may be strided.
void run(const Plan& plan, const MemoryBlock& in, const MemoryBlock& out);

/// Reads the box that this rank wants (in global coordinates; it may be empty or extend beyond the
/// tensor) of a tensor laid out as `from` into `out`, by one exchange among the ranks along the
/// axes that cut the tensor. Elements of `out` outside the tensor are unchanged. `wanted_of(rank)`
/// returns every rank's box, so that ranks without shared memory can send. Along axes where `from`
/// is Partial or Replicate, a rank reads from peers with its own coordinate.
void fetch(const Ref<Layout>& from, const MemoryBlock& in,
           const std::function<Box(int rank)>& wanted_of, const MemoryBlock& out);

/// "all_gather", ...
std::string_view name_of(PlanStep::Kind kind);

/// One line per step, e.g. "reduce_scatter over tp: P(sum) -> S(0), 32.0 KiB, 8.1 µs", and a total.
std::string to_string(const Plan& plan);

}  // namespace weft
