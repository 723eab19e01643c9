// SPDX-License-Identifier: Apache-2.0
#include "tests/ops/agreement.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {

namespace {

struct AttentionSizes {
  int64_t batch, s, t, heads, kv_heads, d;
};

std::vector<Array> operands_of(const AttentionSizes& n, DType dtype = f32) {
  return {random_array({n.batch, n.s, n.heads, n.d}, -2, 2, dtype, 1),
          random_array({n.batch, n.t, n.kv_heads, n.d}, -2, 2, dtype, 2),
          random_array({n.batch, n.t, n.kv_heads, n.d}, -2, 2, dtype, 3)};
}

/// Computes the definition row by row.
Array plain_attention(const AttentionSizes& n, const std::vector<Array>& qkv, bool causal,
                      double scale) {
  const auto at = [&](const Array& a, int64_t b, int64_t i, int64_t h, int64_t e) {
    const Shape& s = a.shape;
    return a.values[static_cast<size_t>(((b * s[1] + i) * s[2] + h) * s[3] + e)];
  };
  Array out{qkv[0].shape, {}};
  for (int64_t b = 0; b < n.batch; ++b) {
    for (int64_t i = 0; i < n.s; ++i) {
      for (int64_t h = 0; h < n.heads; ++h) {
        const int64_t g = h / (n.heads / n.kv_heads);
        const int64_t seen = causal ? std::max<int64_t>(n.t - n.s + i + 1, 0) : n.t;
        std::vector<double> weight;
        double total = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0;
          for (int64_t e = 0; e < n.d; ++e)
            score += at(qkv[0], b, i, h, e) * at(qkv[1], b, j, g, e);
          weight.push_back(std::exp(score * scale));
          total += weight.back();
        }
        for (int64_t e = 0; e < n.d; ++e) {
          double value = 0;
          for (int64_t j = 0; j < seen; ++j) {
            value += weight[static_cast<size_t>(j)] / total * at(qkv[2], b, j, g, e);
          }
          out.values.push_back(value);
        }
      }
    }
  }
  return out;
}

Tensors attended(const Tensors& t) { return {attention(t[0], t[1], t[2])}; }

}  // namespace

TEST(Attention, EqualsPlainLoops) {
  const std::vector<AttentionSizes> table = {
      {2, 5, 5, 6, 3, 4}, {1, 3, 7, 2, 2, 5}, {3, 7, 5, 4, 1, 8}, {1, 1, 9, 2, 1, 16}};
  for (const AttentionSizes& n : table) {
    for (bool causal : {false, true}) {
      const auto qkv = operands_of(n);
      const Tensor out = attention(qkv[0].on(), qkv[1].on(), qkv[2].on(), causal, 0.3);
      expect_close(whole(out), plain_attention(n, qkv, causal, 0.3), 1e-5, "scale 0.3");
    }
  }
}

TEST(Attention, ScalesByTheRootOfTheHeadUnlessTold) {
  const AttentionSizes n{1, 5, 5, 2, 2, 16};
  const auto qkv = operands_of(n);
  expect_close(whole(attention(qkv[0].on(), qkv[1].on(), qkv[2].on())),
               plain_attention(n, qkv, true, 0.25), 1e-5, "default scale");
}

TEST(Attention, GradientsEqualDifferences) {
  const AttentionSizes n{1, 3, 4, 4, 2, 2};
  auto qkv = operands_of(n, f64);
  Array dout = random_array(qkv[0].shape, -1, 1, f64, 4);
  const auto loss = [&] {
    Array out = plain_attention(n, qkv, true, 0.5);
    double total = 0;
    for (size_t i = 0; i < out.values.size(); ++i) total += out.values[i] * dout.values[i];
    return total;
  };
  Tensors tensors = {qkv[0].on(), qkv[1].on(), qkv[2].on()};
  for (Tensor& tensor : tensors) tensor.set_requires_grad();
  backward({attention(tensors[0], tensors[1], tensors[2], true, 0.5)}, {dout.on()});
  for (size_t operand = 0; operand < 3; ++operand) {
    Array expected{qkv[operand].shape, {}};
    for (double& value : qkv[operand].values) {
      const double before = value, step = 1e-5;
      value = before + step;
      const double above = loss();
      value = before - step;
      expected.values.push_back((above - loss()) / (2 * step));
      value = before;
    }
    expect_close(whole(tensors[operand].grad()), expected, 1e-6, std::to_string(operand));
  }
}

TEST(Attention, AgreesWithBatchHeadsOrSequenceCut) {
  const Placements whole_operand = {Replicate()};
  const std::vector<LaidOut> layouts = {
      {{{"x", 3}}, {{Shard(0)}, {Shard(0)}, {Shard(0)}}},
      {{{"x", 2}}, {{Shard(2)}, {Shard(2)}, {Shard(2)}}},
      {{{"x", 4}}, {{Shard(2)}, {Shard(2)}, {Shard(2)}}},  // 4 kv heads
      {{{"x", 4}}, {{Shard(2)}, whole_operand, whole_operand}},
      {{{"x", 3}}, {{Shard(2)}, {Shard(2)}, {Shard(2)}}},  // boundaries of heads and kv heads
      {{{"x", 4}}, {{Shard(1)}, whole_operand, whole_operand}},
      {{{"x", 3}}, {{Shard(1)}, {Shard(1)}, {Shard(1)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(0), Shard(2)}, {Shard(0), Shard(2)}, {Shard(0), Shard(2)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(1), Shard(2)}, {{Replicate(), Shard(2)}}, {Shard(0)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(2), Shard(2)}, {Shard(2), Shard(2)}, {Shard(2), Shard(2)}}},
      {{{"x", 2}, {"y", 2}}, {{Shard(3), Shard(2)}, {Shard(3), Shard(2)}, {Shard(3), Shard(2)}}},
  };
  expect_agreement(attended, operands_of({3, 5, 7, 8, 4, 4}), layouts);
}

TEST(Attention, AgreesWithOneKeyHeadForAll) {
  expect_agreement(attended, operands_of({2, 5, 5, 6, 1, 4}),
                   {{{{"x", 3}}, {{Shard(2)}, {Replicate()}, {Replicate()}}},
                    {{{"x", 4}}, {{Shard(2)}, {Replicate()}, {Replicate()}}}});
}

TEST(Attention, CutHeadsNeedNoTraffic) {
  run_ranks(2, [](Communicator world) {
    DeviceMesh mesh(world, {{"x", 2}});
    TrafficScope scope(Traffic::forbid);
    Tensors t;
    for (const Array& a : operands_of({2, 5, 5, 8, 2, 4})) {
      t.push_back(a.on(Sharding(mesh, {Shard(2)})));
      t.back().set_requires_grad();
    }
    Tensor out = attention(t[0], t[1], t[2]);
    EXPECT_TRUE(out.sharding()[0] == Placement(Shard(2)));
    backward({out}, {out.detach()});
    for (const Tensor& tensor : t) {
      EXPECT_TRUE(tensor.grad().sharding()[0] == Placement(Shard(2)));
    }
  });
}

TEST(Attention, TakesAnyStrides) {
  const AttentionSizes n{2, 5, 5, 4, 2, 3};
  const auto qkv = operands_of(n);
  Tensors dense, turned;
  for (const Array& a : qkv) {
    dense.push_back(a.on());
    // The same values, with the elements of the last dim far apart.
    turned.push_back(permute(permute(a.on(), {0, 1, 3, 2}) * 1.0, {0, 1, 3, 2}).detach());
    dense.back().set_requires_grad();
    turned.back().set_requires_grad();
  }
  sum(attention(dense[0], dense[1], dense[2])).backward();
  Tensor out = attention(turned[0], turned[1], turned[2]);
  expect_close(whole(out), plain_attention(n, qkv, true, 1 / std::sqrt(3.0)), 1e-5, "out");
  sum(out).backward();
  for (size_t i = 0; i < 3; ++i) {
    expect_close(whole(turned[i].grad()), whole(dense[i].grad()), 0, std::to_string(i));
  }
}

TEST(Attention, SaysWhatIsWrong) {
  const Tensor q = zeros({2, 5, 6, 4}), k = zeros({2, 7, 4, 4});
  EXPECT_EQ(error_of([&] { attention(q, k, k); }),
            "attention: number of heads of q [2, 5, 6, 4] is 6, expected a multiple of 4, those of "
            "k [2, 7, 4, 4]");
  EXPECT_EQ(error_of([&] { attention(q, k, q); }),
            "attention: q, k and v are [2, 5, 6, 4], [2, 7, 4, 4] and [2, 5, 6, 4], expected "
            "[batch, s, heads, d] and twice [batch, t, kv heads, d]");
  const Tensor other = zeros({2, 7, 3, 5});
  EXPECT_EQ(error_of([&] { attention(q, other, other); }),
            "attention: factor d is 5 in operand 1 [2, 7, 3, 5], expected 4, as in operand 0 [2, "
            "5, 6, 4]");
}

}  // namespace weft
