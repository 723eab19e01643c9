// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/fsdp/chain.h"
#include "weft/autograd.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// A linear layer and the loss of its logits, which are computed in parts.
class Head final : public Module {
 public:
  Head() { linear_ = add("linear", std::make_shared<Linear>(5, 11, false, 0.5)); }
  Tensor loss(const Tensor& x, const Tensor& targets, int64_t whole_up_to) {
    return call({x}, [this, targets, whole_up_to](const Tensors& inputs) {
      return linear_->call(inputs, [linear = linear_.get(), targets,
                                    whole_up_to](const Tensors& in) {
        const Tensor& weight = linear->own_parameters()[0].second->tensor();
        return Tensors{linear_cross_entropy(in[0], weight, targets, {.whole_up_to = whole_up_to})};
      });
    })[0];
  }

 protected:
  Tensors forward(const Tensors& inputs) override { return (*linear_)(inputs); }

 private:
  std::shared_ptr<Linear> linear_;
};

/// The loss and the gradient of the weight after two micro-steps on that many ranks.
Values head_gradients(int ranks, const FullyShardOptions& options, int64_t whole_up_to) {
  Values values;
  run_ranks(ranks, [&](Communicator world) {
    DeviceMesh mesh(world, {{"dp", ranks}});
    Head head;
    fully_shard(head, mesh, options);
    head.materialize();
    Tensor loss;
    for (int step = 0; step < 2; ++step) {
      const std::vector<double> ids = {3, 10, 0, -100, 7, 2, 5};
      const Tensor targets =
          distribute(from_values(ids, {7}, {.dtype = i64}), mesh, {{"dp", Shard(0)}});
      NoSync hold(head, step == 0);
      loss = head.loss(rows_of(mesh, step), targets, whole_up_to);
      loss.backward();
    }
    const Values own = gradients_of(head);
    const auto last = static_cast<float>(loss.detach().full_tensor().item());
    if (world.rank() == 0) values = {own[0], {last}};
  });
  return values;
}

void expect_near(const Values& actual, const Values& expected, float bound) {
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(actual[i].size(), expected[i].size());
    for (size_t j = 0; j < expected[i].size(); ++j) {
      EXPECT_NEAR(actual[i][j], expected[i][j], bound) << i << " element " << j;
    }
  }
}

}  // namespace

TEST(LinearHead, FullyShardedEqualsWholeLogits) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_near(head_gradients(ranks, {}, 0), head_gradients(1, {}, 1000), 1e-6f);
    const FullyShardOptions half{.precision = {.compute = bf16}};
    expect_near(head_gradients(ranks, half, 0), head_gradients(1, {}, 1000), 0.02f);
  }
}

}  // namespace weft
