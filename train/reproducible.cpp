// SPDX-License-Identifier: Apache-2.0
#include "train/reproducible.h"

#include <algorithm>
#include <bit>

#include "train/run.h"
#include "weft/adam.h"
#include "weft/adapters.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/fixed_products.h"
#include "weft/extend/fixed_sums.h"
#include "weft/extend/row_order.h"
#include "weft/layers.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/pipelined_transformer.h"
#include "weft/shared_batch.h"
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
  check_halves();
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

std::vector<std::string> Trainer::Run::halved_axes() const {
  std::vector<std::string> axes;
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    const bool has_rows = rows_[axis].is_shard() || mesh_.axis_size(axis) == 1;
    if (!has_rows && !has_stages(axis)) axes.push_back(mesh_.axis_name(axis));
  }
  return axes;
}

bool Trainer::Run::halves_rows() const {
  const std::vector<std::string> axes = halved_axes();
  return axes.size() == 1 && axes[0] == "cp";
}

/// All ways add sums that such ranks add as two halves, of what a model may cut in two.
void Trainer::Run::check_halves() const {
  const std::vector<std::string> axes = halved_axes();
  if (axes.empty()) return;
  if (axes.size() > 1) {
    fail("trainer: ranks along axes ", axes[0], " and ", axes[1],
         " hold the same rows, expected those of one axis for reproducible");
  }
  const auto refuse = [&](const std::string& what, const char* expected) {
    fail("trainer: ", what, " along axis ", axes[0], ", expected ", expected, " for reproducible");
  };
  const int ranks = mesh_.axis_size(mesh_.axis(axes[0]));
  if (ranks != 2) refuse(concat(ranks, " ranks hold the same rows"), "2");
  const TransformerConfig& c =
      options_.pipeline ? options_.pipeline->stages()[0]->config() : balanced_->config();
  if (c.experts > 0) refuse("experts are cut", "none");
  if (halves_rows() && options_.pipeline) refuse("stages share sequences", "one stage");
  if (halves_rows() && c.query_norm != QueryNorm::none) refuse("norms of queries are cut", "none");
  if (halves_rows() && c.sinks) refuse("attention has sinks", "none");
  if (c.query_norm == QueryNorm::width) refuse("norms of the width of queries are cut", "none");
  if (c.kv_lora_rank > 0) refuse("latent attention is cut", "attention by heads");
  if (halves_rows() && c.tied) refuse("the embedding and the head are tied", "two parameters");
  if (!halves_rows() && (c.heads % 2 != 0 || c.kv_heads % 2 != 0)) {
    refuse(concat(c.heads, " query and ", c.kv_heads, " key heads are cut"), "even numbers");
  }
  if (!halves_rows() && !adapted_linears(model_).empty()) refuse("adapters are cut", "none");
  if (!FixedProducts::have_equal_parts()) {
    refuse("products by kernels without AVX-512 are cut", "a processor with AVX-512");
  }
}

int64_t Trainer::Run::ranks_with_rows() const {
  int64_t ranks = 1;
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (rows_[axis].is_shard()) ranks *= mesh_.axis_size(axis);
  }
  return ranks;
}

/// Returns how many rows ranks compute at once, one each, so that the collectives add them in the
/// tree. It is a power of two: the other ranks have none.
int64_t Trainer::Run::rows_in_tree() {
  int64_t rows = 1;
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (!rows_[axis].is_shard()) continue;
    rows *= static_cast<int64_t>(std::bit_floor(static_cast<unsigned>(mesh_.axis_size(axis))));
  }
  // Halves of rows are leaves of the tree too.
  const int64_t parts = halves_rows() ? 2 : 1;
  for (; rows * parts > 1; rows /= 2) {
    const Box own = empty({rows, 1}, {DType::i64, cpu, rows_}).box();
    int64_t part = own.shape[0] == 0 ? -1 : own.offset[0] * parts;
    if (part >= 0 && parts == 2) part += mesh_["cp"].communicator().rank();
    if (adds_rows_in_tree(model_, mesh_.communicator(), part, rows * parts)) break;
  }
  const int64_t ranks = ranks_with_rows();
  if (rows == 0 || (rows == 1 && ranks > 1)) {
    fail("trainer: gradients of some parameters are not summed over all ranks of ", mesh_,
         ", expected no axis that cuts experts",
         halves_rows() ? " and cp behind the axes that cut rows" : "", " for reproducible");
  }
  if (options_.batch % rows != 0) {
    fail("trainer: batch is ", options_.batch, ", expected a multiple of ", rows,
         ", the rows that ranks compute at once, for reproducible");
  }
  if (rows < ranks) {
    tell(concat("reproducible: ", rows, " of ", ranks, " ranks compute a row at a time"));
  }
  return rows;
}

Tensor Trainer::Run::sum_of_losses(const Batch& rows, double divisor) {
  const TraceSpan span("forward", -1, rows.ids.device());
  const FixedProducts fixed;
  auto& model = dynamic_cast<TransformerModel&>(model_);
  SharedBatch batch{rows.ids, rows.targets, {.segments = rows.segments}};
  if (halves_rows()) {
    batch = share_batch(model.config(), rows.ids, rows.targets, rows.segments, mesh_["cp"], true);
  }
  batch.options.reduction = LossReduction::sum;
  batch.options.divisor = divisor;
  return model.loss(batch.ids, batch.targets, batch.options);
}

/// The same by rows. The divisor is that of all rows, because a product with the share of a
/// micro-step would round.
void Trainer::Run::differentiate_rows(const std::vector<MicroBatch>& batches) {
  double total = 0;
  for (const MicroBatch& batch : batches) total += static_cast<double>(batch.counted);
  std::vector<double> own;
  GradientTree tree;
  const FixedProducts fixed;
  const RandomState random = Context::current().random;
  for (const MicroBatch& batch : batches) {
    // Each micro-step draws from the streams of the first, at the places of its rows.
    Context::current().random = random;
    const FixedSums sums(halved_axes(), (&batch - batches.data()) * micro_batch());
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
  const FixedSums sums(halved_axes());
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
double Trainer::Run::sum_over_rows(std::vector<double> own) const {
  for (const std::string& axis : halved_axes()) {
    // Ranks with the same rows count once.
    if (mesh_.coordinate(mesh_.axis(axis)) > 0) std::ranges::fill(own, 0);
  }
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
