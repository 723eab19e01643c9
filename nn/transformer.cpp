// SPDX-License-Identifier: Apache-2.0
#include "weft/transformer.h"

#include <cmath>

#include "nn/families.h"
#include "nn/transformer_block.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/fixed_sums.h"
#include "weft/layers.h"
#include "weft/ops/along_dim.h"
#include "weft/ops/documents.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/networks.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"

namespace weft {

namespace {

/// Adds row `position` + i of a table [rows, dim] to token i of [batch, sequence, dim]; or the rows
/// that a second input names. Of token types, they are the first unless it is given.
class AddedRows final : public Module {
 public:
  AddedRows(int64_t rows, int64_t dim, double deviation) {
    declare("weight", {rows, dim}, normal_values(deviation));
  }
  Tensor positions(const Tensor& x, int64_t position) {
    return call({x}, [this, position](const Tensors& inputs) {
      const Tensor& y = inputs[0];
      return Tensors{y + slice(used(0), 0, position, position + y.size(1))};
    })[0];
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    const Tensor& x = inputs[0];
    return {x + (inputs.size() > 1 ? embedding(used(0), inputs[1]) : slice(used(0), 0, 0, 1))};
  }
};

/// {ids [batch, sequence], segments or mask, types} -> [batch, sequence, dim], and the balance loss
/// if the config has one, of the tokens that a floating last input does not have 0 for: everything
/// but the head.
class Backbone final : public Module {
 public:
  explicit Backbone(const std::shared_ptr<TransformerState>& state) : state_(state) {
    const TransformerConfig& c = state->config;
    tokens_ = add("embed_tokens",
                  std::make_shared<Embedding>(c.vocabulary, c.dim, c.deviation, c.padding));
    if (c.learned_positions) {
      positions_ =
          add("embed_positions", std::make_shared<AddedRows>(c.max_sequence, c.dim, c.deviation));
    }
    if (c.token_types > 0) {
      types_ = add("embed_types", std::make_shared<AddedRows>(c.token_types, c.dim, c.deviation));
    }
    if (c.embedding_norm) embedding_norm_ = add("embed_norm", make_norm(c, c.dim));
    auto layers = std::make_shared<Sequential>();
    for (int64_t i = 0; i < c.layers; ++i) layers->append(make_transformer_block(state, i));
    layers_ = add("layers", layers);
    if (c.final_norm) norm_ = add("norm", make_norm(c, c.dim));
  }
  TransformerState& state() { return *state_; }

 protected:
  Tensors forward(const Tensors& inputs) override {
    Tensors passed = {Tensor()}, given = inputs;
    Tensor mask = state_->counts;
    if (given.size() > 1 && given.back() && is_floating(given.back().dtype())) {
      mask = given.back();
      given.pop_back();
    }
    if (given.size() > 1 && given[1]) passed.push_back(given[1]);
    const bool is_packed = state_->config.causal && passed.size() > 1;
    if (is_packed) passed.push_back(document_positions(passed[1]));
    if (given.size() > 3) passed = {Tensor(), given[1], given[2], given[3]};
    const Tensor positions = passed.size() > 2 ? passed[2] : Tensor();
    passed[0] = state_->is_first_stage() ? embedded(given, positions) : given[0];
    if (mask) passed.push_back(mask);
    Tensor scores, choices;
    double layers = 0;
    if (state_->balance.size() == 2) {
      scores = state_->balance[0], choices = state_->balance[1];
      for (int64_t i = 0; i < state_->first_block; ++i) layers += state_->config.is_sparse(i);
    }
    for (const auto& [name, block] : layers_->children()) {
      const Tensors computed = (*block)(passed);
      passed[0] = computed[0];
      if (computed.size() < 2) continue;
      scores = scores ? scores + computed[1] : computed[1];
      choices = choices ? choices + computed[2] : computed[2];
      ++layers;
    }
    const bool is_normed = norm_ && state_->is_last_stage();
    const Tensor hidden = is_normed ? (*norm_)(passed[0]) : passed[0];
    if (!state_->is_last_stage() && layers > 0) return {hidden, scores, choices};
    if (layers == 0 || state_->cache) return {hidden};
    // transformers computes it of all layers' tokens at once: experts * sum over experts of
    // (choices a token) * (mean score).
    const double factor = static_cast<double>(scores.numel()) / (layers * layers);
    return {hidden, mul(sum(scores * choices), factor)};
  }

 private:
  /// `positions` of tokens of packed documents, or empty.
  Tensor embedded(const Tensors& inputs, const Tensor& positions) {
    const TransformerConfig& c = state_->config;
    Tensor x = (*tokens_)(inputs[0]);
    if (c.embedding_scale != 1) x = mul(x, c.embedding_scale);
    if (types_) {
      x = (*types_)(inputs.size() > 2 ? Tensors{x, inputs[2]} : Tensors{x})[0];
    }
    if (positions_ && positions) {
      x = (*positions_)(Tensors{x, positions})[0];
    } else if (positions_) {
      x = state_->by_rows({x}, [&](const Tensors& rows) {
        return positions_->positions(rows[0], state_->position());
      });
    }
    if (embedding_norm_) x = (*embedding_norm_)(x);
    const bool drops = c.embedding_dropout > 0 && is_training() && !state_->cache;
    return drops ? dropout(x, c.embedding_dropout) : x;
  }

  std::shared_ptr<TransformerState> state_;
  std::shared_ptr<Module> tokens_, embedding_norm_, layers_, norm_;
  std::shared_ptr<AddedRows> positions_, types_;
};

}  // namespace

TransformerModel::TransformerModel(const TransformerConfig& given) {
  check_config("model", given);
  state_ = std::make_shared<TransformerState>(given);
  const TransformerConfig& c = state_->config;
  model_ = add("model", std::make_shared<Backbone>(state_));
  if (c.head == Head::pooler) add("pooler", make_linear(c, c.dim, c.dim, true));
  if (c.head == Head::transform) {
    add("head_dense", make_linear(c, c.dim, c.dim, c.transform_bias));
    add("head_norm", make_norm(c, c.dim));
  }
  if (c.head != Head::linear && c.head != Head::transform) return;
  head_ = add("lm_head", make_linear(c, c.dim, c.vocabulary, c.head_bias));
  if (c.tied) {
    head_->set_parameter("weight", model_->module("embed_tokens").own_parameters()[0].second);
  }
}

TransformerState& state_of(TransformerModel& model) {
  return dynamic_cast<Backbone&>(model.module("model")).state();
}

const TransformerConfig& TransformerModel::config() const { return state_->config; }

void TransformerModel::set_sequence_way(SequenceWay way) { state_->sequence_way = way; }

std::shared_ptr<Module> transformer_block(const TransformerConfig& config, int64_t layer) {
  TransformerConfig checked = config;
  checked.vocabulary = 1, checked.padding = {};
  check_config("transformer_block", checked);
  if (layer < 0 || layer >= config.layers) {
    fail("transformer_block: layer is ", layer, ", expected 0 to ", config.layers - 1);
  }
  return make_transformer_block(std::make_shared<TransformerState>(config), layer);
}

ParameterCounts parameters_of(const TransformerConfig& config) {
  ParameterCounts counts;
  for (const NamedParameter& named : TransformerModel(config).named_parameters()) {
    const int64_t size = named.parameter->shape().product();
    const bool is_of_experts = named.name().find(".mlp.experts.") != std::string::npos;
    counts.total += size;
    counts.active += is_of_experts ? size / config.experts * config.experts_per_token : size;
  }
  counts.multiplied = counts.active - (config.tied ? 0 : config.vocabulary * config.dim);
  return counts;
}

double training_operations_a_token(const TransformerConfig& config, int64_t sequence) {
  const int64_t multiplied = parameters_of(config).multiplied;
  int64_t width = config.heads * config.head_dim;
  if (config.kv_lora_rank > 0) {
    // Scores take the dims of keys, sums those of values.
    width = config.heads * (config.nope_head_dim + config.head_dim + config.value_head_dim) / 2;
  }
  return 6 * static_cast<double>(multiplied) + 12 * static_cast<double>(config.layers) *
                                                   static_cast<double>(width) *
                                                   static_cast<double>(sequence);
}

std::vector<Module*> TransformerModel::blocks() {
  std::vector<Module*> blocks;
  for (const auto& [name, block] : module("model.layers").children()) blocks.push_back(block.get());
  return blocks;
}

std::vector<std::vector<Module*>> TransformerModel::units() {
  std::vector<std::vector<Module*>> units;
  for (Module* block : blocks()) units.push_back({block});
  if (config().tied) return units;
  std::vector<Module*> embedding, head;
  for (const auto& [name, child] : model_->children()) {
    if (name.starts_with("embed")) embedding.push_back(child.get());
    if (name == "norm") head.push_back(child.get());
  }
  for (const auto& [name, child] : children()) {
    if (child != model_) head.push_back(child.get());
  }
  if (!embedding.empty()) units.push_back(embedding);
  if (!head.empty()) units.push_back(head);
  return units;
}

/// Checks positions and places of tokens in any order.
static void check_numbers_of_tokens(const Tensors& inputs) {
  for (const size_t i : {2, 3}) {
    const Tensor& x = inputs[i];
    const char* name = i == 2 ? "positions" : "places";
    if (!x) fail("model: no ", name, " are given, expected those of share_sequence");
    if (is_integer(x.dtype()) && x.shape() == inputs[0].shape()) continue;
    fail("model: ", name, " are ", x.dtype(), " ", x.shape(), ", expected integers ",
         inputs[0].shape());
  }
}

void TransformerModel::check_inputs(const Tensors& inputs) const {
  const TransformerConfig& c = config();
  const bool is_ordered = c.causal && inputs.size() == 4;
  if (inputs.empty() || (inputs.size() > (c.causal ? 2 : 3) && !is_ordered)) {
    fail("model: number of inputs is ", inputs.size(), ", expected 1, the ids, or up to ",
         c.causal ? "2: ids, segments; or 4: ids, segments, positions, places"
                  : "3: ids, mask, types");
  }
  const Tensor& ids = inputs[0];
  if (!state_->is_first_stage()) {
    if (ids.ndim() == 3 && ids.size(2) == c.dim) return;
    fail("model: shape of hidden states is ", ids.shape(), ", expected [batch, sequence, ", c.dim,
         "], what the stage before computes");
  }
  if (ids.ndim() != 2) fail("model: shape of ids is ", ids.shape(), ", expected [batch, sequence]");
  if (ids.size(1) > c.max_sequence) {
    fail("model: sequence length is ", ids.size(1), ", expected at most ", c.max_sequence);
  }
  if (is_ordered) check_numbers_of_tokens(inputs);
  if (inputs.size() < 2 || !inputs[1]) return;
  const Tensor& second = inputs[1];
  const char* name = c.causal ? "segments" : "the mask";
  if (c.causal ? !is_integer(second.dtype()) : second.dtype() != boolean) {
    fail("model: dtype of ", name, " is ", second.dtype(), ", expected ",
         c.causal ? "integers" : "bool; an encoder takes no segments");
  }
  if (second.shape() != ids.shape()) {
    fail("model: shape of ", name, " is ", second.shape(), ", expected that of the ids, ",
         ids.shape());
  }
}

Tensor TransformerModel::transformed(const Tensor& hidden) {
  const TransformerConfig& c = config();
  if (c.head != Head::transform) return hidden;
  return module("head_norm")(activated(c.head_activation, module("head_dense")(hidden)));
}

Tensor TransformerModel::logits_of(const Tensor& hidden) {
  const TransformerConfig& c = config();
  Tensor x = (*head_)(transformed(hidden));
  if (c.logit_divisor != 1) x = div(x, c.logit_divisor);
  if (c.logit_softcap > 0) x = mul(tanh(div(x, c.logit_softcap)), c.logit_softcap);
  return x;
}

Tensors TransformerModel::forward(const Tensors& inputs) {
  check_inputs(inputs);
  const Tensors computed = (*model_)(inputs);
  if (!state_->is_last_stage()) return computed;
  const Tensor& hidden = computed[0];
  if (config().head == Head::none) return {hidden};
  if (head_) return {logits_of(hidden)};
  const Tensor first = reshape(slice(hidden, 1, 0, 1), {hidden.size(0), hidden.size(2)});
  return {hidden, tanh(module("pooler")(first))};
}

/// The number of targets that count.
static Tensor counted(const Tensor& targets) {
  return sum(cast(not_equal(targets, kIgnoredTarget), f32));
}

/// The reduction and divisor of a loss, checked.
static LossReduction checked_reduction(const TransformerLossOptions& options) {
  if (!(options.divisor >= 0) || !std::isfinite(options.divisor)) {
    fail("model: divisor of the loss is ", options.divisor,
         ", expected a number above 0, or 0 for "
         "none");
  }
  if (options.divisor > 0 && options.reduction != LossReduction::sum) {
    fail("model: divisor of the loss is ", options.divisor,
         ", expected none unless the reduction is a sum");
  }
  return options.reduction;
}

Tensor TransformerModel::head_loss(const Tensor& hidden, const Tensor& targets,
                                   LossReduction reduction) {
  const auto run = [this, targets, reduction](const Tensors& x) {
    const auto& parameters = head_->own_parameters();
    LinearCrossEntropyOptions options{.loss = {.reduction = reduction},
                                      .softcap = config().logit_softcap,
                                      .multiplier = 1 / config().logit_divisor};
    if (parameters.size() > 1) options.bias = parameters[1].second->tensor();
    return Tensors{linear_cross_entropy(x[0], parameters[0].second->tensor(), targets, options)};
  };
  return head_->call({transformed(hidden)}, run)[0];
}

Tensor TransformerModel::loss(const Tensor& ids, const Tensor& targets,
                              const TransformerLossOptions& options) {
  if (!head_ || !state_->is_last_stage()) {
    fail("model: a model without a head has no loss, expected one with a head");
  }
  const LossReduction reduction = checked_reduction(options);
  const double divisor = options.divisor;
  return call(inputs_of(ids, options), [this, targets, reduction, divisor](const Tensors& inputs) {
    check_inputs(inputs);
    Tensors given_on = inputs;
    if (config().balance_loss && state_->is_first_stage() && Context::current().grad_enabled) {
      given_on.push_back(without_padding(targets, inputs.size() > 3 ? inputs[3] : Tensor()));
    }
    const Tensors computed = (*model_)(given_on);
    Tensor loss = head_loss(computed[0], targets, reduction);
    const bool is_sum = reduction == LossReduction::sum;
    if (computed.size() > 1 && Context::current().grad_enabled) {
      balance_loss_ = computed[1].detach();
      Tensor balance = mul(computed[1], config().balance_coefficient);
      if (is_sum) balance = mul(balance, counted(targets));
      if (reduction != LossReduction::none) loss = loss + balance;
    }
    if (const FixedSums* sums = FixedSums::current()) loss = sums->reduced(loss);
    return Tensors{divisor > 0 ? div(loss, divisor) : loss};
  })[0];
}

/// Throws unless `cache` has room for `count` tokens more.
static void check_room(const TransformerConfig& c, const KeyValueCache& cache, int64_t count) {
  if (count == 0 || cache.position + count > cache.context) {
    fail("decode: number of tokens is ", count, " after ", cache.position,
         ", expected at least 1, and ", cache.context, " in all at most");
  }
  if (cache.position + count > c.max_sequence) {
    fail("model: sequence length is ", cache.position + count, ", expected at most ",
         c.max_sequence);
  }
  if (cache.position > 0 && count > 1) {
    fail("decode: number of tokens is ", count, " after ", cache.position,
         ", expected one at a time after the prompt");
  }
}

Tensor TransformerModel::decode(const Tensor& ids, KeyValueCache& cache) {
  return decode(ids, std::vector<KeyValueCache*>{&cache});
}

Tensor TransformerModel::decode(const Tensor& ids, std::span<KeyValueCache* const> caches) {
  const TransformerConfig& c = config();
  if (!head_ || !c.causal) {
    fail("decode: the model is an encoder (", c.family, "), expected a decoder with a head");
  }
  if (caches.size() != 1 && static_cast<int64_t>(caches.size()) != ids.size(0)) {
    fail("decode: number of caches is ", caches.size(), ", expected 1 or that of the rows, ",
         ids.size(0));
  }
  const int64_t count = ids.size(1);
  for (KeyValueCache* cache : caches) {
    check_room(c, *cache, count);
    cache->layers.resize(static_cast<size_t>(c.layers));
  }
  const NoGrad no_grad;
  auto stop = [](TransformerState* state) { state->cache = nullptr, state->caches = {}; };
  const std::unique_ptr<TransformerState, decltype(stop)> decoding(state_.get(), stop);
  state_->cache = caches[0], state_->caches = caches;
  const Tensor hidden = (*model_)(ids);
  const Tensor logits = logits_of(slice(hidden, 1, count - 1, count));
  for (KeyValueCache* cache : caches) cache->position += count;
  return logits;
}

}  // namespace weft
