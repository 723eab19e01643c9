// SPDX-License-Identifier: Apache-2.0
#include "tests/support/llama_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/hugging_face.h"
#include "weft/ops.h"
#include "weft/optimizers.h"
#include "weft/safetensors.h"

namespace weft {

namespace {

/// The contents of reference.safetensors.
class Reference {
 public:
  explicit Reference(const std::string& folder) : file_(folder + "/reference.safetensors") {}

  Tensor tensor(const std::string& name) const {
    const SafetensorsEntry& entry = file_.entry(name);
    Tensor tensor = empty(entry.shape, {.dtype = entry.dtype});
    file_.read_box(entry, tensor.box(), tensor.block().data);
    return tensor;
  }
  double number(const std::string& name) const { return std::stod(file_.metadata().at(name)); }
  const std::vector<SafetensorsEntry>& entries() const { return file_.entries(); }

 private:
  SafetensorsFile file_;
};

/// A Llama and the batches on which it is compared.
struct Comparison {
  const Reference& reference;
  const LlamaSetup& setup;
  TransformerModel& model;
  /// [batches, rows, sequence + 1].
  Tensor tokens;

  /// A batch without its last column (`start` 0) or without its first (`start` 1).
  Tensor columns(int64_t batch, int64_t start) const {
    const Tensor rows = squeeze(slice(tokens, 0, batch, batch + 1), 0);
    const Tensor part = slice(rows, 1, start, start + rows.size(1) - 1);
    return (setup.batch ? setup.batch(part) : part).to(setup.device);
  }
  Tensor inputs(int64_t batch) const { return columns(batch, 0); }
  Tensor targets(int64_t batch) const { return columns(batch, 1); }
};

}  // namespace

/// max|a - b| / max|b|.
static double relative_difference(const Tensor& value, const Tensor& expected) {
  const auto a = value.full_tensor().to(cpu).to_vector<double>();
  const auto b = expected.to_vector<double>();
  if (a.size() != b.size()) return INFINITY;
  double difference = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return INFINITY;
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

static void expect_first_step(const Comparison& c) {
  constexpr double kBound = 1e-5;
  const Tensor logits = c.model(c.inputs(0));
  EXPECT_LE(relative_difference(logits, c.reference.tensor("logits")), kBound) << "logits";
  const Tensor loss = cross_entropy(logits, c.targets(0));
  EXPECT_LE(relative_difference(loss, c.reference.tensor("loss")), kBound) << "loss";
  loss.backward();
  size_t compared = 0;
  for (const NamedParameter& named : c.model.named_parameters()) {
    const Tensor gradient = named.parameter->grad();
    ASSERT_TRUE(gradient) << named.name();
    const Tensor expected = c.reference.tensor("grad." + named.name());
    EXPECT_LE(relative_difference(gradient, expected), kBound) << named.name();
    ++compared;
  }
  EXPECT_EQ(compared, std::count_if(c.reference.entries().begin(), c.reference.entries().end(),
                                    [](const auto& e) { return e.name.starts_with("grad."); }));
}

static void expect_losses(const Comparison& c) {
  AdamW optimizer(c.model.named_parameters(), {.learning_rate = c.reference.number("lr"),
                                               .beta1 = c.reference.number("beta1"),
                                               .beta2 = c.reference.number("beta2"),
                                               .eps = c.reference.number("eps"),
                                               .weight_decay = c.reference.number("weight_decay")});
  const auto losses = c.reference.tensor("losses").to_vector<double>();
  for (size_t step = 0; step < losses.size(); ++step) {
    const int64_t batch = static_cast<int64_t>(step) % c.tokens.size(0);
    optimizer.zero_grad();
    const Tensor loss = c.model.loss(c.inputs(batch), c.targets(batch));
    loss.backward();
    EXPECT_NEAR(loss.full_tensor().item(), losses[step], 1e-4) << "step " << step;
    optimizer.step();
  }
}

void expect_as_transformers(const std::string& name, const LlamaSetup& setup) {
  const std::string folder = WEFT_SOURCE_DIR "/tests/reference/" + name;
  const Reference reference(folder);
  TransformerModel model(transformer_config(folder));
  if (setup.shard) setup.shard(model);
  model.materialize(setup.device);
  load_hugging_face(model, folder);
  const Comparison comparison{reference, setup, model, reference.tensor("tokens")};
  expect_first_step(comparison);
  expect_losses(comparison);
}

}  // namespace weft
