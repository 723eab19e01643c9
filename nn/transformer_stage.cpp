// SPDX-License-Identifier: Apache-2.0
#include "weft/transformer_stage.h"

#include <string>
#include <utility>

#include "nn/transformer_block.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft {

/// Lets each parameter draw the numbers that it draws in the whole model, whichever others are left
/// out, and the numbers after it continue as they do there.
static void keep_initial_values(const Module& model) {
  const NoGrad no_grad;
  RandomState& random = Context::current().random;
  const uint64_t begin = random.stream;
  std::vector<uint64_t> ends;
  for (const ParameterPtr& parameter : model.parameters()) {
    if (parameter->initializer()) {
      parameter->initializer()(empty(parameter->shape(), {parameter->dtype(), meta}));
    }
    ends.push_back(random.stream);
  }
  const uint64_t all = random.stream;
  random.stream = begin;
  uint64_t own = begin;
  size_t i = 0;
  for (const ParameterPtr& parameter : model.parameters()) {
    const Parameter::Initializer draw = parameter->initializer();
    const uint64_t at = std::exchange(own, ends[i++]);
    if (!draw) continue;
    parameter->set_initializer([draw, at, all](const Tensor& tensor) {
      Context::current().random.stream = at;
      draw(tensor);
      Context::current().random.stream = all;
    });
  }
}

static void check_stage(const TransformerModel& model, int64_t first, int64_t end) {
  const TransformerConfig& c = model.config();
  if (first < 0 || first >= end || end > c.layers) {
    fail("keep_stage: blocks are ", first, " to ", end, ", expected a range of the ", c.layers,
         " layers that has one");
  }
  if (!c.causal || c.head != Head::linear) {
    fail("keep_stage: the model (", c.family, ") is not a decoder with a head, expected one");
  }
  for (const NamedParameter& named : model.named_parameters()) {
    if (!named.parameter->is_materialized()) continue;
    fail("keep_stage: parameter ", named.name(), " has memory, expected a declared model");
  }
}

void keep_stage(TransformerModel& model, int64_t first, int64_t end) {
  check_stage(model, first, end);
  keep_initial_values(model);
  const TransformerConfig& c = model.config();
  TransformerState& state = state_of(model);
  state.first_block = first, state.end_block = end;
  Module& layers = model.module("model.layers");
  for (int64_t i = 0; i < c.layers; ++i) {
    if (i < first || i >= end) layers.remove(std::to_string(i));
  }
  Module& backbone = model.module("model");
  if (!state.is_first_stage()) {
    for (const char* name : {"embed_tokens", "embed_positions", "embed_types", "embed_norm"}) {
      backbone.remove(name);
    }
  }
  if (!state.is_last_stage()) backbone.remove("norm"), model.remove("lm_head");
}

namespace {

/// Gives a model the sums of the stages before, and which tokens count, while it exists.
class BalanceScope : NotCopied {
 public:
  BalanceScope(TransformerModel& stage, const Tensors& inputs, const Tensor& targets,
               const Tensor& places)
      : state_(state_of(stage)) {
    if (inputs.empty()) fail("stage: number of inputs is 0, expected ids, or outputs of a stage");
    state_.balance.assign(inputs.begin() + 1, inputs.end());
    const bool counts = stage.config().balance_loss && Context::current().grad_enabled;
    if (counts && targets) state_.counts = without_padding(targets, places);
  }
  ~BalanceScope() { state_.balance.clear(), state_.counts = {}; }

 private:
  TransformerState& state_;
};

}  // namespace

Tensors run_stage(TransformerModel& stage, const Tensors& inputs,
                  const TransformerLossOptions& options, const Tensor& targets) {
  const BalanceScope scope(stage, inputs, targets, options.order.places);
  return stage(inputs_of(inputs[0], options));
}

Tensor stage_loss(TransformerModel& stage, const Tensors& inputs, const Tensor& targets,
                  const TransformerLossOptions& options) {
  const BalanceScope scope(stage, inputs, targets, options.order.places);
  return stage.loss(inputs[0], targets, options);
}

std::vector<double> block_costs(const TransformerConfig& config, int64_t sequence) {
  std::vector<double> costs;
  for (int64_t i = 0; i < config.layers; ++i) {
    // Multiplications of a token: those by parameters, and those of attention.
    double products = 0;
    for (const ParameterPtr& parameter : transformer_block(config, i)->parameters()) {
      double size = static_cast<double>(parameter->shape().product());
      if (config.is_sparse(i) && parameter->shape().ndim() == 3) {
        size *= static_cast<double>(config.experts_per_token) / static_cast<double>(config.experts);
      }
      products += size;
    }
    costs.push_back(products + static_cast<double>(config.heads * config.head_dim * sequence));
  }
  // Backward of the table's rows costs about as much as writing the table's gradient.
  costs.front() += static_cast<double>(config.dim);
  costs.back() += static_cast<double>(config.vocabulary * config.dim);
  return costs;
}

}  // namespace weft
