// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/optimizer.h"
#include "weft/pipeline.h"
#include "weft/shared_batch.h"
#include "weft/state_dict.h"
#include "weft/tensor_parallel.h"
#include "weft/trainer.h"
#include "weft/transformer.h"

namespace weft {

/// Calls `parallelize` with those styles whose paths match modules of a stage.
WEFT_API void parallelize_stage(TransformerModel& stage, const DeviceMesh& axis,
                                const std::vector<ModuleStyle>& styles);

/// The ends of the stages whose first modules, of all stages but the first, have these paths, such
/// as "model.layers.4". std::invalid_argument for others than blocks that rise.
WEFT_API std::vector<int> stage_ends(const TransformerConfig& config,
                                     const std::vector<std::string>& firsts);

/// A decoder whose blocks are cut into the stages of a pipeline, by predicted cost; embeddings and
/// head count. First the stages' models are declared: cut them over `stage_mesh()` by `parallelize`
/// and `fully_shard`, which is needed where that mesh has several ranks, then call `materialize`.
/// Calls are collective over the mesh.
class WEFT_API PipelinedTransformer : NotCopied {
 public:
  /// `sequence`, tokens of a row, decides the cut. `ends`: the end of each stage's blocks; empty:
  /// by cost. std::invalid_argument for ends that do not rise to the number of layers, and as
  /// `keep_stage`.
  PipelinedTransformer(const DeviceMesh& mesh, const TransformerConfig& config,
                       const PipelineProgram& program, int64_t sequence,
                       std::vector<int> ends = {});

  Pipeline& pipeline() { return pipeline_; }
  const Pipeline& pipeline() const { return pipeline_; }
  const DeviceMesh& mesh() const { return pipeline_.mesh(); }
  const DeviceMesh& stage_mesh() const { return pipeline_.stage_mesh(); }
  /// The end of each stage's blocks.
  const std::vector<int>& ends() const { return ends_; }
  /// This rank's stages, first to last.
  const std::vector<std::shared_ptr<TransformerModel>>& stages() const { return stages_; }
  /// A module that has them as children "stage0", "stage2", ...; it cannot be called.
  Module& module() { return *module_; }
  /// The parameters of this rank's stages, by their names in the whole model.
  std::vector<NamedParameter> named_parameters() const;
  /// Calls `parallelize_stage` along an axis of the stages' mesh for each stage.
  void parallelize(const std::string& axis, const std::vector<ModuleStyle>& styles);
  /// Lets ranks along an axis of the stages' mesh share sequences, which each run orders and cuts
  /// as `share_batch` does.
  void share_sequences(const std::string& axis, SequenceWay way = SequenceWay::automatic);
  void materialize(Device device = cpu);

  /// Leaves the gradients of the sum of each micro-batch's mean loss times its weight, and returns
  /// these products. Tensors of the batches are laid out over the mesh or over the stages' mesh,
  /// the same rows on all ranks along the pipeline's axis, which compare them. At most as many
  /// batches as the program has.
  std::vector<double> differentiate(const std::vector<TrainingBatch>& batches,
                                    const std::vector<double>& weights);
  /// The same without gradients.
  std::vector<double> evaluate(const std::vector<TrainingBatch>& batches,
                               const std::vector<double>& weights);
  /// Called with a stage's parameters when they have the gradients of micro-batch `number` alone,
  /// which it takes away.
  using TakeGradients =
      std::function<void(int stage, const std::vector<ParameterPtr>& parameters, int number)>;
  /// Computes sums of losses over `divisor`, and gives `take` each micro-batch's gradients by
  /// themselves, summed over the ranks of the stage; without `take` there are none. Returns this
  /// rank's parts of the losses: 0 on ranks without the last stage. For reproducible runs.
  std::vector<double> run_rows(const std::vector<TrainingBatch>& batches, double divisor,
                               const TakeGradients& take);
  /// The balance losses of the experts in the last `differentiate`, one a micro-batch, without
  /// coefficient and weight, on all ranks; empty without such a loss.
  const std::vector<double>& balance_losses() const { return balance_losses_; }
  /// Norm of the gradients of all stages: one element, on each rank.
  Tensor gradient_norm() const;
  /// Scales the gradients of all stages so that their norm is at most `max_norm`; returns the norm.
  double clip_grad_norm(double max_norm) const;

  /// Fills the parameters of all stages from a Hugging Face model or a checkpoint of weights.
  void load_weights(const std::string& path);
  /// Adds the parts "model" and "optimizer", of all stages by the names in the whole model: a
  /// checkpoint of them can be resumed with other stages, or without. The optimizer updates this
  /// rank's parameters. std::invalid_argument for parameters or state that rest on disk.
  void add_to(TrainingState& state, Optimizer& optimizer);

 private:
  void add_stage(int stage);
  Tensors rows_computed(TransformerModel& stage, bool is_last, const Tensors& inputs,
                        size_t number);
  Pipeline::State own_model() const;
  void exchange_balances(size_t count);
  std::vector<double> run(const std::vector<TrainingBatch>& batches,
                          const std::vector<double>& weights, bool with_gradients);

  Pipeline pipeline_;
  std::vector<int> ends_;
  std::vector<std::shared_ptr<TransformerModel>> stages_;
  std::shared_ptr<Module> module_;
  /// The axis whose ranks share sequences, or empty.
  std::string sequence_axis_;
  /// The batches that the stages compute now, and their weights.
  std::vector<SharedBatch> batches_;
  std::vector<double> weights_;
  /// The balance losses of the micro-batches, on the rank of the last stage.
  Tensors balances_;
  /// The work of `run_rows`, while it runs.
  struct Rows {
    double divisor;
    TakeGradients take;
    Tensors losses;
  };
  std::optional<Rows> rows_;
  std::vector<double> balance_losses_;
};

}  // namespace weft
