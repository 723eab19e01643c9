// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <thread>

#include "tests/support/ranks.h"
#include "weft/extend/op.h"
#include "weft/pipeline.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// Ops that take `kTime` each: a product of elements, and its gradients.
constexpr std::chrono::milliseconds kTime{20};

Op sleeping_op(const char* name, std::function<void(const Grad&)> backward = {}) {
  return Op({.name = name,
             .rule = "k, k -> k",
             .forward =
                 [](const Call& c) {
                   std::this_thread::sleep_for(kTime);
                   const auto* a = static_cast<const float*>(c.in(0).data);
                   const auto* b = static_cast<const float*>(c.in(1).data);
                   for (int64_t i = 0; i < c.out().numel(); ++i) {
                     static_cast<float*>(c.out().data)[i] = a[i] * b[i];
                   }
                 },
             .backward = std::move(backward),
             .differentiable = true});
}

/// Seconds of one step of stages that sleep, after another one.
double seconds_of(const PipelineProgram& program) {
  static const Op to_input = sleeping_op("to_input"), to_weight = sleeping_op("to_weight");
  static const Op product = sleeping_op("sleeping_product", [](const Grad& g) {
    g.give(0, to_input, {g.grad(), g.in(1)});
    g.give(1, to_weight, {g.grad(), g.in(0)});
  });
  double seconds = 0;
  on_mesh({{"pp", program.ranks()}}, [&](const DeviceMesh& mesh) {
    Pipeline pipeline(mesh, program);
    std::vector<Tensor> weights;
    for (const int stage : pipeline.own_stages()) {
      Tensor weight = full({3}, 2.0);
      weight.set_requires_grad();
      weights.push_back(weight);
      const bool is_first = stage == 0, is_last = stage + 1 == program.stages();
      pipeline.add({.stage = stage, .run = [=](const Tensors& inputs, int m) {
                      Tensor x = is_first ? full({3}, m + 1.0) : inputs[0];
                      if (is_first) x.set_requires_grad();
                      const Tensor y = product({x, weight});
                      return Tensors{is_last ? sum(y) : y};
                    }});
    }
    std::vector<double> losses = pipeline.run();
    mesh.communicator().barrier();
    const auto begin = Clock::now();
    losses = pipeline.run();
    mesh.communicator().barrier();
    if (mesh.rank() == 0) seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const double scale = std::pow(2.0, program.stages());
    for (size_t m = 0; m < losses.size(); ++m) {
      EXPECT_EQ(losses[m], 3 * scale * static_cast<double>(m + 1));
    }
    for (const Tensor& weight : weights) {
      const double all = program.microbatches * (program.microbatches + 1) / 2.0;
      EXPECT_EQ(weight.grad().to_vector<double>()[0], 2 * all * scale / 2);
    }
  });
  return seconds;
}

/// The stages take the predicted time: nothing waits that could compute.
TEST(Time, IsThePredictedOne) {
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb"}) {
    const PipelineProgram program = pipeline_program(name, 3, 6);
    const double unit = std::chrono::duration<double>(kTime).count();
    const double predicted = unit * predict(program).seconds;
    double measured = HUGE_VAL;
    // Other programs may take the processor: the least of several is measured, and the bound is
    // wide.
    for (int tries = 0; tries < 5 && measured > 1.04 * predicted; ++tries) {
      measured = std::min(measured, seconds_of(program));
    }
    std::printf("%s: predicted %.3f s, measured %.3f s\n", name, predicted, measured);
    EXPECT_GE(measured, 0.98 * predicted) << name;
    EXPECT_LE(measured, 1.3 * predicted) << name;
  }
}

}  // namespace
}  // namespace weft
