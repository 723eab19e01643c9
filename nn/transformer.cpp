// SPDX-License-Identifier: Apache-2.0
#include "weft/transformer.h"

#include "nn/transformer_block.h"
#include "nn/transformer_config.h"
#include "weft/error.h"
#include "weft/layers.h"
#include "weft/ops/networks.h"

namespace weft {

namespace {

/// ids [batch, sequence] -> [batch, sequence, dim]: everything but the head.
class LlamaModel final : public Module {
 public:
  explicit LlamaModel(const TransformerConfig& config) {
    embed_tokens_ = add("embed_tokens", std::make_shared<Embedding>(config.vocabulary, config.dim,
                                                                    config.deviation));
    auto layers = std::make_shared<Sequential>();
    for (int64_t i = 0; i < config.layers; ++i) layers->append(make_transformer_block(config));
    layers_ = add("layers", layers);
    norm_ = add("norm", std::make_shared<RMSNorm>(config.dim, config.norm_eps));
  }

 protected:
  Tensors forward(const Tensors& inputs) override {
    return (*norm_)((*layers_)((*embed_tokens_)(inputs)));
  }

 private:
  std::shared_ptr<Module> embed_tokens_, layers_, norm_;
};

}  // namespace

TransformerModel::TransformerModel(const TransformerConfig& config) : config_(config) {
  if (const std::string mistake = mistake_in(config); !mistake.empty()) fail("model: ", mistake);
  model_ = add("model", std::make_shared<LlamaModel>(config));
  head_ = add("lm_head",
              std::make_shared<Linear>(config.dim, config.vocabulary, false, config.deviation));
  if (config.tied) {
    head_->set_parameter("weight", model_->module("embed_tokens").own_parameters()[0].second);
  }
}

double training_operations_a_token(const TransformerConfig& config, int64_t sequence) {
  int64_t multiplied = config.tied ? 0 : -config.vocabulary * config.dim;
  for (const ParameterPtr& parameter : TransformerModel(config).parameters()) {
    multiplied += parameter->shape().product();
  }
  const int64_t heads_width = config.heads * config.head_dim;
  return 6 * static_cast<double>(multiplied) + 12 * static_cast<double>(config.layers) *
                                                   static_cast<double>(heads_width) *
                                                   static_cast<double>(sequence);
}

std::vector<Module*> TransformerModel::blocks() {
  std::vector<Module*> blocks;
  for (const auto& [name, block] : module("model.layers").children()) blocks.push_back(block.get());
  return blocks;
}

void TransformerModel::check_ids(const Tensors& inputs) const {
  if (inputs.size() != 1)
    fail("model: number of inputs is ", inputs.size(), ", expected 1, the ids");
  const Tensor& ids = inputs[0];
  if (ids.ndim() != 2) fail("model: shape of ids is ", ids.shape(), ", expected [batch, sequence]");
  if (ids.size(1) > config_.max_sequence) {
    fail("model: sequence length is ", ids.size(1), ", expected at most ", config_.max_sequence);
  }
}

Tensors TransformerModel::forward(const Tensors& inputs) {
  check_ids(inputs);
  return (*head_)((*model_)(inputs));
}

Tensor TransformerModel::loss(const Tensor& ids, const Tensor& targets) {
  return call({ids}, [this, targets](const Tensors& inputs) {
    check_ids(inputs);
    return head_->call((*model_)(inputs), [head = head_.get(), targets](const Tensors& x) {
      const Tensor& weight = head->own_parameters()[0].second->tensor();
      return Tensors{linear_cross_entropy(x[0], weight, targets)};
    });
  })[0];
}

}  // namespace weft
