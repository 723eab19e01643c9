// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.h"
#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/placement.h"
#include "weft/tensor.h"
#include "weft/tier.h"

namespace weft {

/// Placements of parameters, their gradients and the optimizer's state along one axis of a mesh.
struct StrategyRow {
  /// Shard: parameters are unsharded at each use. Replicate: they stay unsharded and,
  /// unless the state is replicated too, are gathered again after each update.
  Placement parameter;
  /// The layout between micro-steps. Shard: reduced in each. Partial: each rank accumulates its own
  /// gradients until the sync, the last micro-step.
  Placement gradient;
  /// Shard: each rank updates its slice of the parameters.
  Placement state;
  bool operator==(const StrategyRow&) const = default;
};

/// A row per axis of the mesh, or one row for all axes. A rank receives for A micro-steps, in units
/// of the parameters x (N - 1) / N: ddp 2, zero1 2, zero2 A + 1, full_shard 3 A (2 A without
/// reshard after forward).
struct WEFT_API Strategy {
  std::string name;
  std::vector<StrategyRow> rows;

  /// S / S / S; FSDP1's FULL_SHARD, ZeRO 3.
  static Strategy full_shard();
  /// R / S / S.
  static Strategy zero2();
  /// R / P / S.
  static Strategy zero1();
  /// R / P / R.
  static Strategy ddp();
  /// Uses two axes: ddp over the first, full_shard over the second. Gradients are all-reduced over
  /// the first axis at the sync.
  static Strategy hsdp();
  /// Returns the strategy of that name; std::invalid_argument lists the names.
  static Strategy named(std::string_view name);
};

/// The state of unsharded parameters after forward. True: resharded. False: kept until their
/// gradients are complete. One of several axes that shard them: kept sharded over that axis. A
/// number that divides the only axis that shards them: kept sharded over that many ranks.
class WEFT_API Reshard {
 public:
  Reshard(bool frees) : frees_(frees) {}
  Reshard(int ranks);
  Reshard(std::string axis) : axis_(std::move(axis)) {}
  Reshard(const char* axis) : axis_(axis) {}
  bool frees() const { return frees_; }
  const std::string& axis() const { return axis_; }
  /// 0 if no number was given.
  int ranks() const { return ranks_; }

 private:
  bool frees_ = true;
  int ranks_ = 0;
  std::string axis_;
};

/// Dtypes of floating parameters by purpose.
struct MixedPrecision {
  /// Dtype of the slices and of the optimizer's arithmetic; the declared dtype by default.
  std::optional<DType> storage = {};
  /// Dtype of forward and backward; `storage` by default.
  std::optional<DType> compute = {};
  /// Dtype of parameters on the wire; `compute` by default. Others cost a pass over the parameters.
  std::optional<DType> gather = {};
  /// Dtype in which backward writes and accumulates, and of the first reduction on the wire;
  /// `accumulate` by default. Later reductions (`hsdp`: the all-reduce) send `accumulate`.
  /// Collectives sum in f32, except NCCL's. Sums over axes that FSDP does not use, such as those of
  /// a norm's scale over tensor parallelism, send it too where it is wider than `compute`.
  std::optional<DType> reduce = {};
  /// Dtype of reduced gradients; `storage` by default.
  std::optional<DType> accumulate = {};
  /// Dtype of ignored parameters; the declared dtype by default.
  std::optional<DType> buffers = {};
  /// Dtype that floating inputs and outputs of the module are cast to; not cast by default.
  std::optional<DType> inputs = {};
  std::optional<DType> outputs = {};
};

/// Dtypes in which fully sharded parameters and gradients are sent (ZeRO++), in place of those of
/// MixedPrecision. Codes of 8 bits have a scale of f32 for each `block` elements of a rank's part:
/// 0.254 of the bytes of f32 with the default. For ZeRO++'s hierarchical partition (hpZ), in which
/// backward gathers within a host, name the host's axis in `reshard_after_forward`.
/// Codes move in one stage or, where several axes shard together, in two, so that each crosses the
/// slow links once a host, and not once a rank: gradients are summed in f32 along the axes within a
/// host, and the codes of these sums along the others; parameters are gathered along the others,
/// then within. By default there are two stages if that is predicted to be faster.
struct Quantization {
  /// Codes of parameters (qwZ): i8 or f8_e4m3. All ranks compute on the rounded values; the slices
  /// that the optimizer changes are exact. The codes that a gather receives lie behind the
  /// parameters in its buffer.
  std::optional<DType> gather = {};
  /// Codes of gradients (qgZ): i8, or bf16 without scales, rounded stochastically by the rank's
  /// random numbers. Each rank sends each other rank the codes of its part, and sums what it
  /// receives in f32, in rank order. The codes lie behind the gradients in their buffer. Replicas
  /// sum parts in the same way and send the codes of the sums, whose memory counts as memory of
  /// gradients. A second reduce-scatter at the sync is not quantized.
  std::optional<DType> reduce = {};
  /// A multiple of 4.
  int64_t block = 256;
  /// Adds what the codes of gradients missed to the next gradients. Needs memory for an f32 of each
  /// unsharded parameter, which counts as memory of gradients.
  bool error_feedback = false;
  /// The axis within a host, to move codes in two stages; "" for one stage. No effect where this
  /// axis does not shard together with others.
  std::optional<std::string> within = {};
};

/// The tiers on which slices (each unshard then copies from there), reduced gradients and, between
/// forward and backward, what recomputation saves (Module::offload_activations) rest. See also
/// AdamWOptions::offload.
struct Offload {
  Tier parameters = {};
  Tier gradients = {};
  Tier activations = {};
};

/// A user's wire format of a parameter (the tensor extension of FSDP2). The gather from the slices
/// sends what `fsdp_pre_all_gather` returns; a further level of two sends the parameter itself.
class WEFT_API AllGatherExtension {
 public:
  virtual ~AllGatherExtension() = default;
  /// Returns what the all-gather sends for a slice, a tensor of one device that is not empty: any
  /// number of such tensors, whose shapes and dtypes depend on those of the slice only. Called once
  /// with zeros for each size of slice, when the slices are made.
  virtual Tensors fsdp_pre_all_gather(const Tensor& slice) = 0;
  /// Writes into `out`, one rank's part of the unsharded parameter, what that rank sent.
  virtual void fsdp_post_all_gather(const Tensors& received, const Tensor& out) = 0;
};

/// The placement of one parameter; members that are not set have the module's values.
struct ShardPlacement {
  std::optional<int> dim = {};
  /// Another view of the same root mesh, e.g. for experts. Such parameters are a group of their
  /// own.
  DeviceMesh mesh = {};
  /// Rows for that mesh. Parameters of another strategy are a separate group too.
  std::optional<Strategy> strategy = {};
};

/// The axes of a mesh for data parallelism: over `shard` parameters are sharded (`full_shard`),
/// over `replicate` replicated (`ddp`).
struct DataParallelMeshDims {
  std::vector<std::string> shard = {};
  std::vector<std::string> replicate = {};
};

}  // namespace weft
