// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/ops/agreement.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/context.h"
#include "weft/derivatives.h"
#include "weft/extend/attention.h"
#include "weft/storage.h"

namespace weft {

namespace {

struct Sizes {
  int64_t batch, s, t, heads, kv_heads, d;
};

/// The options without tensors, and which operands follow q, k, v: m an added mask, b a bool mask,
/// s sinks, g segments, a slopes of ALiBi.
struct Variant {
  std::string name;
  AttentionOptions options;
  std::string operands = "";
  Shape mask = {};
  double bound = 1e-5;
};

std::vector<Array> operands_of(const Variant& variant, const Sizes& n, DType dtype) {
  std::vector<Array> operands = {random_array({n.batch, n.s, n.heads, n.d}, -2, 2, dtype, 1),
                                 random_array({n.batch, n.t, n.kv_heads, n.d}, -2, 2, dtype, 2),
                                 random_array({n.batch, n.t, n.kv_heads, n.d}, -2, 2, dtype, 3)};
  for (const char kind : variant.operands) {
    if (kind == 'm') operands.push_back(random_array(variant.mask, -2, 2, dtype, 4));
    if (kind == 'b') operands.push_back(random_array(variant.mask, 0, 2, boolean, 5));
    if (kind == 's') operands.push_back(random_array({n.heads}, -1, 2, dtype, 6));
    if (kind == 'a') operands.push_back(random_array({n.heads}, 0, 1, dtype, 7));
    if (kind != 'g') continue;
    Array ids{{n.batch, n.t}, {}, i32};
    for (int64_t b = 0; b < n.batch; ++b) {  // documents of 2 + b and more positions
      for (int64_t i = 0; i < n.t; ++i) {
        ids.values.push_back(static_cast<double>(i * i / (2 + b) / n.t));
      }
    }
    operands.push_back(ids);
  }
  return operands;
}

AttentionOptions options_of(const Variant& variant, const Tensors& operands) {
  AttentionOptions options = variant.options;
  size_t at = 3;
  for (const char kind : variant.operands) {
    const Tensor& operand = operands[at++];
    if (kind == 'm' || kind == 'b') options.mask = operand;
    if (kind == 's') options.sinks = operand;
    if (kind == 'g') options.segments = operand;
    if (kind == 'a') options.alibi = operand.detach();
  }
  return options;
}

/// Zero, which gives slopes, the last operand, a gradient of zeros.
Tensor no_gradient(const Variant& variant, const Tensors& t) {
  return sum(variant.operands.ends_with('a') ? t.back() * 0.0 : t[0] * 0.0);
}

Function fused(const Variant& variant) {
  return [variant](const Tensors& t) {
    return Tensors{attention(t[0], t[1], t[2], options_of(variant, t)) + no_gradient(variant, t)};
  };
}

Tensor by_heads(const Tensor& x, int64_t heads) {
  return permute(repeat(x, heads / x.size(2), 2), {0, 2, 1, 3});
}

/// A tensor [1, 1, s, t] with f(position of the query, key).
template <class F> Tensor of_positions(int64_t s, int64_t t, DType dtype, const F& f) {
  Array array{{1, 1, s, t}, {}, dtype};
  for (int64_t i = 0; i < s; ++i) {
    for (int64_t j = 0; j < t; ++j) array.values.push_back(static_cast<double>(f(t - s + i, j)));
  }
  return array.on();
}

/// 1 where a query attends to a key, [.., s, t].
Tensor attends(const AttentionOptions& o, int64_t s, int64_t t, DType dtype) {
  Tensor all = of_positions(s, t, dtype, [&](int64_t p, int64_t j) {
    if (o.causal && j > p) return 0;
    return o.window == 0 || std::abs(p - j) < o.window ? 1 : 0;
  });
  if (o.mask && o.mask.dtype() == boolean) all = all * cast(o.mask, dtype);
  if (!o.segments) return all;
  const Tensor own = slice(o.segments, 1, t - s, t);
  return all * cast(equal(unsqueeze(unsqueeze(own, 2), 1), unsqueeze(unsqueeze(o.segments, 1), 1)),
                    dtype);
}

/// The definition, with whole matrices of scores; `kept` are dropout's factors.
Tensors defined(const Variant& variant, const Tensors& operands, const Tensor& kept = {}) {
  const AttentionOptions o = options_of(variant, operands);
  const int64_t heads = operands[0].size(2), s = operands[0].size(1), t = operands[1].size(1);
  const DType dtype = operands[0].dtype();
  const double scale =
      o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(operands[0].size(3)));
  Tensor scores =
      matmul(by_heads(operands[0], heads), by_heads(operands[1], heads).transpose(-2, -1)) * scale;
  if (o.softcap > 0) scores = tanh(scores / o.softcap) * o.softcap;
  if (o.alibi) {
    const Tensor distances =
        of_positions(s, t, dtype, [](int64_t p, int64_t j) { return std::abs(p - j); });
    scores = scores - reshape(o.alibi.detach(), {1, heads, 1, 1}) * distances;
  }
  if (o.mask && o.mask.dtype() != boolean) scores = scores + o.mask;
  Tensor weights = exp(scores) * attends(o, s, t, dtype);
  Tensor total = sum(weights, {3}, true);
  if (o.sinks) total = total + exp(reshape(o.sinks, {1, heads, 1, 1}));
  total = total + cast(equal(total, zeros_like(total)), dtype);  // rows without keys
  Tensor p = weights / total;
  if (kept) p = p * kept;
  return {permute(matmul(p, by_heads(operands[2], heads)), {0, 2, 1, 3}) +
          no_gradient(variant, operands)};
}

void expect_close(const Outcome& actual, const Outcome& expected, double bound,
                  const std::string& name) {
  expect_close(actual.results[0], expected.results[0], bound, name);
  for (size_t i = 0; i < actual.gradients.size(); ++i) {
    expect_close(actual.gradients[i], expected.gradients[i], bound,
                 name + " gradient " + std::to_string(i));
  }
}

void expect_defined(const Variant& variant, const Sizes& n) {
  for (const DType dtype : {f32, f64}) {
    const auto operands = operands_of(variant, n, dtype);
    const Outcome actual = outcome_of(fused(variant), operands);
    const Outcome expected =
        outcome_of([&](const Tensors& t) { return defined(variant, t); }, operands);
    const double bound = dtype == f64 ? 1e-12 : variant.bound;
    expect_close(actual, expected, bound, variant.name);
  }
}

std::vector<Variant> variants(const Sizes& n) {
  const Shape all = {n.batch, n.heads, n.s, n.t};
  std::vector<Variant> all_of_them = {
      {"window", {.window = 3}},
      {"two-sided window", {.causal = false, .window = 2}},
      {"a window of one", {.window = 1}},
      {"softcap", {.scale = 1.5, .softcap = 2}},
      {"softcap, all", {.causal = false, .softcap = 1}},
      {"bool mask", {.causal = false}, "b", all},
      {"bool mask of queries and keys", {}, "b", {n.s, n.t}},
      {"bool mask of keys", {.causal = false}, "b", {n.batch, 1, 1, n.t}},
      {"added mask", {}, "m", all},
      {"added mask of heads", {.causal = false}, "m", {n.heads, n.s, n.t}},
      {"added mask of keys", {.causal = false}, "m", {n.batch, 1, 1, n.t}},
      {"sinks", {}, "s"},
      {"sinks and window", {.window = 2}, "s"},
      {"segments", {.causal = false}, "g"},
      {"alibi", {}, "a"},
      {"alibi, all", {.causal = false}, "a"},
      {"all at once", {.scale = 0.7, .window = 4, .softcap = 3}, "msga", {n.batch, 1, n.s, n.t}},
  };
  // This gradient is a difference of large terms, which grow with the number of keys.
  if (n.t < 100) {
    all_of_them.push_back({"added mask of queries, sinks", {}, "ms", {n.s, 1}, 2e-5});
  }
  return all_of_them;
}

}  // namespace

TEST(AttentionVariants, EqualTheirDefinition) {
  for (const Sizes& n :
       {Sizes{2, 5, 7, 6, 3, 4}, {3, 5, 5, 2, 1, 3}, {1, 1, 9, 4, 4, 8}, {2, 2, 600, 4, 2, 8}}) {
    for (const Variant& variant : variants(n)) expect_defined(variant, n);
  }
}

TEST(AttentionVariants, EqualTheirDefinitionOverSeveralTiles) {
  const Sizes n{1, 70, 1100, 2, 1, 8};
  for (const Variant& variant : variants(n)) expect_defined(variant, n);
  for (const int64_t window : {64, 200, 700}) {
    expect_defined({"window", {.window = window}}, n);
    expect_defined({"window and sinks", {.causal = false, .window = window}, "s"}, n);
  }
}

TEST(AttentionVariants, QueriesWithoutKeysGiveZeros) {
  const Sizes n{1, 6, 3, 2, 2, 4};  // the first three queries see no key
  expect_defined({"causal", {}}, n);
  expect_defined({"mask", {}, "m", {n.s, n.t}}, n);
  expect_defined({"softcap and window", {.window = 2, .softcap = 2}, "s"}, n);
  Tensor q = ones({1, 2, 1, 4}), k = ones({1, 3, 1, 4});
  q.set_requires_grad(), k.set_requires_grad();
  const Tensor none = from_values(std::vector<double>{0, 0, 0}, {1, 3}, {.dtype = boolean});
  const Tensor out = attention(q, k, k, {.causal = false, .mask = none});
  EXPECT_EQ(out.to_vector<double>(), std::vector<double>(8, 0));
  sum(out).backward();
  EXPECT_EQ(q.grad().to_vector<double>(), std::vector<double>(8, 0));
  EXPECT_EQ(k.grad().to_vector<double>(), std::vector<double>(12, 0));
}

TEST(AttentionVariants, AgreeOnAnyLayout) {
  const Sizes n{3, 5, 7, 8, 4, 4};
  const Placements r = {Replicate()};
  for (const Variant& variant : variants(n)) {
    const auto operands = operands_of(variant, n, f32);
    const auto laid_out = [&](const std::vector<MeshAxis>& axes,
                              std::vector<Placements> placements) {
      const Placements whole = axes.size() == 1 ? r : Placements{Replicate(), Replicate()};
      placements.resize(operands.size(), whole);
      return LaidOut{axes, std::move(placements)};
    };
    std::vector<LaidOut> layouts = {
        laid_out({{"x", 3}}, {{Shard(0)}, {Shard(0)}, {Shard(0)}}),
        laid_out({{"x", 2}}, {{Shard(2)}, {Shard(2)}, {Shard(2)}}),
        laid_out({{"x", 4}}, {{Shard(1)}, r, r}),
        laid_out({{"x", 2}, {"y", 2}},
                 {{Shard(1), Shard(2)}, {Replicate(), Shard(2)}, {Replicate(), Shard(2)}})};
    if (!variant.operands.empty()) {  // the first of the others cut along its first dim
      layouts[0].operands[3] = {Shard(0)};
      layouts[1].operands[3] = {Shard(0)};
    }
    expect_agreement(fused(variant), operands, layouts);
  }
}

TEST(AttentionVariants, CutHeadsBatchAndQueriesNeedNoTraffic) {
  const Sizes n{2, 4, 4, 4, 2, 4};
  const std::string kinds = "msga";
  const Variant variant{
      "all", {.window = 3, .softcap = 2, .dropout = 0.5}, kinds, {n.batch, n.heads, n.s, n.t}};
  // The order of operands is q, k, v, mask, sinks, segments, slopes.
  const Placement r = Replicate();
  const std::vector<std::vector<Placement>> cuts = {
      {Shard(0), Shard(0), Shard(0), Shard(0), r, Shard(0), r},
      {Shard(2), Shard(2), Shard(2), Shard(1), Shard(0), r, Shard(0)},
      {Shard(1), r, r, Shard(2), r, r, r}};
  for (const auto& cut : cuts) {
    run_ranks(2, [&](Communicator world) {
      DeviceMesh mesh(world, {{"x", 2}});
      TrafficScope scope(Traffic::forbid);
      Tensors t;
      const auto operands = operands_of(variant, n, f32);
      for (size_t i = 0; i < operands.size(); ++i) {
        t.push_back(operands[i].on(Sharding(mesh, {cut[i]})));
      }
      const Tensor out = attention(t[0], t[1], t[2], options_of(variant, t));
      EXPECT_TRUE(out.sharding()[0] == cut[0]);
    });
  }
}

TEST(AttentionVariants, DropsProbabilitiesWithTheSameBitsOnAnyLayout) {
  const Sizes n{2, 6, 9, 4, 2, 9};
  const Variant variant{"dropout", {.dropout = 0.4}};
  const auto reset = [] { Context::current().random = {11, 5}; };
  // Equal scores and the unit matrix as values show which probabilities are kept.
  Array unit{{n.batch, n.t, n.kv_heads, n.d}, {}, f64};
  for (int64_t i = 0; i < unit.shape.product(); ++i) {
    unit.values.push_back(i / (n.kv_heads * n.d) % n.t == i % n.d ? 1 : 0);
  }
  reset();
  const Tensor zero = zeros({n.batch, n.s, n.heads, n.d}, {.dtype = f64});
  const Tensor kept =
      permute(attention(zero, zeros_like(unit.on()), unit.on(), {.causal = false, .dropout = 0.4}),
              {0, 2, 1, 3}) *
      static_cast<double>(n.t);
  const double share = mean(cast(equal(kept, zeros_like(kept)), f64)).item();
  EXPECT_NEAR(share, 0.4, 5 * std::sqrt(0.24 / static_cast<double>(kept.numel())));
  const auto operands = operands_of(variant, n, f64);
  const Function seeded = [&](const Tensors& t) {
    reset();
    return fused(variant)(t);
  };
  const Outcome actual = outcome_of(seeded, operands);
  const Outcome expected =
      outcome_of([&](const Tensors& t) { return defined(variant, t, kept); }, operands);
  expect_close(actual, expected, 1e-6, "out");
  expect_agreement(seeded, operands,
                   {{{{"x", 2}}, {{Shard(0)}, {Shard(0)}, {Shard(0)}}},
                    {{{"x", 2}}, {{Shard(2)}, {Shard(2)}, {Shard(2)}}},
                    {{{"x", 3}}, {{Shard(1)}, {Replicate()}, {Replicate()}}}},
                   1e-12);
}

namespace {

struct EveryThird {
  bool mask(int64_t b, int64_t h, int64_t q, int64_t k) const { return (b + h + q + k) % 3 != 0; }
};

struct Squashed {
  double cap;

  template <class T> T score(T score, int64_t, int64_t h, int64_t q, int64_t k) const {
    const T x = score / static_cast<T>(cap);
    return x / (1 + std::abs(x)) - static_cast<T>(h * (q - k)) / 8;
  }
  template <class T> T slope(T score, int64_t, int64_t, int64_t, int64_t) const {
    const T x = 1 + std::abs(score / static_cast<T>(cap));
    return 1 / (x * x * static_cast<T>(cap));
  }
};

}  // namespace

TEST(AttentionVariants, WithACustomRuleHaveNoSecondDerivative) {
  Tensor q = numbers({1, 2, 2, 4}, 1, {}, f64), k = numbers({1, 2, 2, 4}, 2, {}, f64);
  q.set_requires_grad();
  const Tensor y = attention_with(q, k, k, EveryThird(), {.causal = false});
  EXPECT_EQ(error_of([&] { grad({sum(y)}, {q}, {.create_graph = true}); }),
            "attention_with: its gradient has no derivative, expected a backward without "
            "create_graph; state the mod as a mask");
}

TEST(AttentionVariants, TakeACustomRule) {
  const Sizes n{2, 6, 6, 4, 2, 4};
  const auto operands = operands_of({}, n, f64);
  Array mask{{n.batch, n.heads, n.s, n.t}, {}, boolean}, bias{{1, n.heads, n.s, n.t}, {}, f64};
  for (int64_t i = 0; i < mask.shape.product(); ++i) {
    const int64_t k = i % n.t, q = i / n.t % n.s, h = i / n.t / n.s % n.heads;
    const int64_t b = i / n.t / n.s / n.heads;
    mask.values.push_back(EveryThird().mask(b, h, q, k) ? 1 : 0);
    if (b == 0) bias.values.push_back(-static_cast<double>(h * (q - k)) / 8);
  }
  const Function third = [](const Tensors& t) {
    return Tensors{attention_with(t[0], t[1], t[2], EveryThird(), {.causal = false})};
  };
  const Function squashed = [](const Tensors& t) {
    return Tensors{attention_with(t[0], t[1], t[2], Squashed{0.5})};
  };
  const Outcome masked = outcome_of(
      [&](const Tensors& t) {
        return defined({"", {.causal = false}, "b"}, {t[0], t[1], t[2], mask.on()});
      },
      operands);
  const Outcome changed = outcome_of(
      [&](const Tensors& t) {
        Tensor x = matmul(by_heads(t[0], 4), by_heads(t[1], 4).transpose(-2, -1));  // 0.5 / 0.5
        Tensor weights = exp(x / (abs(x) + 1.0) + bias.on()) * attends({}, n.s, n.t, f64);
        return Tensors{
            permute(matmul(weights / sum(weights, {3}, true), by_heads(t[2], 4)), {0, 2, 1, 3})};
      },
      operands);
  for (const auto& [function, expected] : {std::pair(third, masked), {squashed, changed}}) {
    const Outcome actual = outcome_of(function, operands);
    expect_close(actual, expected, 1e-12, "out");
    expect_agreement(function, operands,
                     {{{{"x", 2}}, {{Shard(0)}, {Shard(0)}, {Shard(0)}}},
                      {{{"x", 2}}, {{Shard(2)}, {Shard(2)}, {Shard(2)}}},
                      {{{"x", 3}}, {{Shard(1)}, {Replicate()}, {Replicate()}}}});
  }
}

TEST(AttentionVariants, InfiniteMasksHideWholeTiles) {
  const Sizes n{1, 130, 700, 2, 1, 8};
  const auto operands = operands_of({}, n, f64);
  Array added{{n.s, n.t}, {}, f64}, attends{{n.s, n.t}, {}, boolean};
  for (int64_t i = 0; i < n.s * n.t; ++i) {
    const bool sees = i % n.t / 150 == i / n.t / 40;
    attends.values.push_back(sees ? 1 : 0);
    added.values.push_back(sees ? 0 : -INFINITY);
  }
  const auto masked = [](const Array& mask) {
    return [&mask](const Tensors& t) {
      return Tensors{attention(t[0], t[1], t[2], {.causal = false, .mask = mask.on()})};
    };
  };
  const Outcome expected = outcome_of(masked(attends), operands);
  const Outcome actual = outcome_of(masked(added), operands);
  expect_close(actual, expected, 0, "out");
  expect_close(expected.results[0],
               outcome_of(
                   [&](const Tensors& t) {
                     return defined({"", {.causal = false}, "b"}, {t[0], t[1], t[2], attends.on()});
                   },
                   operands)
                   .results[0],
               1e-12, "definition");
}

/// The peak of memory of forward and backward, not counting the operands, in bytes.
static int64_t peak_of(const Variant& variant, int64_t t) {
  const Sizes n{1, t, t, 2, 2, 16};
  Tensors operands;
  for (const Array& array : operands_of(variant, n, f32)) {
    operands.push_back(array.on());
    if (is_floating(array.dtype)) operands.back().set_requires_grad();
  }
  reset_peak_memory();
  const int64_t before = memory_statistics().total.current;
  sum(fused(variant)(operands)[0]).backward();
  return memory_statistics().total.peak - before;
}

TEST(AttentionVariants, TakeMemoryOfTheSequenceNotOfTheScores) {
  for (const Variant& variant :
       std::vector<Variant>{{"plain", {}},
                            {"window", {.window = 100}},
                            {"softcap and dropout", {.softcap = 2, .dropout = 0.1}},
                            {"sinks, segments, alibi", {}, "sga"},
                            {"mask of keys", {.causal = false}, "m", {1, 1, 1, 0}}}) {
    const auto sized = [&](int64_t t) {
      Variant with = variant;
      if (variant.mask.ndim() == 4) with.mask = {1, 1, 1, t};
      return peak_of(with, t);
    };
    sized(64);  // what is kept for later calls
    const int64_t once = sized(1024), twice = sized(2048);
    EXPECT_LE(twice, 2 * once + once / 8) << variant.name;
    EXPECT_LE(twice, int64_t{2} * 2048 * 2048 * 4 / 4) << variant.name;  // of 2 heads' scores
  }
}

TEST(AttentionVariants, SayWhatIsWrong) {
  const Tensor q = zeros({2, 3, 4, 8}), k = zeros({2, 5, 2, 8});
  const auto error = [&](const AttentionOptions& options) {
    return error_of([&] { attention(q, k, k, options); });
  };
  EXPECT_EQ(error({.window = -1}), "attention: window is -1, expected 0 or more");
  EXPECT_EQ(error({.softcap = -2}), "attention: softcap is -2, expected 0 or more");
  EXPECT_EQ(error({.dropout = 1}), "attention: dropout is 1, expected one in [0, 1)");
  EXPECT_EQ(error({.mask = zeros({3, 4})}),
            "attention: shape of mask is [3, 4], expected one that broadcasts to [2, 4, 3, 5], "
            "[batch, heads, s, t]");
  EXPECT_EQ(error({.mask = zeros({3, 5}, {.dtype = i64})}),
            "attention: dtype of mask is i64, expected bool or a floating one");
  EXPECT_EQ(error({.sinks = zeros({2})}), "attention: shape of sinks is [2], expected [4]");
  EXPECT_EQ(error({.segments = zeros({2, 3}, {.dtype = i64})}),
            "attention: shape of segments is [2, 3], expected [2, 5]");
  EXPECT_EQ(error({.segments = zeros({2, 5})}),
            "attention: dtype of segments is f32, expected integers");
  EXPECT_EQ(error({.alibi = zeros({4, 1})}), "attention: shape of alibi is [4, 1], expected [4]");
  Tensor slopes = zeros({4});
  slopes.set_requires_grad();
  EXPECT_EQ(error({.alibi = slopes}),
            "attention: alibi requires a gradient, expected constants; add slopes times distances "
            "as a mask");
  EXPECT_EQ(error_of([&] {
              attention(k, q, q, {.segments = zeros({2, 3}, {.dtype = i64})});
            }),
            "attention: number of heads of q [2, 5, 2, 8] is 2, expected a multiple of 4, those of "
            "k [2, 3, 4, 8]");
  const Tensor few = zeros({2, 3, 2, 8});
  EXPECT_EQ(error_of([&] {
              attention(k, few, few, {.segments = zeros({2, 3}, {.dtype = i64})});
            }),
            "attention: number of queries is 5, expected at most 3, that of keys, because segments "
            "are given");
}

}  // namespace weft
