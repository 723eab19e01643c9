// SPDX-License-Identifier: Apache-2.0
#include "weft/image_layers.h"

#include <gtest/gtest.h>

#include <cmath>

#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft {

/// The names and shapes of a layer's parameters and buffers.
static std::string members_of(const Module& layer) {
  std::string text;
  for (const auto& [name, parameter] : layer.own_parameters()) {
    text += concat(name, ' ', parameter->shape(), ' ');
  }
  for (const NamedBuffer& buffer : layer.own_buffers()) {
    text += concat(buffer.name, ' ', buffer.value.shape(), ' ');
  }
  return text;
}

TEST(ImageLayers, HavePyTorchsParameters) {
  EXPECT_EQ(members_of(Conv1d(4, 6, std::vector<int64_t>{3})), "weight [6, 4, 3] bias [6] ");
  const ConvLayerOptions grouped{.taps = {.groups = 2}, .bias = false};
  EXPECT_EQ(members_of(Conv2d(4, 6, std::vector<int64_t>{3, 2}, grouped)), "weight [6, 2, 3, 2] ");
  EXPECT_EQ(members_of(ConvTranspose3d(4, 6, std::vector<int64_t>{3}, grouped)),
            "weight [4, 3, 3, 3, 3] ");
  EXPECT_EQ(members_of(BatchNorm2d(3)),
            "weight [3] bias [3] running_mean [3] running_var [3] num_batches_tracked [] ");
  EXPECT_EQ(members_of(InstanceNorm1d(3)), "");
  EXPECT_EQ(members_of(GroupNorm(2, 4)), "weight [4] bias [4] ");
}

TEST(ImageLayers, ComputeByHand) {
  const Tensor x = reshape(cast(arange(16), f32), {1, 1, 4, 4});
  Conv2d conv(1, 1, std::vector<int64_t>{2}, ConvLayerOptions{.taps = {.stride = {2}}});
  conv.materialize();
  fill_(conv.own_parameters()[0].second->value().detach(), 1);
  fill_(conv.own_parameters()[1].second->value().detach(), 0.5);
  EXPECT_EQ(conv(x).to_vector<float>(), (std::vector<float>{10.5, 18.5, 42.5, 50.5}));
  MaxPool2d max_pool(PoolOptions{.kernel = {2}});
  EXPECT_EQ(max_pool(x).to_vector<float>(), (std::vector<float>{5, 7, 13, 15}));
  AvgPool2d avg_pool(PoolOptions{.kernel = {2}});
  EXPECT_EQ(avg_pool(x).to_vector<float>(), (std::vector<float>{2.5, 4.5, 10.5, 12.5}));
  AdaptiveAvgPool2d adaptive(std::vector<int64_t>{1});
  EXPECT_EQ(adaptive(x).to_vector<float>(), (std::vector<float>{7.5}));
  ConvTranspose1d transposed(1, 1, std::vector<int64_t>{2}, ConvLayerOptions{.bias = false});
  transposed.materialize();
  fill_(transposed.own_parameters()[0].second->value().detach(), 1);
  EXPECT_EQ(transposed(reshape(x, {1, 1, 16})).to_vector<float>()[15], 14 + 15);
}

template <class Call> static std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "none";
}

TEST(ImageLayers, RefuseWhatTheyDoNotDo) {
  EXPECT_EQ(error_of([] {
              ConvTranspose1d(1, 1, std::vector<int64_t>{2}, ConvLayerOptions{.same = true});
            }),
            "conv_transpose: padding is 'same', expected numbers");
  EXPECT_EQ(error_of([] {
              avg_pool(ones({1, 1, 4}), 1, {.kernel = {2}, .dilation = {2}});
            }),
            "avg_pool: dilation is given, expected 1");
}

TEST(ImageLayers, NormaliseOverTheShardedBatch) {
  run_ranks(3, [](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", 3}});
    const Tensor whole = reshape(cast(arange(16), f32), {8, 2});
    BatchNormOptions options{.running_mean = distribute(zeros({2}), mesh, {}),
                             .running_var = distribute(ones({2}), mesh, {}),
                             .training = true,
                             .momentum = 1};
    batch_norm(distribute(whole, mesh, {Shard(0)}), {}, {}, options);
    const auto mean = options.running_mean.full_tensor().to_vector<float>();
    EXPECT_EQ(mean, (std::vector<float>{7, 8}));
    EXPECT_NEAR(options.running_var.full_tensor().to_vector<float>()[0], 24, 1e-4);
    options.training = false;
    const Tensor y = batch_norm(distribute(whole, mesh, {Shard(1)}), {}, {}, options);
    EXPECT_NEAR(y.full_tensor().to_vector<float>()[0], -7 / std::sqrt(24 + 1e-5), 1e-5);
  });
}

}  // namespace weft
