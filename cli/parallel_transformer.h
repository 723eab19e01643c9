// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/adapters.h"
#include "cli/commands.h"
#include "weft/communicator.h"
#include "weft/fsdp.h"
#include "weft/memory_budget.h"
#include "weft/mesh.h"
#include "weft/sharding.h"
#include "weft/tier.h"
#include "weft/transformer.h"

namespace weft::cli {

/// Flags of `train` and `estimate`: how a transformer is sharded, and what it computes with.
struct ParallelOptions {
  std::string model = {};
  std::string mesh = {};
  std::string strategy = "full_shard";
  std::string dtype = "f32";
  /// Dtypes in which parameters and gradients are sent; empty: as `dtype` says.
  std::string gather_dtype = {};
  std::string gradient_dtype = {};
  bool float8 = false;
  std::string optimizer = "adamw";
  AdapterFlags adapters = {};
  /// none, full, selective, op or budget=BYTES.
  std::string recompute = "none";
  /// Bytes that a rank may take; empty: any number.
  std::string memory = {};
  /// The choices of the flags or of a plan; only a plan sets `blocks`.
  StepChoice choice = {};
  /// The tier to which a plan may move arrays (--offload auto).
  Tier free = {};
  /// Empty: when the mesh has an axis tp.
  std::optional<bool> sequence_parallel = {};
  /// Parts that products of tensor parallelism are split into; 1: they are not split.
  int async_tp = 1;
  int64_t accumulate = 1;
  int64_t batch = 16;
  int64_t seq = 256;
  /// How the stages of an axis pp take turns, and the stages of a rank if it is "interleaved".
  std::string pipeline = "1f1b";
  int64_t chunks = 2;
  /// Paths of the first modules of all stages but the first; empty: stages are cut by cost.
  std::vector<std::string> stage_firsts = {};
  /// How attention moves keys along the axis cp.
  std::string sequence_way = "automatic";
  /// Parts of the sequences that go through the experts one after the other.
  int64_t expert_chunks = 1;
  /// Rows that the experts of rank 0 compute over the mean of ranks, in predictions for rank 0.
  double imbalance = 1;
};

void add_parallel_flags(CLI::App& command, ParallelOptions& options);
void add_sequence_way_flag(CLI::App& command, ParallelOptions& options);
/// Throws for a way where no ranks share sequences.
void check_sequence_way(const std::vector<MeshAxis>& axes, const ParallelOptions& options);
void add_optimizer_flag(CLI::App& command, std::string& optimizer);
/// Adds --device, a name for `device_of_rank`.
void add_device_flag(CLI::App& command, std::string& device);

/// Returns the words of --offload, each with its tier in `options`.
std::array<std::pair<std::string_view, Tier*>, 5> tiers_of(ParallelOptions& options);
/// std::invalid_argument when something rests on the host while ranks compute on the CPU.
void check_offload(ParallelOptions options, Device device);

/// The axes that "dp=2,tp=2" says; std::invalid_argument for anything else.
std::vector<MeshAxis> parsed_axes(const std::string& text);
/// The ranks of such axes, at most `most`. std::invalid_argument when they are not `ranks`, those
/// of `flag`; 0: any number.
int ranks_of_mesh(const std::string& text, int most, int ranks, const char* flag);

/// Gives `mesh` its default over so many ranks (0: those it has itself), checks what the flags say
/// together, and returns the number of ranks, at most `most`. `flag` is where `ranks` comes from.
int complete(ParallelOptions& options, int ranks, int most, const char* flag);

/// Returns the model's config with what the flags add to it; std::invalid_argument for
/// --expert-chunks of a model without experts.
TransformerConfig with_flags(TransformerConfig config, const ParallelOptions& options);

/// Throws std::invalid_argument for an axis that would carry rows though its name promises another
/// kind of parallelism: a reserved name with a typing error or in capitals, or "pp", "fsdp", ...
void check_axis_names(const std::vector<MeshAxis>& axes, const std::string& mesh);

/// Throws std::invalid_argument when the axis "ep" does not fit the model, whose --mesh is `mesh`.
void check_expert_axis(const std::vector<MeshAxis>& axes, const TransformerConfig& config,
                       const std::string& mesh);

/// The mesh axis that cuts experts. It carries rows too.
inline constexpr const char* kExpertAxis = "ep";
/// The mesh axis of tensor parallelism; all others but the next carry rows of the batch.
inline constexpr const char* kTensorAxis = "tp";
/// The mesh axis of a pipeline's stages.
inline constexpr const char* kPipelineAxis = "pp";

/// The axes that `mesh` says, with one for the rows besides ep, which may have one rank: precision
/// and slots are FSDP's, and experts are sharded over it.
std::vector<MeshAxis> axes_with_rows(const std::string& mesh);
/// Rows of a batch: cut along all axes but those of tensors and of a pipeline.
Sharding sharded_rows(const DeviceMesh& mesh);
/// The view of the axes that cut rows or sequences.
DeviceMesh axes_of_rows(const DeviceMesh& mesh);
/// Returns how `fully_shard` shards the units of a model over such axes.
FullyShardOptions sharding_of(const ParallelOptions& options);
/// Sets what the blocks of a model save for backward, or those of a stage from block `first` on.
void set_block_policies(TransformerModel& model, const ParallelOptions& options, size_t first = 0);

/// The part of a model that a stage of a pipeline computes: all but what comes before the blocks,
/// or behind them.
struct StagePart {
  bool first = true, last = true;
  /// Set for a stage of a pipeline, of which these may be all.
  bool is_stage = false;
  /// Set to the bytes of the output of a micro-batch on this rank; may be null.
  int64_t* output_bytes = nullptr;
  bool is_whole() const { return first && last; }
};

/// The mesh axis that cuts sequences.
inline constexpr const char* kSequenceAxis = "cp";

/// The index of the axis "cp" if several ranks share sequences; otherwise -1.
int sequence_axis(const DeviceMesh& mesh);

/// Returns the strategy with a row for the axis "cp" of `data`, whose ranks shard parameters as
/// those of the last row.
Strategy with_sequences(Strategy strategy, const DeviceMesh& data);

/// A transformer over the ranks of a mesh, declared: cut along the axis "tp" by its styles, its
/// experts along "ep" and, once `shard` is called, along all axes but "tp" by the strategy.
class ParallelTransformer {
 public:
  /// A model with one block more, of a stage with that part of it, at each end that it lacks.
  ParallelTransformer(const Communicator& world, const TransformerConfig& config,
                      const ParallelOptions& options, StagePart part = {});
  /// Returns its parts as `step_cost` takes them; they keep `owner`.
  StepModel step_model(const std::shared_ptr<ParallelTransformer>& owner = {});
  void shard();
  /// Returns how `shard` shards the units over the axes of `data`.
  FullyShardOptions sharding() const;
  /// The view of all axes but "tp".
  const DeviceMesh& data() const { return data_; }

  const DeviceMesh& mesh() const { return mesh_; }
  const StagePart& part() const { return part_; }
  TransformerModel& model() { return model_; }
  /// Rows of a batch: cut along all axes but "tp" and "cp". `loss` cuts sequences along "cp".
  const Sharding& rows() const { return rows_; }
  /// Rows of one micro-step, over all ranks.
  int64_t micro_batch() const { return options_.batch / options_.accumulate; }

  /// The mean loss of rows; `segments` may be empty.
  Tensor loss(const Tensor& ids, const Tensor& targets, const Tensor& segments);
  /// Leaves the gradients of one micro-step, of `accumulate`, and returns its mean loss.
  Tensor differentiate(const Tensor& ids, const Tensor& targets);

 private:
  const ParallelOptions options_;
  const StagePart part_;
  DeviceMesh mesh_;
  DeviceMesh data_;
  TransformerModel model_;
  Sharding rows_;
  /// "ep" where the mesh has this axis, or empty.
  std::string expert_axis_;
};

}  // namespace weft::cli
