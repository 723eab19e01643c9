// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/fsdp.h"
#include "weft/losses.h"
#include "weft/multihead_attention.h"
#include "weft/ops.h"
#include "weft/summary.h"
#include "weft/transformer.h"

namespace weft {

static Tensor counted_up(const Shape& shape) {
  return reshape(div(cast(arange(shape.product()), f32), 7), shape);
}

// The numbers are those of PyTorch: tests/python/torch_modules_test.py compares more of them.
TEST(TorchModules, LossesAreModules) {
  const Tensor x = from_values(std::vector<float>{0.5F, -1, 2}, {3});
  const Tensor y = from_values(std::vector<float>{0, 1, 2.25F}, {3});
  EXPECT_NEAR(MSELoss()(x, y).item(), (0.25 + 4 + 0.0625) / 3, 1e-6);
  EXPECT_NEAR(L1Loss("sum")(x, y).item(), 2.75, 1e-6);
  EXPECT_NEAR(SmoothL1Loss("sum")(x, y).item(), 0.125 + 1.5 + 0.03125, 1e-6);
  EXPECT_NEAR(HuberLoss("sum", 0.5)(x, y).item(), 0.125 + 0.875 + 0.03125, 1e-6);
  const Tensor p = from_values(std::vector<float>{0.5F, 0.25F}, {2});
  const Tensor one = ones({2});
  EXPECT_NEAR(BCELoss({}, "sum")(p, one).item(), 3 * std::log(2), 1e-6);
  EXPECT_NEAR(BCEWithLogitsLoss()(zeros({2}), one).item(), std::log(2), 1e-6);
  EXPECT_NEAR(KLDivLoss("batchmean")(log(p), one).item(), 1.5 * std::log(2), 1e-6);
  const Tensor rows = log_softmax(counted_up({2, 3}));
  const Tensor classes = from_values(std::vector<int64_t>{2, kIgnoredTarget}, {2});
  EXPECT_NEAR(NLLLoss()(rows, classes).item(), -rows.to_vector<double>()[2], 1e-6);
  EXPECT_NEAR(CrossEntropyLoss()(counted_up({2, 3}), classes).item(),
              NLLLoss()(rows, classes).item(), 1e-6);
  MSELoss loss;
  EXPECT_EQ(error_of([&] { loss.Module::operator()(Tensors{x}); }),
            "mse_loss: number of inputs is 1, expected 2: input and target");
}

TEST(TorchModules, AttentionAgreesOnRanks) {
  const Tensor x = div(counted_up({3, 5, 8}), 10);
  const auto made = [&](const Tensor& input, const std::function<void(Module&)>& shard) {
    MultiheadAttention attention(8, 2, {.batch_first = true});
    shard(attention);
    attention.materialize();
    const Tensors y =
        attention.attend(input, input, input, {.is_causal = true}, AttentionWeights::averaged);
    sum(y[0]).backward();
    std::vector<float> all = y[0].full_tensor().to_vector<float>();
    for (const Tensor& each : {y[1], attention.parameters()[0]->grad()}) {
      const auto values = each.full_tensor().to_vector<float>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  Context::current().random = {5, 0};
  const std::vector<float> expected = made(x, [](Module&) {});
  run_ranks(3, [&](Communicator world) {
    Context::current().random = {5, 0};
    const DeviceMesh mesh(world, {{"dp", 3}});
    const std::vector<float> got =
        made(distribute(x, mesh, {Shard(0)}), [&](Module& module) { fully_shard(module, mesh); });
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], expected[i], 5e-5 * (1 + std::abs(expected[i]))) << i;
    }
  });
}

TEST(TorchModules, AttentionSaysWhatIsWrong) {
  EXPECT_EQ(error_of([] { MultiheadAttention(7, 2); }),
            "multihead_attention: dim is 7, expected a multiple of 2, the heads");
  MultiheadAttention attention(8, 2);
  const Tensor x = zeros({4, 3, 8});
  EXPECT_EQ(error_of([&] { attention(Tensors{x}); }),
            "multihead_attention: number of inputs is 1, expected 3: query, key, value");
  EXPECT_EQ(error_of([&] {
              attention(Tensors{x, x, zeros({8})});
            }),
            "multihead_attention: shape of input 2 is [8], expected [sequence, batch, dim]");
}

TEST(TorchModules, SummaryHasALineForEqualParameters) {
  const TransformerConfig config{
      .dim = 8, .layers = 3, .heads = 2, .kv_heads = 1, .head_dim = 4, .ffn = 9, .vocabulary = 11};
  run_ranks(2, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 2}});
    TransformerModel model(config);
    model.parameters()[0]->set_trainable(false);
    fully_shard(model, mesh);
    model.materialize();
    const std::string text = summary(model);
    EXPECT_EQ(text.substr(0, 9), "parameter");
    const size_t row = text.find("model.layers.*.mlp.down_proj.weight");
    ASSERT_NE(row, text.npos) << text;
    const std::string line = text.substr(row, text.find('\n', row) - row);
    EXPECT_NE(line.find(" 216 "), line.npos) << line;
    EXPECT_NE(line.find("S(0)"), line.npos) << line;
    EXPECT_NE(text.find("trained; "), text.npos) << text;
  });
}

}  // namespace weft
