// SPDX-License-Identifier: Apache-2.0
#include "weft/pipeline.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "pipeline/messages.h"
#include "pipeline/timeline.h"
#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/deferred_gradients.h"
#include "weft/extend/hash.h"
#include "weft/ops/elementwise.h"
#include "weft/optimizers.h"
#include "weft/trace.h"

namespace weft {

using Act = PipelineAct;

static DeviceMesh stage_mesh_of(const DeviceMesh& mesh, int axis) {
  std::vector<std::string> names;
  std::vector<MeshAxis> axes;
  for (int i = 0; i < mesh.ndim(); ++i) {
    if (i == axis) continue;
    names.push_back(mesh.axis_name(i));
    axes.push_back({mesh.axis_name(i), mesh.axis_size(i)});
  }
  if (axes.empty()) {
    const int own[] = {mesh.rank()};
    return DeviceMesh(mesh.communicator().subgroup(own, "stage"), {{"dp", 1}}, mesh.device_type());
  }
  std::vector<std::string_view> views(names.begin(), names.end());
  return DeviceMesh(mesh.view(views).communicator(), axes, mesh.device_type());
}

Pipeline::Pipeline(const DeviceMesh& mesh, PipelineProgram program, const std::string& axis)
    : mesh_(mesh), program_(std::move(program)), axis_(axis) {
  check(program_);
  const int along = mesh.axis(axis);
  if (mesh.axis_size(along) != program_.ranks()) {
    fail("pipeline: axis ", axis, " has ", mesh.axis_size(along), " ranks, expected ",
         program_.ranks(), ", those of the program ", program_.name);
  }
  line_ = mesh[axis].communicator();
  check_program();
  stage_mesh_ = stage_mesh_of(mesh, along);
}

Pipeline::~Pipeline() = default;

int Pipeline::position() const { return line_.rank(); }

std::vector<int> Pipeline::own_stages() const {
  std::vector<int> own;
  for (int s = 0; s < program_.stages(); ++s) {
    if (holds(s)) own.push_back(s);
  }
  return own;
}

void Pipeline::add(PipelineStage stage) {
  if (stage.stage < 0 || stage.stage >= program_.stages() || !holds(stage.stage)) {
    fail("pipeline: stage is ", stage.stage, ", expected one of rank ", position(),
         " along the axis ", axis_);
  }
  if (!stage.run) fail("pipeline: run of stage ", stage.stage, " is empty, expected a function");
  stages_[stage.stage] = std::move(stage);
}

const PipelineStage& Pipeline::stage_of(int stage) const {
  const auto found = stages_.find(stage);
  if (found == stages_.end()) {
    fail("pipeline: stage ", stage, " is missing on its rank, expected it; call add first");
  }
  return found->second;
}

namespace {

/// Gives each step of a run a separate random stream, which all ranks know: stages draw unequal
/// numbers of values. Then all ranks have the same next stream.
class StepStreams : NotCopied {
 public:
  StepStreams() : random_(Context::current().random), first_(random_.stream) {}
  ~StepStreams() { random_.stream = first_ + 1; }
  void begin(const PipelineStep& step) {
    uint64_t stream = mixed(first_, static_cast<uint64_t>(step.act) + 1);
    stream = mixed(stream, static_cast<uint64_t>(step.stage) + 1);
    stream = mixed(stream, static_cast<uint64_t>(step.microbatch + 2));
    // No stream that is counted from 0.
    random_.stream = stream | uint64_t{1} << 63;
  }

 private:
  RandomState& random_;
  const uint64_t first_;
};

}  // namespace

static bool needs_gradient(const Tensor& tensor) { return tensor && is_floating(tensor.dtype()); }

/// One pass over the program on this rank.
class Pipeline::Run {
 public:
  Run(const Pipeline& pipeline, bool with_gradients, Device device)
      : pipeline_(pipeline),
        program_(pipeline.program_),
        with_gradients_(with_gradients),
        messages_(pipeline.line_, pipeline.stage_mesh_, device),
        losses_(static_cast<size_t>(program_.microbatches)) {}

  void run(const PipelineStep& step) {
    const auto [act, stage, microbatch] = step;
    switch (act) {
      case Act::forward: forward(stage, microbatch); break;
      case Act::backward:
      case Act::backward_input: {
        backward(stage, microbatch, act == Act::backward_input);
        const auto& after = pipeline_.stage_of(stage).after_backward;
        if (act == Act::backward && after) after(microbatch);
        break;
      }
      case Act::backward_weight: {
        const TraceSpan span("backward of weights", microbatch);
        slot(stage, microbatch).weights.run();
        break;
      }
      case Act::send_activation:
        messages_.send(slot(stage, microbatch).outputs, pipeline_.rank_of(stage + 1),
                       number(true, stage + 1, microbatch));
        if (!with_gradients_) slot(stage, microbatch).outputs.clear();
        break;
      case Act::receive_activation:
        messages_.expect(pipeline_.rank_of(stage - 1), number(true, stage, microbatch));
        break;
      case Act::send_gradient:
        messages_.send(input_gradients(stage, microbatch), pipeline_.rank_of(stage - 1),
                       number(false, stage - 1, microbatch));
        break;
      case Act::receive_gradient:
        messages_.expect(pipeline_.rank_of(stage + 1), number(false, stage, microbatch));
        break;
      case Act::reduce:
        if (const auto& reduce = pipeline_.stage_of(stage).reduce) reduce();
    }
    if (computes(act)) messages_.progress();
  }

  void finish() { messages_.finish(); }
  /// By microbatch, empty without the last stage.
  const Tensors& losses() const { return losses_; }

 private:
  /// One microbatch in one stage, from its forward to its last backward.
  struct Slot {
    Tensors inputs, outputs;
    DeferredGradients weights;
  };
  Slot& slot(int stage, int microbatch) { return slots_[{stage, microbatch}]; }
  bool is_last(int stage) const { return stage + 1 == program_.stages(); }
  /// Numbers messages by kind, receiving stage and microbatch.
  int number(bool activation, int stage, int microbatch) const {
    return ((activation ? 0 : program_.stages()) + stage) * program_.microbatches + microbatch;
  }

  /// The outputs of the stage before.
  Tensors inputs(int stage, int microbatch) {
    if (stage == 0) return {};
    const int before = stage - 1;
    if (!pipeline_.holds(before)) {
      return messages_.take(pipeline_.rank_of(before), number(true, stage, microbatch));
    }
    Tensors given;
    for (const Tensor& output : slot(before, microbatch).outputs) {
      given.push_back(output ? output.detach() : output);
    }
    if (!with_gradients_) slot(before, microbatch).outputs.clear();
    return given;
  }

  /// The gradients of the stage's inputs, which it no longer needs.
  Tensors input_gradients(int stage, int microbatch) {
    Tensors gradients;
    for (const Tensor& input : std::exchange(slot(stage, microbatch).inputs, {})) {
      gradients.push_back(needs_gradient(input) ? input.grad() : Tensor());
    }
    return gradients;
  }

  void forward(int stage, int microbatch) {
    const TraceSpan span("forward", microbatch);
    Tensors given = inputs(stage, microbatch);
    for (Tensor& input : given) {
      if (with_gradients_ && needs_gradient(input)) input.set_requires_grad();
    }
    Slot& own = slot(stage, microbatch);
    own.outputs = pipeline_.stage_of(stage).run(given, microbatch);
    if (with_gradients_) own.inputs = std::move(given);
    if (!is_last(stage)) return;
    if (own.outputs.size() != 1 || !own.outputs[0] || own.outputs[0].numel() != 1) {
      fail("pipeline: number of results of the last stage is ", own.outputs.size(),
           ", expected 1, the loss, of one element");
    }
    losses_[static_cast<size_t>(microbatch)] = own.outputs[0].detach();
    if (!with_gradients_) own.outputs.clear();
  }

  void backward(int stage, int microbatch, bool defers) {
    const TraceSpan span("backward", microbatch);
    Slot& own = slot(stage, microbatch);
    Tensors gradients(own.outputs.size());
    if (!is_last(stage)) {
      gradients = pipeline_.holds(stage + 1) ? input_gradients(stage + 1, microbatch)
                                             : messages_.take(pipeline_.rank_of(stage + 1),
                                                              number(false, stage, microbatch));
    }
    Tensors roots, given;
    for (size_t i = 0; i < own.outputs.size(); ++i) {
      const bool counts = is_last(stage) || gradients[i];
      if (!counts || !own.outputs[i] || !own.outputs[i].requires_grad()) continue;
      roots.push_back(own.outputs[i]);
      given.push_back(gradients[i]);
    }
    own.outputs.clear();
    if (roots.empty()) return;
    std::optional<DeferredGradients::Scope> scope;
    if (defers) scope.emplace(own.weights, own.inputs);
    weft::backward(roots, given);
  }

  const Pipeline& pipeline_;
  const PipelineProgram& program_;
  const bool with_gradients_;
  StageMessages messages_;
  std::map<std::pair<int, int>, Slot> slots_;
  Tensors losses_;
};

std::vector<double> Pipeline::run(int microbatches, bool with_gradients) {
  const int count = microbatches == 0 ? program_.microbatches : microbatches;
  if (count < 1 || count > program_.microbatches) {
    fail("pipeline: number of microbatches is ", count, ", expected 1 to ", program_.microbatches);
  }
  if (with_gradients && !Context::current().grad_enabled) {
    fail("pipeline: gradients are off (no_grad), expected them on; call evaluate for losses alone");
  }
  for (const int stage : own_stages()) stage_of(stage);
  agree(count, with_gradients);
  Device device = stage_mesh_.device();
  for (const auto& [stage, own] : stages_) {
    if (own.module && !own.module->parameters().empty()) {
      device = own.module->parameters()[0]->device();
    }
    if (with_gradients && own.begin) own.begin();
  }
  const Tensors earlier = with_gradients ? set_ties_aside() : Tensors();
  StepStreams streams;
  Run run(*this, with_gradients, device);
  for (const PipelineStep& step : program_.steps[static_cast<size_t>(position())]) {
    const bool is_forward = step.act == Act::forward || step.act == Act::send_activation ||
                            step.act == Act::receive_activation;
    if (step.microbatch >= count || !(with_gradients || is_forward)) continue;
    streams.begin(step);
    run.run(step);
  }
  run.finish();
  if (with_gradients) sum_ties(earlier);
  std::vector<int64_t> bits(static_cast<size_t>(count));
  for (int m = 0; m < count && holds(program_.stages() - 1); ++m) {
    const Tensor& loss = run.losses()[static_cast<size_t>(m)];
    bits[static_cast<size_t>(m)] = std::bit_cast<int64_t>(loss.full_tensor().item());
  }
  // All other ranks add 0.
  line_.all_reduce_numbers(bits, ReduceOp::sum);
  std::vector<double> losses;
  for (const int64_t one : bits) losses.push_back(std::bit_cast<double>(one));
  return losses;
}

std::vector<double> Pipeline::run(int microbatches) { return run(microbatches, true); }

std::vector<double> Pipeline::evaluate(int microbatches) {
  const NoGrad no_grad;
  return run(microbatches, false);
}

std::vector<int> balanced_stages(const std::vector<double>& costs, int stages) {
  const int parts = static_cast<int>(costs.size());
  if (stages < 1 || parts < stages) {
    fail("balanced_stages: number of stages is ", stages, ", expected 1 to ", parts,
         ", the number of parts");
  }
  // least[s][n]: the cost of the most expensive of s runs of the first n parts.
  const double far = HUGE_VAL;
  std::vector<std::vector<double>> least(static_cast<size_t>(stages) + 1,
                                         std::vector<double>(static_cast<size_t>(parts) + 1, far));
  std::vector<std::vector<int>> cut(static_cast<size_t>(stages) + 1,
                                    std::vector<int>(static_cast<size_t>(parts) + 1, 0));
  least[0][0] = 0;
  for (size_t s = 1; s < least.size(); ++s) {
    for (int n = static_cast<int>(s); n <= parts; ++n) {
      double sum = 0;
      for (int first = n - 1; first >= 0; --first) {
        sum += costs[static_cast<size_t>(first)];
        const double most = std::max(sum, least[s - 1][static_cast<size_t>(first)]);
        if (most >= least[s][static_cast<size_t>(n)]) continue;
        least[s][static_cast<size_t>(n)] = most;
        cut[s][static_cast<size_t>(n)] = first;
      }
    }
  }
  std::vector<int> ends(static_cast<size_t>(stages));
  for (int s = stages, n = parts; s > 0;
       n = cut[static_cast<size_t>(s)][static_cast<size_t>(n)], --s) {
    ends[static_cast<size_t>(s) - 1] = n;
  }
  return ends;
}

}  // namespace weft
