// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"

namespace weft {

namespace {

struct PlainNorm {
  std::vector<double> y, dx, dweight, dbias;
};

/// y = (x - mean) * rstd * weight + bias by the definition, with gradients by the chain rule
/// through z = (x - mean) * rstd; without `centered` the mean is 0.
PlainNorm plain_norm(const Array& x, const Array& weight, const Array& bias, const Array& dy,
                     double eps, bool centered) {
  const size_t size = weight.values.size(), rows = x.values.size() / size;
  const double n = static_cast<double>(size);
  PlainNorm out;
  out.dweight.assign(size, 0);
  out.dbias.assign(size, 0);
  for (size_t r = 0; r < rows; ++r) {
    const double* row = x.values.data() + r * size;
    double mean = 0, squares = 0, sum = 0, dot = 0;
    for (size_t i = 0; centered && i < size; ++i) mean += row[i] / n;
    for (size_t i = 0; i < size; ++i) squares += (row[i] - mean) * (row[i] - mean) / n;
    const double rstd = 1 / std::sqrt(squares + eps);
    for (size_t i = 0; i < size; ++i) {
      const double z = (row[i] - mean) * rstd, g = dy.values[r * size + i];
      out.y.push_back(z * weight.values[i] + bias.values[i]);
      out.dweight[i] += g * z;
      out.dbias[i] += g;
      sum += g * weight.values[i] / n;
      dot += g * weight.values[i] * z / n;
    }
    for (size_t i = 0; i < size; ++i) {
      const double z = (row[i] - mean) * rstd, g = dy.values[r * size + i] * weight.values[i];
      out.dx.push_back(rstd * (g - (centered ? sum : 0) - z * dot));
    }
  }
  return out;
}

struct NormCase {
  Array x = random_array({2, 3, 7}, -2, 3);
  Array weight = random_array({7}, -1, 2, f32, 2);
  Array bias = random_array({7}, -1, 1, f32, 3);
  Array dy = random_array({2, 3, 7}, -1, 1, f32, 4);
};

const std::vector<LaidOut>& norm_layouts() {
  static const std::vector<LaidOut> layouts = {
      {{{"x", 4}}, {{Shard(2)}, {Shard(0)}, {Shard(0)}}},
      {{{"x", 3}}, {{Shard(2)}, {Replicate()}, {Replicate()}}},
      {{{"x", 4}}, {{Shard(1)}, {Replicate()}, {Replicate()}}},
      {{{"x", 3}}, {{Shard(0)}, {Shard(0)}, {Shard(0)}}},
      {{{"x", 2}, {"y", 2}},
       {{Shard(0), Shard(2)}, {Replicate(), Shard(0)}, {Replicate(), Shard(0)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(2)}, {Shard(0), Shard(0)}, {Shard(0), Shard(0)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(1)}, {Shard(0)}, {Replicate(), Shard(0)}}},
  };
  return layouts;
}

Tensors rms_normed(const Tensors& t) { return {rms_norm(t[0], t[1], 1e-3)}; }
Tensors layer_normed(const Tensors& t) { return {layer_norm(t[0], t[1], t[2], 1e-3)}; }

}  // namespace

TEST(Norms, RmsNormEqualsPlainLoops) {
  NormCase c;
  Array none{{7}, std::vector<double>(7)};
  PlainNorm expected = plain_norm(c.x, c.weight, none, c.dy, 1e-3, false);
  Tensor x = c.x.on(), weight = c.weight.on();
  x.set_requires_grad();
  weight.set_requires_grad();
  Tensor y = rms_norm(x, weight, 1e-3);
  expect_close(whole(y), {c.x.shape, expected.y}, 1e-6, "y");
  backward({y}, {c.dy.on()});
  expect_close(whole(x.grad()), {c.x.shape, expected.dx}, 1e-6, "dx");
  expect_close(whole(weight.grad()), {{7}, expected.dweight}, 1e-6, "dweight");
}

TEST(Norms, LayerNormEqualsPlainLoops) {
  NormCase c;
  PlainNorm expected = plain_norm(c.x, c.weight, c.bias, c.dy, 1e-3, true);
  Tensor x = c.x.on(), weight = c.weight.on(), bias = c.bias.on();
  for (Tensor* tensor : {&x, &weight, &bias}) tensor->set_requires_grad();
  Tensor y = layer_norm(x, weight, bias, 1e-3);
  expect_close(whole(y), {c.x.shape, expected.y}, 1e-6, "y");
  backward({y}, {c.dy.on()});
  expect_close(whole(x.grad()), {c.x.shape, expected.dx}, 2e-6, "dx");
  expect_close(whole(weight.grad()), {{7}, expected.dweight}, 1e-6, "dweight");
  expect_close(whole(bias.grad()), {{7}, expected.dbias}, 1e-6, "dbias");
}

TEST(Norms, AgreeOnAnyLayout) {
  NormCase c;
  expect_agreement(rms_normed, {c.x, c.weight}, norm_layouts());
  expect_agreement(layer_normed, {c.x, c.weight, c.bias}, norm_layouts());
}

TEST(Norms, AgreeWithMoreRanksThanElements) {
  Array x = random_array({5, 3}, -2, 3), weight = random_array({3}, -1, 2, f32, 2);
  const std::vector<LaidOut> layouts = {{{{"x", 4}}, {{Shard(1)}, {Shard(0)}, {Shard(0)}}}};
  expect_agreement(rms_normed, {x, weight}, layouts);
  expect_agreement(layer_normed, {x, weight, weight}, layouts);
}

TEST(Norms, GiveTheWeightItsOwnDType) {
  NormCase c;
  Tensor x = c.x.on().to(bf16).detach(), weight = c.weight.on();
  x.set_requires_grad();
  weight.set_requires_grad();
  Tensor y = rms_norm(x, weight, 1e-3);
  EXPECT_EQ(y.dtype(), bf16);
  sum(y).backward();
  EXPECT_EQ(x.grad().dtype(), bf16);
  EXPECT_EQ(weight.grad().dtype(), f32);
}

TEST(Norms, SayWhatIsWrong) {
  EXPECT_EQ(error_of([] {
              rms_norm(zeros({5, 7}), zeros({6}));
            }),
            "rms_norm: factor d is 6 in operand 1 [6], expected 7, as in operand 0 [5, 7]");
  EXPECT_EQ(error_of([] {
              layer_norm(zeros({5, 7}), zeros({7}), zeros({3}));
            }),
            "layer_norm: factor d is 3 in operand 2 [3], expected 7, as in operand 0 [5, 7]");
}

}  // namespace weft
