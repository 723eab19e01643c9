// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/storage.h"

namespace weft {

namespace {

struct Case {
  const char* name;
  CrossEntropyOptions loss = {};
  double softcap = 0, multiplier = 1;
  bool weighted = false, biased = false;
};

const std::vector<Case> kCases = {
    {"plain"},
    {"sum", {.reduction = LossReduction::sum}},
    {"rows", {.reduction = LossReduction::none}},
    {"ignored", {.ignore_index = 2}},
    {"smoothing", {.label_smoothing = 0.2}},
    {"weights", {}, 0, 1, true},
    {"weights, smoothing", {.label_smoothing = 0.3, .ignore_index = 1}, 0, 1, true},
    {"z-loss", {.z_loss = 0.1}},
    {"softcap", {}, 2},
    {"multiplier, bias", {}, 0, 0.25, false, true},
    {"all at once",
     {.label_smoothing = 0.1, .ignore_index = 3, .z_loss = 0.05},
     1.5,
     0.5,
     true,
     true},
};

/// x [b, s, d], weight [classes, d], targets [b, s], bias, weights of classes.
std::vector<Array> operands_of(const Shape& rows, int64_t d, int64_t classes, DType dtype) {
  Shape x = rows;
  x.push_back(d);
  Array targets = random_array(rows, 0, static_cast<double>(classes), i64, 3);
  if (targets.values.size() > 2) targets.values[1] = 1, targets.values[2] = 2;
  return {random_array(x, -2, 2, dtype, 1), random_array({classes, d}, -1, 1, dtype, 2), targets,
          random_array({classes}, -1, 1, dtype, 4), random_array({classes}, 0.5, 2, dtype, 5)};
}

LinearCrossEntropyOptions options_of(const Case& c, const Tensors& t) {
  LinearCrossEntropyOptions options{
      .loss = c.loss, .softcap = c.softcap, .multiplier = c.multiplier, .whole_up_to = 0};
  if (c.weighted) options.loss.weight = t[4].detach();
  if (c.biased) options.bias = t[3];
  return options;
}

/// Zero, so that all operands have gradients.
Tensor nothing(const Tensors& t) { return sum(t[3] * 0.0) + sum(t[4] * 0.0); }

Function fused(const Case& c) {
  return [c](const Tensors& t) {
    return Tensors{linear_cross_entropy(t[0], t[1], t[2], options_of(c, t)) + nothing(t)};
  };
}

Tensor logits_of(const Case& c, const Tensors& t) {
  Tensor logits = matmul(t[0], t[1].t()) * c.multiplier;
  if (c.biased) logits = logits + t[3];
  return c.softcap > 0 ? tanh(logits / c.softcap) * c.softcap : logits;
}

/// The definition, of whole logits.
Tensors defined(const Case& c, const Tensors& t) {
  const Tensor logits = logits_of(c, t), lse = logsumexp(logits, -1);
  const DType dtype = logits.dtype();
  const int64_t classes = logits.size(-1);
  const Tensor kept = cast(not_equal(t[2], Number(c.loss.ignore_index)), dtype);
  const Tensor ids = where(cast(kept, boolean), t[2], zeros_like(t[2]));
  const Tensor of_class = c.weighted ? t[4].detach() : ones({classes}, {.dtype = dtype});
  const Tensor hits = cast(one_hot(ids, classes), dtype);
  const double smoothing = c.loss.label_smoothing;
  const Tensor wanted = (hits * (1 - smoothing) + smoothing / static_cast<double>(classes));
  Tensor rows = sum(wanted * of_class * (unsqueeze(lse, -1) - logits), {-1});
  rows = (rows + lse * lse * c.loss.z_loss) * kept;
  if (c.loss.reduction == LossReduction::none) return {rows + nothing(t)};
  if (c.loss.reduction == LossReduction::sum) return {sum(rows) + nothing(t)};
  return {sum(rows) / sum(kept * sum(hits * of_class, {-1})) + nothing(t)};
}

Function plain(const Case& c) {
  return [c](const Tensors& t) {
    return Tensors{cross_entropy(logits_of(c, t), t[2], options_of(c, t).loss) + nothing(t)};
  };
}

void expect_equal(const Outcome& actual, const Outcome& expected, double bound, const char* name) {
  ASSERT_EQ(actual.gradients.size(), expected.gradients.size());
  expect_close(actual.results[0], expected.results[0], bound, name);
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    expect_close(actual.gradients[i], expected.gradients[i], bound,
                 std::string(name) + " gradient " + std::to_string(i));
  }
}

}  // namespace

TEST(LinearCrossEntropy, EqualsItsDefinition) {
  for (const Case& c : kCases) {
    for (const DType dtype : {f32, f64}) {
      const auto operands = operands_of({3, 5}, 7, 11, dtype);
      const Outcome expected =
          outcome_of([&](const Tensors& t) { return defined(c, t); }, operands);
      const double bound = dtype == f64 ? 1e-12 : 1e-6;
      expect_equal(outcome_of(fused(c), operands), expected, bound, c.name);
      expect_equal(outcome_of(plain(c), operands), expected, bound, c.name);
      const Function whole = [&](const Tensors& t) {
        LinearCrossEntropyOptions options = options_of(c, t);
        options.whole_up_to = 1000;
        return Tensors{linear_cross_entropy(t[0], t[1], t[2], options) + nothing(t)};
      };
      expect_equal(outcome_of(whole, operands), expected, bound, c.name);
    }
  }
}

TEST(LinearCrossEntropy, EqualsThePlainOneOverSeveralTiles) {
  for (const Case& c : {kCases[0], kCases.back()}) {
    const auto operands = operands_of({700}, 6, 9001, f32);
    expect_equal(outcome_of(fused(c), operands), outcome_of(plain(c), operands), 2e-6, c.name);
  }
}

TEST(LinearCrossEntropy, AgreesOnAnyLayout) {
  const Placement r = Replicate();
  const std::vector<std::vector<Placements>> one_axis = {{{Shard(0)}, {r}, {Shard(0)}, {r}, {r}},
                                                         {{Shard(1)}, {r}, {Shard(1)}, {r}, {r}},
                                                         {{r}, {Shard(0)}, {r}, {Shard(0)}, {r}},
                                                         {{r}, {Shard(0)}, {r}, {r}, {Shard(0)}},
                                                         {{Shard(2)}, {Shard(1)}, {r}, {r}, {r}}};
  std::vector<LaidOut> layouts;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const auto& operands : one_axis) layouts.push_back({{{"x", ranks}}, operands});
  }
  layouts.push_back({{{"dp", 2}, {"tp", 2}},
                     {{Shard(0), r}, {r, Shard(0)}, {Shard(0), r}, {r, Shard(0)}, {r, r}}});
  layouts.push_back({{{"dp", 2}, {"tp", 2}},
                     {{Shard(0), r}, {Shard(0), Shard(0)}, {Shard(0), r}, {r, r}, {r, r}}});
  for (const Case& c : kCases) {
    expect_agreement(fused(c), operands_of({3, 5}, 7, 11, f32), layouts, 3e-6);
  }
}

TEST(LinearCrossEntropy, NeedsNoLogitsOfOtherRanks) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"tp", 2}});
    const Tensor x = random_array({64, 8}, -1, 1).on(Sharding(mesh, {Replicate()}));
    const Tensor weight = random_array({500, 8}, -1, 1).on(Sharding(mesh, {Shard(0)}));
    const Tensor ids = random_array({64}, 0, 500, i64).on(Sharding(mesh, {Replicate()}));
    const int64_t bytes = bytes_received(mesh, [&] {
      linear_cross_entropy(x, weight, ids,
                           {.loss = {.reduction = LossReduction::none}, .whole_up_to = 0});
    });
    EXPECT_LE(bytes, 64 * 3 * 8);
  });
}

TEST(LinearCrossEntropy, ComputesHalvesInF32) {
  const auto operands = operands_of({33}, 16, 50, f32);
  const Function half = [](const Tensors& t) {
    return Tensors{
        linear_cross_entropy(cast(t[0], bf16), cast(t[1], bf16), t[2], {.whole_up_to = 0}) +
        nothing(t)};
  };
  const Function rounded = [](const Tensors& t) {
    const Tensors x = {cast(cast(t[0], bf16), f32), cast(cast(t[1], bf16), f32)};
    return Tensors{linear_cross_entropy(x[0], x[1], t[2], {.whole_up_to = 0}) + nothing(t)};
  };
  expect_equal(outcome_of(half, operands), outcome_of(rounded, operands), 1e-2, "bf16");
}

TEST(LinearCrossEntropy, TakesMuchLessMemoryThanTheLogits) {
  const int64_t rows = 4096, classes = 16384, d = 16;
  Tensor x = random_array({rows, d}, -1, 1).on(), weight = random_array({classes, d}, -1, 1).on();
  const Tensor ids = random_array({rows}, 0, static_cast<double>(classes), i64).on();
  x.set_requires_grad(), weight.set_requires_grad();
  const int64_t before = memory_statistics().total.current;
  reset_peak_memory();
  linear_cross_entropy(x, weight, ids).backward();
  const int64_t peak = memory_statistics().total.peak - before;
  EXPECT_LE(peak, rows * classes * 4 / 12);
  EXPECT_LE(peak, int64_t{20} << 20);  // a tile is 16 MiB
}

TEST(LinearCrossEntropy, TakesProbabilities) {
  const Array logits = random_array({4, 6}, -2, 2, f64, 1);
  const Tensor p = softmax(random_array({4, 6}, -2, 2, f64, 2).on());
  const Outcome actual =
      outcome_of([&](const Tensors& t) { return Tensors{cross_entropy(t[0], p)}; }, {logits});
  const Outcome expected = outcome_of(
      [&](const Tensors& t) { return Tensors{mean(sum(p * log_softmax(t[0]), {-1})) * -1.0}; },
      {logits});
  expect_equal(actual, expected, 1e-12, "probabilities");
  // The same as classes, for probabilities of 0 and 1.
  const Array ids = random_array({4}, 0, 6, i64);
  const CrossEntropyOptions smooth{.label_smoothing = 0.2};
  EXPECT_NEAR(cross_entropy(logits.on(), cast(one_hot(ids.on(), 6), f64), smooth).item(),
              cross_entropy(logits.on(), ids.on(), smooth).item(), 1e-12);
}

TEST(LinearCrossEntropy, SaysWhatIsWrong) {
  const Tensor x = zeros({3, 4}), weight = zeros({5, 4}), ids = zeros({3}, {.dtype = i64});
  const auto error = [&](const Tensor& of_x, const Tensor& of_weight, const Tensor& targets,
                         const LinearCrossEntropyOptions& options = {}) {
    return error_of([&] { linear_cross_entropy(of_x, of_weight, targets, options); });
  };
  EXPECT_EQ(error(x, zeros({5, 3}), ids),
            "linear_cross_entropy: x and weight are [3, 4] and [5, 3], expected [..., d] and "
            "[classes, d]");
  EXPECT_EQ(error(x, weight, zeros({4}, {.dtype = i64})),
            "linear_cross_entropy: targets are [4], expected one for each row of x [3, 4]");
  EXPECT_EQ(error(x, weight, add(ids, 5), {.whole_up_to = 0}),
            "linear_cross_entropy: target is 5, expected one below 5, the classes of weight [5, "
            "4], or -100");
  EXPECT_EQ(error(x, weight, ids, {.bias = zeros({4})}),
            "linear_cross_entropy: bias is [4], expected [5], the classes of weight [5, 4]");
  EXPECT_EQ(error(x, weight, ids, {.loss = {.label_smoothing = 2}}),
            "linear_cross_entropy: label_smoothing is 2, expected 0 to 1");
  EXPECT_EQ(error(x, weight, ids, {.loss = {.ignore_index = -(1 << 24)}}),
            "linear_cross_entropy: ignore_index is -16777216, expected -16777215 to 16777215");
  EXPECT_EQ(error(x, weight, ids, {.multiplier = 0}),
            "linear_cross_entropy: multiplier is 0, expected a number other than 0");
  EXPECT_EQ(error(x, weight, ids, {.softcap = -1}),
            "linear_cross_entropy: softcap is -1, expected 0 or more");
}

}  // namespace weft
