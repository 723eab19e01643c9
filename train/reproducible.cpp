// SPDX-License-Identifier: Apache-2.0
#include "train/reproducible.h"

#include <algorithm>
#include <bit>

#include "train/run.h"
#include "weft/adam.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/fixed_products.h"
#include "weft/extend/row_order.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/pipelined_transformer.h"
#include "weft/trace.h"
#include "weft/transformer.h"

namespace weft {

void GradientTree::add(const std::vector<ParameterPtr>& parameters, int64_t number, bool is_last) {
  const NoGrad no_grad;
  const PurposeScope purpose(Purpose::gradients);
  size_t level = 0;
  // A sum that waits is complete when the number has a one in its place. The last micro-step also
  // joins sums whose neighbours are missing.
  for (int64_t bits = number; is_last ? bits > 0 : bits % 2 == 1; bits /= 2, ++level) {
    if (bits % 2 == 0) continue;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& earlier = waiting_[level][i];
      const Tensor gradient = parameters[i]->grad();
      if (earlier && gradient) add_(gradient, earlier);
      if (earlier && !gradient) parameters[i]->value().set_grad(earlier);
    }
    waiting_[level].clear();
  }
  if (is_last) return;
  if (waiting_.size() <= level) waiting_.resize(level + 1);
  for (const ParameterPtr& parameter : parameters) {
    const Tensor gradient = parameter->grad();
    waiting_[level].push_back(gradient ? clone(gradient) : gradient);
  }
}

double own_part(const Tensor& sum) {
  const Tensor part = sum.detach();
  return (part.is_sharded() ? part.local() : part).item();
}

static bool is_elementwise(const Optimizer& optimizer) {
  return dynamic_cast<const AdamW*>(&optimizer) || dynamic_cast<const Adam*>(&optimizer) ||
         dynamic_cast<const SGD*>(&optimizer) || dynamic_cast<const Lion*>(&optimizer);
}

/// Backwards of a stage leave the gradients of one micro-batch, and no other stage adds to them.
static void check_reproducible_stages(const PipelinedTransformer& pipeline) {
  const PipelineProgram& program = pipeline.pipeline().program();
  for (const auto& steps : program.steps) {
    const auto is_apart = [](const PipelineStep& step) {
      return step.act == PipelineAct::backward_weight;
    };
    if (std::ranges::none_of(steps, is_apart)) continue;
    fail("trainer: schedule ", program.name,
         " computes gradients of weights apart, expected gpipe, 1f1b or interleaved for "
         "reproducible");
  }
  if (program.stages() > 1 && pipeline.stages()[0]->config().tied) {
    fail(
        "trainer: the first and the last stage share the embedding, expected a model that is not "
        "tied for reproducible");
  }
}

void Trainer::Run::check_reproducible() {
  const auto refuse = [](const std::string& what, const char* expected) {
    fail("trainer: ", what, ", expected ", expected, " for reproducible");
  };
  if (options_.pipeline) check_reproducible_stages(*options_.pipeline);
  if (options_.device != cpu) refuse(concat("device is ", options_.device), "cpu");
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (rows_[axis].is_shard() || mesh_.axis_size(axis) == 1 || has_stages(axis)) continue;
    refuse(concat("ranks along axis ", mesh_.axis_name(axis), " hold the same rows"),
           "axes that cut rows");
  }
  if (is_scaled()) refuse("model computes in f16", "f32 or bf16");
  const TransformerModel& model = options_.pipeline ? *options_.pipeline->stages()[0] : *balanced_;
  if (model.config().balance_loss) refuse("model has a balance loss of experts", "none");
  for (const auto& [name, module] : model_.named_modules()) {
    const auto* linear = dynamic_cast<const Linear*>(module);
    if (linear && linear->is_float8()) refuse(concat("module ", name, " computes in f8"), "none");
  }
  if (!is_elementwise(optimizer_)) {
    refuse("optimizer is not elementwise", "AdamW, Adam, SGD or Lion");
  }
  for (const NamedParameter& named : optimizer_.parameters()) {
    const DType dtype = named.parameter->value().dtype();
    if (dtype != f32) refuse(concat("parameter ", named.name(), " is ", dtype), "f32");
  }
  const auto [obstacle, expected] = reduction_obstacle(model_);
  if (!obstacle.empty()) refuse(obstacle, expected);
}

/// Returns how many rows ranks compute at once, one each, so that the collectives add them in the
/// tree. It is a power of two: the other ranks have none.
int64_t Trainer::Run::rows_in_tree() {
  int64_t rows = 1;
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (has_stages(axis)) continue;
    rows *= static_cast<int64_t>(std::bit_floor(static_cast<unsigned>(mesh_.axis_size(axis))));
  }
  for (; rows > 1; rows /= 2) {
    const Box own = empty({rows, 1}, {DType::i64, cpu, rows_}).box();
    const int64_t row = own.shape[0] == 0 ? -1 : own.offset[0];
    if (adds_rows_in_tree(model_, mesh_.communicator(), row, rows)) break;
  }
  const int stages = options_.pipeline ? mesh_.axis_size(mesh_.axis("pp")) : 1;
  if (rows == 1 && mesh_.size() > stages) {
    fail("trainer: gradients of some parameters are not summed over all ranks of ", mesh_,
         ", expected no axis that cuts experts for reproducible");
  }
  if (options_.batch % rows != 0) {
    fail("trainer: batch is ", options_.batch, ", expected a multiple of ", rows,
         ", the rows that ranks compute at once, for reproducible");
  }
  if (rows < mesh_.size() / stages) {
    tell(concat("reproducible: ", rows, " of ", mesh_.size() / stages,
                " ranks compute a row at a time"));
  }
  return rows;
}

Tensor Trainer::Run::sum_of_losses(const Batch& rows, double divisor) {
  const TraceSpan span("forward", -1, rows.ids.device());
  const FixedProducts fixed;
  auto& model = dynamic_cast<TransformerModel&>(model_);
  const RandomState before = Context::current().random;
  Tensor loss =
      model.loss(rows.ids, rows.targets,
                 {.segments = rows.segments, .reduction = LossReduction::sum, .divisor = divisor});
  if (Context::current().random == before) return loss;
  fail("trainer: model draws random numbers, as for dropout, expected none for reproducible");
}

/// The same by rows. The divisor is that of all rows, because a product with the share of a
/// micro-step would round.
void Trainer::Run::differentiate_rows(const std::vector<MicroBatch>& batches) {
  double total = 0;
  for (const MicroBatch& batch : batches) total += static_cast<double>(batch.counted);
  std::vector<double> own;
  GradientTree tree;
  const FixedProducts fixed;
  for (const MicroBatch& batch : batches) {
    optimizer_.zero_grad();
    const Tensor loss = sum_of_losses(batch.rows, total);
    const TraceSpan span("backward", -1, batch.rows.ids.device());
    loss.backward();
    own.push_back(own_part(loss));
    tree.add(updated_, &batch - batches.data(), &batch == &batches.back());
  }
  losses_ = {full({1}, sum_over_rows(own), {.dtype = f64})};
}

/// The same by the stages of a pipeline, for as many rows at a time as its program has.
void Trainer::Run::differentiate_stages_by_rows(const std::vector<MicroBatch>& batches) {
  PipelinedTransformer& pipeline = *options_.pipeline;
  const auto most = static_cast<size_t>(pipeline.pipeline().program().microbatches);
  double total = 0;
  for (const MicroBatch& batch : batches) total += static_cast<double>(batch.counted);
  std::map<int, GradientTree> trees;
  std::vector<double> own;
  const FixedProducts fixed;
  while (own.size() < batches.size()) {
    std::vector<Batch> rows;
    const size_t first = own.size();
    for (size_t i = first; i < std::min(batches.size(), first + most); ++i) {
      rows.push_back(batches[i].rows);
    }
    const auto take = [&](int stage, const std::vector<ParameterPtr>& parameters, int number) {
      const size_t at = first + static_cast<size_t>(number);
      const bool is_last = at + 1 == batches.size();
      trees[stage].add(parameters, static_cast<int64_t>(at), is_last);
      for (const ParameterPtr& parameter : parameters) {
        if (!is_last) parameter->clear_grad();
      }
    };
    for (const double loss : pipeline.run_rows(rows, total, take)) own.push_back(loss);
  }
  losses_ = {full({1}, sum_over_rows(own), {.dtype = f64})};
}

/// Returns the sum of each rank's numbers, one for each of its rows, in the order of the rows.
double Trainer::Run::sum_over_rows(const std::vector<double>& own) const {
  std::vector<int64_t> bits;
  for (const double number : own) bits.push_back(std::bit_cast<int64_t>(number));
  const std::vector<int64_t> all = mesh_.communicator().all_gather_numbers(bits);
  double sum = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    for (size_t at = i; at < all.size(); at += own.size()) sum += std::bit_cast<double>(all[at]);
  }
  return sum;
}

}  // namespace weft
