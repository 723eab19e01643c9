// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "src/kernels/matmul/tasks.h"
#include "tests/matmul/strided_array.h"
#include "tests/support/scratch.h"

namespace weft {

struct AttentionCase {
  int64_t batch, heads, kv_heads, queries, keys, width;
  AttentionArguments options;
};

static std::ostream& operator<<(std::ostream& out, const AttentionCase& c) {
  out << "batch " << c.batch << " heads " << c.heads << "/" << c.kv_heads << " queries "
      << c.queries << " keys " << c.keys << " width " << c.width
      << (c.options.causal ? " causal" : "");
  if (c.options.query_offset) out << " offset " << *c.options.query_offset;
  return out;
}

/// Operands and results of one call; `order` is the order of the dims in memory.
struct AttentionArrays {
  AttentionArrays(DType dtype, const AttentionCase& c, const std::vector<int>& order, int64_t gap)
      : q(dtype, {c.batch, c.heads, c.queries, c.width}, order, gap),
        k(dtype, {c.batch, c.kv_heads, c.keys, c.width}, order, gap),
        v(dtype, k.block().shape, order, gap),
        out(dtype, q.block().shape, order, gap),
        dout(dtype, q.block().shape, order, gap),
        dq(dtype, q.block().shape, order, gap),
        dk(dtype, k.block().shape, order, gap),
        dv(dtype, k.block().shape, order, gap),
        lse(dtype == f64 ? f64 : f32, {c.batch, c.heads, c.queries}) {
    std::mt19937 random(17);
    for (StridedArray* each : {&q, &k, &v, &dout}) each->randomize(random);
    for (StridedArray* each : {&out, &dq, &dk, &dv}) each->fill(std::nan(""));
  }
  void forward(const AttentionArguments& options) {
    attention({q.block(), k.block(), v.block(), out.block(), lse.block(), options});
  }
  void backward(const AttentionArguments& options) {
    attention_backward({{q.block(), k.block(), v.block(), out.block(), lse.block(), options},
                        dout.block(),
                        dq.block(),
                        dk.block(),
                        dv.block(),
                        {}});
  }

  StridedArray q, k, v, out, dout, dq, dk, dv, lse;
};

/// The same in plain double loops, one query at a time.
struct PlainAttention {
  std::vector<double> out, lse, dq, dk, dv;

  PlainAttention(const AttentionCase& c, const AttentionArrays& x)
      : out(count(x.q)), lse(count(x.lse)), dq(count(x.q)), dk(count(x.k)), dv(count(x.k)) {
    const auto q = x.q.values(), k = x.k.values(), v = x.v.values(), dout = x.dout.values();
    const double scale = c.options.scale ? static_cast<double>(*c.options.scale)
                                         : 1 / std::sqrt(static_cast<double>(c.width));
    const auto width = static_cast<size_t>(c.width);
    for (size_t row = 0; row < lse.size(); ++row) {  // (batch, head, query)
      const int64_t query = static_cast<int64_t>(row) % c.queries;
      const int64_t head = static_cast<int64_t>(row) / c.queries % c.heads;
      const int64_t batch = static_cast<int64_t>(row) / c.queries / c.heads;
      const int64_t kv_head = batch * c.kv_heads + head / (c.heads / c.kv_heads);
      const int64_t last = c.options.query_offset.value_or(c.keys - c.queries) + query;
      const int64_t seen = c.options.causal ? std::clamp<int64_t>(last + 1, 0, c.keys) : c.keys;
      const size_t first = static_cast<size_t>(kv_head * c.keys) * width, at = row * width;
      std::vector<double> p(static_cast<size_t>(seen)), dp(p.size());
      double total = 0, delta = 0;
      for (size_t j = 0; j < p.size(); ++j) {
        double score = 0;
        for (size_t d = 0; d < width; ++d) score += q[at + d] * k[first + j * width + d];
        total += p[j] = std::exp(score * scale);
      }
      lse[row] = std::log(total);
      for (size_t j = 0; j < p.size(); ++j) {
        p[j] /= total;
        for (size_t d = 0; d < width; ++d) {
          out[at + d] += p[j] * v[first + j * width + d];
          dv[first + j * width + d] += p[j] * dout[at + d];
          dp[j] += dout[at + d] * v[first + j * width + d];
        }
        delta += p[j] * dp[j];
      }
      for (size_t j = 0; j < p.size(); ++j) {
        const double ds = p[j] * (dp[j] - delta) * scale;
        for (size_t d = 0; d < width; ++d) {
          dq[at + d] += ds * k[first + j * width + d];
          dk[first + j * width + d] += ds * q[at + d];
        }
      }
    }
  }

 private:
  static size_t count(const StridedArray& x) { return static_cast<size_t>(x.numel()); }
};

static void expect_plain(DType dtype, const AttentionCase& c, const std::vector<int>& order,
                         int64_t gap) {
  AttentionArrays x(dtype, c, order, gap);
  x.forward(c.options);
  x.backward(c.options);
  const PlainAttention plain(c, x);
  const double bound = 3 * tolerance_of(dtype);
  EXPECT_LE(relative_difference(x.out.values(), plain.out), bound) << dtype << " out of " << c;
  EXPECT_LE(relative_difference(x.lse.values(), plain.lse), dtype == f64 ? 1e-14 : 2e-6)
      << dtype << " lse of " << c;
  EXPECT_LE(relative_difference(x.dq.values(), plain.dq), bound) << dtype << " dq of " << c;
  EXPECT_LE(relative_difference(x.dk.values(), plain.dk), bound) << dtype << " dk of " << c;
  EXPECT_LE(relative_difference(x.dv.values(), plain.dv), bound) << dtype << " dv of " << c;
  for (const StridedArray* each : {&x.q, &x.k, &x.out, &x.dq, &x.dk, &x.dv}) {
    EXPECT_TRUE(each->gaps_untouched()) << c;
  }
}

static AttentionArguments causal_at(int64_t offset) {
  return {.scale = {}, .causal = true, .query_offset = offset};
}

static const AttentionArguments kAll{.scale = {}, .causal = false, .query_offset = {}};

static const std::vector<AttentionCase> kCases = {
    {2, 4, 2, 5, 7, 8, {}},
    {2, 4, 4, 7, 7, 16, {}},
    {1, 8, 2, 3, 1, 5, kAll},
    {3, 2, 1, 1, 7, 64, {}},  // decoding
    {1, 4, 2, 5, 3, 8, {}},   // the first queries see no key
    {1, 2, 2, 4, 9, 8, causal_at(0)},
    {1, 2, 2, 4, 9, 8, causal_at(100)},
    {1, 2, 2, 4, 9, 8, causal_at(-10)},  // no query sees any
    {1, 4, 2, 65, 129, 32, {}},
    {2, 2, 1, 130, 130, 64, {}},
    {1, 8, 1, 70, 64, 24, kAll},
    {1, 2, 1, 67, 600, 16, {}},  // more keys than a tile
    {1, 2, 2, 33, 1100, 8, kAll},
    {1, 1, 1, 600, 600, 8, {.scale = 3.0f, .causal = true, .query_offset = {}}},
    {1, 160, 1, 2, 3, 4, {}},
    {1, 8, 2, 1, 700, 32, {}},  // few rows: keys in parts
    {2, 4, 1, 2, 515, 24, {}},
    {1, 4, 2, 3, 700, 33, causal_at(255)},
};

TEST(Attention, EqualsPlainLoops) {
  for (const auto& c : kCases) {
    expect_plain(f64, c, {0, 2, 1, 3}, 0);
    expect_plain(f32, c, {0, 2, 1, 3}, 0);
  }
}

TEST(Attention, TakesAnyStridesWithADenseLastDim) {
  for (const auto& c : kCases) {
    for (const std::vector<int>& order : {std::vector<int>{0, 1, 2, 3}, {2, 1, 0, 3}}) {
      expect_plain(f32, c, order, 3);
    }
  }
}

/// Sets the dtype in which bf16 is multiplied, for a scope.
struct MultipliedIn {
  explicit MultipliedIn(DType dtype) { multiply_attention_in(dtype); }
  ~MultipliedIn() { multiply_attention_in(std::nullopt); }
};

TEST(Attention, ComputesHalvesInF32) {
  const MultipliedIn scope(f32);
  for (const auto& c : kCases) {
    expect_plain(bf16, c, {0, 2, 1, 3}, 0);
    expect_plain(f16, c, {0, 2, 1, 3}, 0);
  }
}

TEST(Attention, OrMultipliesBf16AsItIs) {
  const MultipliedIn scope(bf16);
  for (const auto& c : kCases) {
    expect_plain(bf16, c, {0, 2, 1, 3}, 0);
    expect_plain(bf16, c, {2, 1, 0, 3}, 3);
  }
}

TEST(Attention, TakesNoQueriesNoKeysAndNoBatch) {
  for (const AttentionCase& c : {AttentionCase{0, 4, 2, 5, 7, 8, {}},
                                 {2, 4, 2, 0, 7, 8, {}},
                                 {2, 4, 2, 5, 0, 8, {}},
                                 {2, 0, 0, 5, 7, 8, {}}}) {
    AttentionArrays x(f32, c, {0, 2, 1, 3}, 0);
    x.forward(c.options);
    x.backward(c.options);
    for (const StridedArray* each : {&x.out, &x.dq, &x.dk, &x.dv}) {
      EXPECT_EQ(each->values(), std::vector<double>(each->values().size(), 0)) << c;
    }
    const auto lse = x.lse.values();
    EXPECT_EQ(lse, std::vector<double>(lse.size(), -std::numeric_limits<double>::infinity())) << c;
  }
}

TEST(Attention, LeavesOutLseThatNobodyWants) {
  const AttentionCase c{1, 4, 2, 5, 7, 8, {}};
  AttentionArrays with(f32, c, {0, 2, 1, 3}, 0), without(f32, c, {0, 2, 1, 3}, 0);
  with.forward(c.options);
  attention({without.q.block(),
             without.k.block(),
             without.v.block(),
             without.out.block(),
             {},
             c.options});
  EXPECT_EQ(with.out.values(), without.out.values());
}

TEST(Attention, GivesEqualBitsForAnyNumberOfThreads) {
  for (const AttentionCase& c : {AttentionCase{1, 4, 1, 300, 600, 64, {}},
                                 {3, 4, 2, 130, 130, 64, {}},
                                 {1, 8, 2, 1, 1500, 64, {}}}) {
    AttentionArrays one(f32, c, {0, 2, 1, 3}, 0);
    {
      ThreadLimit limit(1);
      one.forward(c.options);
      one.backward(c.options);
    }
    for (const int threads : {2, 3, 5}) {
      ThreadLimit limit(threads);
      AttentionArrays several(f32, c, {0, 2, 1, 3}, 0);
      several.forward(c.options);
      several.backward(c.options);
      EXPECT_EQ(one.out.values(), several.out.values());
      EXPECT_EQ(one.lse.values(), several.lse.values());
      EXPECT_EQ(one.dq.values(), several.dq.values());
      EXPECT_EQ(one.dk.values(), several.dk.values());
      EXPECT_EQ(one.dv.values(), several.dv.values());
    }
  }
}

/// sum(out * dout), whose gradients the backward computes.
static double weighted_sum(AttentionArrays& x, const AttentionArguments& options) {
  x.forward(options);
  const auto out = x.out.values(), dout = x.dout.values();
  double sum = 0;
  for (size_t i = 0; i < out.size(); ++i) sum += out[i] * dout[i];
  return sum;
}

TEST(Attention, GradientsAreSlopesOfTheForward) {
  const AttentionCase c{1, 4, 2, 5, 7, 4, {}};
  AttentionArrays x(f64, c, {0, 2, 1, 3}, 1);
  x.forward(c.options);
  x.backward(c.options);
  const std::pair<StridedArray*, StridedArray*> pairs[] = {
      {&x.q, &x.dq}, {&x.k, &x.dk}, {&x.v, &x.dv}};
  for (const auto& [operand, gradient] : pairs) {
    for (int64_t i = 0; i < operand->numel(); ++i) {
      const double before = operand->at(i), step = 1e-5;
      operand->set_at(i, before + step);
      const double above = weighted_sum(x, c.options);
      operand->set_at(i, before - step);
      const double below = weighted_sum(x, c.options);
      operand->set_at(i, before);
      EXPECT_NEAR(gradient->at(i), (above - below) / (2 * step), 1e-9);
    }
  }
}

TEST(Attention, EqualsPyTorch) {
  const std::string path = WEFT_SOURCE_DIR "/tests/matmul/attention_golden.json";
  for (const auto& golden : nlohmann::json::parse(std::ifstream(path))) {
    const auto n = golden["sizes"].get<std::vector<int64_t>>();
    AttentionCase c{n[0], n[1], n[2], n[3], n[4], n[5], {}};
    c.options.causal = golden["causal"];
    if (!golden["scale"].is_null()) c.options.scale = golden["scale"].get<float>();
    for (const DType dtype : {f64, f32}) {
      AttentionArrays x(dtype, c, {0, 2, 1, 3}, 0);
      double phase = 0.1;
      for (StridedArray* each : {&x.q, &x.k, &x.v, &x.dout}) {
        for (int64_t i = 0; i < each->numel(); ++i) {
          each->set_at(i, std::sin(0.7 * static_cast<double>(i) + phase));
        }
        phase += 0.1;
      }
      x.forward(c.options);
      x.backward(c.options);
      const double bound = dtype == f64 ? 1e-7 : 2e-6;  // the scales are floats
      EXPECT_LE(relative_difference(x.out.values(), golden["out"]), bound) << c;
      EXPECT_LE(relative_difference(x.dq.values(), golden["dq"]), bound) << c;
      EXPECT_LE(relative_difference(x.dk.values(), golden["dk"]), bound) << c;
      EXPECT_LE(relative_difference(x.dv.values(), golden["dv"]), bound) << c;
    }
  }
}

TEST(Attention, NamesWhatDisagrees) {
  const auto message = [](const AttentionCase& c, DType k_dtype, int64_t v_keys,
                          int64_t last_stride) {
    StridedArray q(f32, {c.batch, c.heads, c.queries, c.width}), out(f32, q.block().shape);
    StridedArray k(k_dtype, {c.batch, c.kv_heads, c.keys, c.width});
    StridedArray v(k_dtype, {c.batch, c.kv_heads, v_keys, c.width});
    MemoryBlock q_block = q.block();
    q_block.strides[3] = last_stride;
    return error_of([&] {
      attention({q_block, k.block(), v.block(), out.block(), {}, c.options});
    });
  };
  const AttentionCase c{1, 4, 2, 5, 7, 8, {}};
  EXPECT_EQ(message({1, 4, 3, 5, 7, 8, {}}, f32, 7, 1),
            "attention: number of query heads is 4, expected a multiple of 3, the key heads");
  EXPECT_EQ(message(c, f32, 6, 1), "attention: v is [1, 2, 6, 8], expected [1, 2, 7, 8]");
  EXPECT_EQ(message(c, f64, 7, 1), "attention: k is f64, expected f32");
  EXPECT_EQ(message(c, f32, 7, 2), "attention: stride of the last dim of q is 2, expected 1");
}

}  // namespace weft
