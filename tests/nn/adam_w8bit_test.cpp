// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/nn/plain_steps.h"
#include "tests/support/scratch.h"
#include "weft/extend/adamw8.h"
#include "weft/extend/disk_memory.h"
#include "weft/muon.h"

namespace weft {
namespace {

/// The state and values after steps on a mesh, or on one rank.
struct After {
  std::vector<Values> values, state;
};

constexpr int kSteps = 6;
const AdamW8bitOptions k8Bits{.learning_rate = 0.01, .least_elements = 64};

std::vector<NamedParameter> parameters8(const std::function<Sharding(const Placements&)>& on) {
  return {named_values("rows", {9, 300}, 0, on({Shard(0), Replicate()})),
          named_values("columns", {5, 333}, 1, on({Replicate(), Shard(1)})),
          named_values("both", {7, 130}, 2, on({Shard(0), Shard(1)})),
          named_values("twice", {3, 129}, 3, on({Shard(1), Shard(1)})),
          named_values("stack", {4, 3, 40}, 4, on({Shard(0), Shard(1)})),
          named_values("few rows", {1, 70}, 5, on({Shard(0), Shard(0)})),
          named_values("small", {3, 4}, 6, on({Shard(0), Shard(1)})),
          named_values("vector", {70}, 7, on({Shard(0), Replicate()}))};
}

After after_steps(const std::vector<NamedParameter>& parameters) {
  AdamW8bit optimizer(parameters, k8Bits);
  for (int step = 1; step <= kSteps; ++step) {
    for (const NamedParameter& one : parameters) give_gradient(one, step);
    optimizer.step();
  }
  After after;
  for (size_t i = 0; i < parameters.size(); ++i) {
    after.values.push_back(values_of(parameters[i]));
    for (const Tensor& moment : optimizer.state(i)) after.state.push_back(whole_values(moment));
  }
  return after;
}

TEST(AdamW8bit, HasTheBitsOfOneRankOnAnyMesh) {
  const After one = after_steps(parameters8([](const Placements&) { return Sharding(); }));
  for (const auto& [first, second] : {std::pair{1, 1}, {3, 1}, {1, 3}, {2, 2}, {4, 1}}) {
    on_mesh({{"a", first}, {"b", second}}, [&](const DeviceMesh& mesh) {
      const After many = after_steps(
          parameters8([&](const Placements& placements) { return Sharding(mesh, placements, 3); }));
      EXPECT_EQ(many.values, one.values);
      EXPECT_EQ(many.state, one.state);
    });
  }
}

TEST(AdamW8bit, StaysNearAdamW) {
  const auto none = [](const Placements&) { return Sharding(); };
  const auto in8 = parameters8(none), in32 = parameters8(none);
  after_steps(in8);
  AdamW optimizer(in32, {.learning_rate = 0.01});
  for (int step = 1; step <= kSteps; ++step) {
    for (const NamedParameter& one : in32) give_gradient(one, step);
    optimizer.step();
  }
  for (size_t i = 0; i < in8.size(); ++i) {
    const bool is_exact = i + 2 >= in8.size();
    const Values values = values_of(in8[i]), exact = values_of(in32[i]);
    for (size_t j = 0; j < values.size(); ++j) {
      // Six steps of 0.01 at most, a tenth of which may be lost to rounding.
      EXPECT_NEAR(values[j], exact[j], is_exact ? 0 : 0.006) << in8[i].name() << ' ' << j;
    }
  }
}

/// Minimises a quadratic whose curvatures differ by 1e4.
TEST(AdamW8bit, ConvergesAsAdamW) {
  const auto loss_after = [](auto make) {
    const auto p = named_values("p", {8, 256}, 0);
    auto optimizer = make(std::vector<NamedParameter>{p});
    double loss = 0;
    for (int step = 0; step < 400; ++step) {
      const Values values = values_of(p);
      Values gradient;
      loss = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        const double curvature = std::pow(10, static_cast<double>(i % 5) - 2);
        gradient.push_back(curvature * values[i]);
        loss += curvature * values[i] * values[i] / 2;
      }
      p.parameter->value().set_grad(from_values(gradient, {8, 256}));
      optimizer->set_learning_rate(0.05 * (1 - step / 400.0));
      optimizer->step();
    }
    return loss;
  };
  const double in8 = loss_after([](auto parameters) {
    return std::make_unique<AdamW8bit>(parameters,
                                       AdamW8bitOptions{.weight_decay = 0, .least_elements = 1});
  });
  const double in32 = loss_after([](auto parameters) {
    return std::make_unique<AdamW>(parameters, AdamWOptions{.weight_decay = 0});
  });
  EXPECT_LT(in32, 1);
  EXPECT_LT(in8, 1) << in32;
}

TEST(AdamW8bit, KeepsTwoBytesAnElement) {
  const auto p = named_values("p", {16, 1024}, 0);
  AdamW8bit optimizer({p});
  int64_t bytes = 0;
  for (const Tensor& moment : optimizer.state(0)) {
    bytes += moment.numel() * static_cast<int64_t>(size_of(moment.dtype()));
  }
  EXPECT_EQ(optimizer.state(0).size(), 4);
  EXPECT_EQ(bytes, 16 * 1024 * 2 + 16 * 8 * 2 * 4);
}

TEST(AdamW8bit, ShowsThatGradientsAreNotFinite) {
  const auto p = named_values("p", {2, 300}, 0);
  AdamW8bit optimizer({p}, {.least_elements = 1});
  Values gradient(600, 1);
  gradient[140] = std::nan("");
  p.parameter->value().set_grad(from_values(gradient, {2, 300}));
  optimizer.step();
  const Values values = values_of(p);
  EXPECT_TRUE(std::isnan(values[140]));
  EXPECT_FALSE(std::isnan(values[100]));
  EXPECT_TRUE(std::isnan(optimizer.state(0)[2].to_vector<double>()[1]));
}

TEST(AdamW8bit, NeedsParametersInMemory) {
  const tests::Scratch scratch;
  const auto file = DiskMemory::make(scratch.root(), {{"p", 8}}, DiskPath::cached_if_it_fits);
  auto parameter = std::make_shared<Parameter>(Shape{1, 2}, f32, constant_values(0));
  parameter->set_value(tensor_in(file->storage(), 0, {1, 2}, f32));
  parameter->value().set_grad(ones({1, 2}));
  AdamW8bit in8({{{"p"}, parameter}}, {.least_elements = 1});
  EXPECT_EQ(error_of([&] { in8.step(); }),
            "adamw8bit: parameter p rests in another memory than cpu, expected there");
  Muon muon({{{"p"}, parameter}});
  EXPECT_EQ(error_of([&] { muon.step(); }), "muon: parameter p rests on disk, expected in memory");
}

TEST(AdamW8bit, NamesWhatDoesNotFit) {
  const Tensor matrix = zeros({2, 130}), scales = zeros({2, 2});
  const Tensor codes = zeros({2, 130}, {.dtype = u8});
  const Moments8 moments{codes, codes, scales, scales};
  const auto step = [&](const Tensor& gradient, const Moments8& given, const AdamWStep& numbers,
                        int64_t first) {
    adamw8_scales_(scales, scales, gradient, ones({}), given, numbers, first);
  };
  EXPECT_EQ(error_of([&] { step(zeros({3}), moments, {}, 0); }),
            "adamw8_scales_: the gradient is f32 [3], expected a matrix of floating numbers");
  EXPECT_EQ(error_of([&] { step(matrix, moments, {.step = 0}, 0); }),
            "adamw8_scales_: step must be at least 1, got 0");
  EXPECT_EQ(error_of([&] { step(matrix, moments, {}, -1); }),
            "adamw8_scales_: first column is -1, expected at least 0");
  EXPECT_EQ(error_of([&] {
              step(matrix, {matrix, codes, scales, scales}, {}, 0);
            }),
            "adamw8_scales_: m is f32 [2, 130], expected u8 [2, 130]");
  EXPECT_EQ(error_of([&] {
              step(matrix, {codes, codes, scales, {}}, {}, 0);
            }),
            "adamw8_scales_: scales of v is missing, expected f32 [2, 2]");
  EXPECT_EQ(error_of([&] { step(matrix, moments, {}, 200); }),
            "adamw8_scales_: scales of m is f32 [2, 2], expected f32 [2, 3]");
  EXPECT_EQ(error_of([&] {
              adamw8_(zeros({2, 3}), matrix, ones({}), moments, scales, scales, {});
            }),
            "adamw8_: the parameter is [2, 3], expected [2, 130], the shape of the gradient");
  const Moments8 turned{zeros({130, 2}, {.dtype = u8}).t(), codes, scales, scales};
  EXPECT_EQ(error_of([&] { step(matrix, turned, {}, 0); }),
            "adamw8: codes [2, 130] has strides, expected a dense array");
  const Tensor whole = zeros({2, 130}, {.dtype = i32});
  EXPECT_EQ(error_of([&] { adamw8_(whole, matrix, ones({}), moments, scales, scales, {}); }),
            "adamw8: dtype of the parameter or gradient is i32, expected f32, bf16, f16 or f64");
  const auto p = named_values("p", {2, 3}, 0);
  EXPECT_EQ(error_of([&] { AdamW8bit({p}, {.eps = -1}); }),
            "adamw8bit: learning rate, eps and weight decay are 0.001, -1 and 0.01, expected each "
            "at least 0");
}

}  // namespace
}  // namespace weft
