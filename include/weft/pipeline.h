// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/module.h"
#include "weft/pipeline_program.h"

namespace weft {

/// A stage of a model, on a rank that holds it.
struct PipelineStage {
  int stage = 0;
  std::shared_ptr<Module> module = {};
  /// Computes microbatch `microbatch` from the outputs of the stage before, none for the first: the
  /// outputs for the next stage, or {loss} of the last. The losses of a step's microbatches add up
  /// to the loss of the step: divide each by the number of targets of all of them.
  std::function<Tensors(const Tensors& inputs, int microbatch)> run = {};
  /// Called before the first backward of a step, and when the last one is done: until then code
  /// that shards the module keeps gradients apart on each rank, then it reduces them.
  std::function<void()> begin = {}, reduce = {};
  /// Called after the backward of a microbatch, before that of the next one, which may take the
  /// gradients away. Schedules that compute gradients of weights apart ("zb") do not call it.
  std::function<void(int microbatch)> after_backward = {};
};

/// The name of one parameter in the stages that both hold it, such as the token embedding and a
/// tied head: `first` keeps it in checkpoints.
struct PipelineTie {
  int first_stage = 0, last_stage = 0;
  std::string first, last;
};

/// Runs a program on the ranks of a mesh with a pipeline axis. Each rank holds the stages that the
/// program gives to its position along that axis, laid out over `stage_mesh()`, in any way. Calls
/// are collective over the mesh.
class WEFT_API Pipeline : NotCopied {
 public:
  /// Checks the program. std::invalid_argument for a defect, and when the axis has another number
  /// of ranks than the program.
  Pipeline(const DeviceMesh& mesh, PipelineProgram program, const std::string& axis = "pp");
  ~Pipeline();

  const PipelineProgram& program() const { return program_; }
  const DeviceMesh& mesh() const { return mesh_; }
  /// The ranks that hold the stages of this rank: a mesh of all axes but the pipeline's, or of one
  /// axis "dp" of size 1.
  const DeviceMesh& stage_mesh() const { return stage_mesh_; }
  /// This rank's position along the pipeline axis.
  int position() const;
  /// The stages of this rank, first to last.
  std::vector<int> own_stages() const;

  /// Adds one of this rank's stages.
  void add(PipelineStage stage);
  /// Sums the gradients of a parameter over the two stages that hold it, on one rank or on two, cut
  /// alike and both trained or frozen. Called by all ranks.
  void tie(PipelineTie tie);

  /// Hashes of what a run computes from; 0 is not compared.
  struct Inputs {
    uint64_t ids = 0, targets = 0, segments = 0, weights = 0;
  };
  /// The next run compares them along the axis when it begins.
  void compare_in_next_run(const Inputs& inputs) { inputs_ = inputs; }

  /// Runs the steps of `microbatches` of the program (0: all), adds to the gradients of this rank's
  /// stages, and returns the losses of the microbatches, on all ranks. Each step draws from a
  /// separate random stream; then all ranks have the next common one. std::invalid_argument when
  /// a stage of this rank was not added, without gradients (NoGrad), and on all ranks along the
  /// axis when what they must share differs: numbers of microbatches, inputs, seeds, layouts of
  /// ties.
  std::vector<double> run(int microbatches = 0);
  /// The same without gradients: the forwards alone.
  std::vector<double> evaluate(int microbatches = 0);

  /// Norm of the gradients of all stages, where parameters that are tied count once: one element on
  /// each rank. `parameters` are this rank's.
  Tensor gradient_norm(const std::vector<ParameterPtr>& parameters) const;

  /// Returns what all stages hold, by name, from what this rank's do: tensors over `mesh()`, of
  /// which other ranks' stages hold the elements, and numbers. They contain a tied parameter once.
  /// Own tensors share their elements.
  struct State {
    std::map<std::string, Tensor> tensors;
    std::map<std::string, int64_t> numbers;
  };
  State of_all_stages(const State& own) const;
  /// Takes this rank's numbers from those of all stages, for tensors that were filled: copies those
  /// of tied parameters to the last stage.
  State of_own_stages(const State& own, const std::map<std::string, int64_t>& numbers) const;

 private:
  class Run;
  std::vector<double> run(int microbatches, bool with_gradients);
  const PipelineStage& stage_of(int stage) const;
  int rank_of(int stage) const { return program_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool holds(int stage) const { return rank_of(stage) == position(); }
  void check_program() const;
  /// Compares what ranks must share when a run begins, and gives them a common random stream.
  void agree(int microbatches, bool with_gradients);
  void check_ties() const;
  /// `hashes` of the layouts in all ranks' first and last stages, `own` those of this rank in
  /// words.
  void check_layouts(size_t tie, const std::vector<int64_t>& hashes,
                     const std::array<std::string, 2>& own) const;
  /// The parameter of a tie in its first or last stage; null on ranks without that stage.
  ParameterPtr tied(size_t tie, bool is_last) const;
  /// Returns whether one rank holds both stages.
  bool is_local(const PipelineTie& tie) const {
    return rank_of(tie.first_stage) == rank_of(tie.last_stage);
  }
  /// Takes the gradients of ties away, which were summed before; returns them, two a tie.
  Tensors set_ties_aside() const;
  /// Sums the gradients of ties that a run has left, and adds the earlier ones.
  void sum_ties(const Tensors& earlier) const;
  /// Compares the layouts of the tensors that belong to ties on both their ranks.
  void check_ties_of(const State& own) const;
  /// The tie whose last stage has a value called `key` on this rank, or null.
  const PipelineTie* tie_of_last(const std::string& key) const;

  DeviceMesh mesh_, stage_mesh_;
  PipelineProgram program_;
  std::string axis_;
  /// The ranks along the pipeline axis.
  Communicator line_;
  std::map<int, PipelineStage> stages_;
  std::vector<PipelineTie> ties_;
  /// The ranks of each tie; empty on others.
  std::vector<Communicator> pairs_;
  Inputs inputs_;
};

/// Cuts a chain of parts with these costs into `stages` runs, so that the most expensive run costs
/// the least: returns the end of each run. std::invalid_argument for fewer parts than stages.
WEFT_API std::vector<int> balanced_stages(const std::vector<double>& costs, int stages);

}  // namespace weft
