// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/ops/contract.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/extend/op.h"

namespace weft {

// Hard cases of the op contract, each with its required layout, values and traffic.

/// -log softmax(row)[target] by plain loops.
static double row_loss(const std::vector<double>& logits, int64_t classes, int64_t row,
                       int64_t target) {
  double sum = 0;
  for (int64_t v = 0; v < classes; ++v) sum += std::exp(logits[size_t(row * classes + v)]);
  return std::log(sum) - logits[size_t(row * classes + target)];
}

static std::vector<double> losses_of(const Shape& logits, const std::vector<double>& targets) {
  std::vector<double> values = small_numbers(logits), losses;
  for (int64_t row = 0; row < logits[0]; ++row) {
    losses.push_back(row_loss(values, logits[1], row, int64_t(targets[size_t(row)])));
  }
  return losses;
}

static Tensor targets_on(const DeviceMesh& mesh, const std::vector<double>& targets,
                         const Placements& placements = {}) {
  return from_values(targets, {static_cast<int64_t>(targets.size())},
                     {.dtype = i64, .sharding = Sharding(mesh, placements)});
}

TEST(Contract, CrossEntropyReducesThreeNumbersARowOfAShardedVocabulary) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    std::vector<int64_t> bytes;
    for (int64_t classes : {int64_t{7}, int64_t{700}}) {
      const std::vector<double> targets = {0, 6, 3, 2, 5};
      Tensor logits = numbers({5, classes}, 0, Sharding(mesh, {Shard(1)}));
      Tensor loss;
      bytes.push_back(bytes_received(
          mesh, [&] { loss = cross_entropy_rows(logits, targets_on(mesh, targets)); }));
      expect_placements(loss, {kWhole});
      expect_values(loss.to_vector<double>(), losses_of({5, classes}, targets), 1e-6);
    }
    EXPECT_EQ(bytes[0], bytes[1]);
    EXPECT_EQ(bytes[0], 3 * 3 * 5 * 4) << "three stages of five f32 from three ranks";
  });
}

TEST(Contract, CrossEntropyOverBatchAndVocabulary) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    const std::vector<double> targets = {1, 0, 6, 3, 2};
    Tensor logits = numbers({5, 7}, 0, Sharding(mesh, {Shard(0), Shard(1)}));
    Tensor loss = cross_entropy_rows(logits, targets_on(mesh, targets, {Shard(0), kWhole}));
    expect_placements(loss, {Shard(0), kWhole});
    expect_values(whole_values(loss), losses_of({5, 7}, targets), 1e-6);
  });
}

TEST(Contract, TheGradientOfCrossEntropyStaysOnItsPartOfTheVocabulary) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    const std::vector<double> targets = {0, 6, 3, 2, 5};
    Tensor logits = numbers({5, 7}, 0, Sharding(mesh, {Shard(1)}));
    logits.set_requires_grad();
    Tensor loss = cross_entropy(logits, targets_on(mesh, targets));
    EXPECT_EQ(bytes_received(mesh, [&] { loss.backward(); }), 0);
    expect_placements(logits.grad(), {Shard(1)});
    std::vector<double> values = small_numbers({5, 7}), expected;
    for (int64_t row = 0; row < 5; ++row) {
      for (int64_t v = 0; v < 7; ++v) {
        double share = std::exp(-row_loss(values, 7, row, v));
        expected.push_back((share - (v == int64_t(targets[size_t(row)]))) / 5);
      }
    }
    expect_values(whole_values(logits.grad()), expected, 1e-6);
  });
}

TEST(Contract, EmbeddingOfAShardedVocabularyIsASumWithoutTraffic) {
  for (const auto& axes : {kFour, kThree}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      const std::vector<double> ids = {6, 0, 6, 3, 5};
      Tensor weight = numbers({7, 3}, 0, Sharding(mesh, {Shard(0)}));
      weight.set_requires_grad();
      Tensor rows;
      EXPECT_EQ(bytes_received(mesh, [&] { rows = embedding(weight, targets_on(mesh, ids)); }), 0);
      expect_placements(rows, {kSum});
      std::vector<double> table = small_numbers({7, 3}), expected, gradient(21, 0);
      for (double id : ids) {
        for (size_t d = 0; d < 3; ++d) {
          expected.push_back(table[size_t(id) * 3 + d]);
          gradient[size_t(id) * 3 + d] += 1;
        }
      }
      expect_values(whole_values(rows), expected);
      Tensor ones = weft::ones({5, 3}, {.sharding = Sharding(mesh, {})});
      EXPECT_EQ(bytes_received(mesh, [&] { backward({rows}, {ones}); }), 0);
      expect_placements(weight.grad(), {Shard(0)});
      expect_values(whole_values(weight.grad()), gradient);
    });
  }
}

TEST(Contract, EmbeddingOverBatchAndVocabulary) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    Tensor weight = numbers({7, 3}, 0, Sharding(mesh, {kWhole, Shard(0)}));
    Tensor ids = targets_on(mesh, {6, 0, 6, 3, 5}, {Shard(0), kWhole});
    TrafficScope scope(Traffic::forbid);
    expect_placements(embedding(weight, ids), {Shard(0), kSum});
  });
}

/// Attention by plain loops, causal, scale 1/2; [b, s, h, d] and [b, t, g, d].
static std::vector<double> attended(const Shape& q, const Shape& k) {
  std::vector<double> qs = small_numbers(q, 1), ks = small_numbers(k, 2), vs = small_numbers(k, 3);
  std::vector<double> out;
  auto at = [](const std::vector<double>& x, const Shape& s, int64_t b, int64_t i, int64_t h,
               int64_t d) { return x[size_t(((b * s[1] + i) * s[2] + h) * s[3] + d)]; };
  for (int64_t b = 0; b < q[0]; ++b) {
    for (int64_t i = 0; i < q[1]; ++i) {
      for (int64_t h = 0; h < q[2]; ++h) {
        const int64_t g = h / (q[2] / k[2]), last = k[1] - q[1] + i;
        std::vector<double> weights;
        double sum = 0;
        for (int64_t t = 0; t <= last; ++t) {
          double score = 0;
          for (int64_t d = 0; d < q[3]; ++d) score += at(qs, q, b, i, h, d) * at(ks, k, b, t, g, d);
          weights.push_back(std::exp(score / 2));
          sum += weights.back();
        }
        for (int64_t d = 0; d < q[3]; ++d) {
          double value = 0;
          for (int64_t t = 0; t <= last; ++t) {
            value += weights[size_t(t)] / sum * at(vs, k, b, t, g, d);
          }
          out.push_back(value);
        }
      }
    }
  }
  return out;
}

static void expect_attention(const std::vector<MeshAxis>& axes, const Shape& q, const Shape& k,
                             const Placements& placements, bool free) {
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    Sharding sharding(mesh, placements);
    Tensor qs = numbers(q, 1, sharding), ks = numbers(k, 2, sharding), vs = numbers(k, 3, sharding);
    Tensor out;
    int64_t bytes = bytes_received(mesh, [&] { out = attention(qs, ks, vs, true, 0.5); });
    if (free) {
      EXPECT_EQ(bytes, 0);
      EXPECT_EQ(out.sharding(), sharding) << out.sharding();
    }
    expect_values(whole_values(out), attended(q, k), 1e-5);
  });
}

TEST(Contract, AttentionByHeadsOrBatchIsFree) {
  expect_attention(kFour, {2, 3, 8, 4}, {2, 5, 4, 4}, {Shard(2)}, true);
  expect_attention(kThree, {2, 3, 6, 4}, {2, 3, 3, 4}, {Shard(2)}, true);
  expect_attention(kThree, {5, 3, 2, 4}, {5, 3, 1, 4}, {Shard(0)}, true);
  expect_attention(kTwoByTwo, {3, 3, 4, 4}, {3, 3, 2, 4}, {Shard(0), Shard(2)}, true);
}

TEST(Contract, AttentionWhoseGroupsAreCutApartIsRight) {
  expect_attention(kFour, {2, 3, 8, 4}, {2, 3, 2, 4}, {Shard(2)}, false);
  expect_attention(kThree, {1, 3, 4, 4}, {1, 3, 1, 4}, {Shard(2)}, false);
}

TEST(Contract, CatAlongAShardedDimMovesTheRowsThatShift) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Sharding rows(mesh, {Shard(0)});
    Tensor a = numbers({8, 2}, 1, rows), b = numbers({4, 2}, 2, rows), both;
    const int64_t expected[] = {8, 16, 24, 16};
    EXPECT_EQ(bytes_received(mesh, [&] { both = cat({a, b}, 0); }), expected[mesh.rank()]);
    expect_placements(both, {Shard(0)});
    std::vector<double> values = small_numbers({8, 2}, 1), more = small_numbers({4, 2}, 2);
    values.insert(values.end(), more.begin(), more.end());
    expect_values(whole_values(both), values);
  });
}

TEST(Contract, CatAlongAnotherDimIsFree) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    Sharding rows(mesh, {Shard(0)});
    TrafficScope scope(Traffic::forbid);
    expect_placements(cat({numbers({5, 3}, 1, rows), numbers({5, 2}, 2, rows)}, 1), {Shard(0)});
  });
}

TEST(Contract, SliceOfAShardedDimMovesTheRowsThatShift) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor a = numbers({16, 3}, 1, Sharding(mesh, {Shard(0)})), part;
    a.set_requires_grad();
    const int64_t forward[] = {24, 24, 24, 0};
    EXPECT_EQ(bytes_received(mesh, [&] { part = slice(a, 0, 2, 16); }), forward[mesh.rank()]);
    expect_placements(part, {Shard(0)});
    std::vector<double> values = small_numbers({16, 3}, 1);
    expect_values(whole_values(part), {values.begin() + 6, values.end()});
    // The transpose: rank 1's rows 4 and 5 are the last two of rank 0's slice, and so on.
    const int64_t back[] = {0, 24, 24, 24};
    Tensor ones = weft::ones({14, 3}, {.sharding = Sharding(mesh, {Shard(0)})});
    EXPECT_EQ(bytes_received(mesh, [&] { backward({part}, {ones}); }), back[mesh.rank()]);
    expect_placements(a.grad(), {Shard(0)});
    std::vector<double> gradient(48, 1);
    std::fill_n(gradient.begin(), 6, 0.0);
    expect_values(whole_values(a.grad()), gradient);
  });
}

TEST(Contract, SliceOfAnotherDimIsAFreeView) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    Tensor a = numbers({5, 8}, 1, Sharding(mesh, {Shard(0)}));
    TrafficScope scope(Traffic::forbid);
    Tensor part = slice(a, 1, 2, 7, 2);
    expect_placements(part, {Shard(0)});
    EXPECT_EQ(part.storage(), a.storage());
  });
}

/// Finds when a shard of the merged dim is one of its outer factor: (outer, inner, ranks) by direct
/// counting.
/// A split keeps a cut where parts have whole rows; a merge always does.
TEST(Contract, ReshapeKeepsACutWhereBoundariesCoincide) {
  struct Row {
    int64_t outer, inner;
    int ranks;
    bool keeps;
  };
  const std::vector<Row> table = {
      {8, 2, 4, true},  {5, 2, 4, false}, {6, 2, 4, false}, {3, 4, 4, false}, {7, 3, 4, true},
      {4, 5, 4, true},  {5, 1, 4, true},  {2, 6, 4, false}, {11, 2, 4, true}, {5, 2, 3, true},
      {4, 2, 3, false}, {7, 2, 3, false}, {3, 7, 3, true},  {6, 5, 3, true},
  };
  for (const Row& row : table) {
    on_mesh({{"a", row.ranks}}, [&](const DeviceMesh& mesh) {
      const Shape split = {2, row.outer, row.inner}, merged = {2, row.outer * row.inner};
      Tensor a = numbers(merged, 1, Sharding(mesh, {Shard(1)})), b;
      Tensor c = numbers(split, 1, Sharding(mesh, {Shard(1)})), d;
      int64_t bytes = bytes_received(mesh, [&] { b = reshape(a, split), d = reshape(c, merged); });
      expect_values(whole_values(b), small_numbers(merged, 1));
      expect_values(whole_values(d), small_numbers(merged, 1));
      EXPECT_EQ(d.storage(), c.storage());
      EXPECT_EQ(d.sharding() == c.sharding(), row.keeps) << d.sharding();
      if (row.keeps) {
        EXPECT_EQ(bytes, 0);
        EXPECT_EQ(b.sharding(), a.sharding());
        EXPECT_EQ(b.storage(), a.storage());
      }
    });
  }
}

TEST(Contract, ReshapeOfADimThatTwoAxesCut) {
  struct Row {
    int64_t outer, inner;
    bool keeps;
  };
  for (const Row& row : {Row{8, 2, true}, Row{6, 2, false}, Row{7, 3, false}, Row{4, 3, true}}) {
    on_mesh(kTwoByTwo, [&](const DeviceMesh& mesh) {
      for (bool reversed : {false, true}) {
        Placements cut = {Shard(0), Shard(0)};
        if (reversed) cut = cut.cut_in_order(0, {"b", "a"});
        Tensor a = numbers({row.outer * row.inner}, 1, Sharding(mesh, cut));
        Tensor b = reshape(a, {row.outer, row.inner});
        EXPECT_TRUE(b.sharding() == a.sharding() || !row.keeps) << row.outer << " x " << row.inner;
        expect_values(whole_values(b), small_numbers({row.outer * row.inner}, 1));
      }
    });
  }
}

/// x [n, k] times w [m, k] transposed plus bias, exact.
static std::vector<double> linear_of(int64_t n, int64_t k, int64_t m, bool bias) {
  std::vector<double> x = small_numbers({n, k}, 1), w = small_numbers({m, k}, 2);
  std::vector<double> b = small_numbers({m}, 3), y;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < m; ++j) {
      double sum = bias ? b[size_t(j)] : 0;
      for (int64_t l = 0; l < k; ++l) sum += x[size_t(i * k + l)] * w[size_t(j * k + l)];
      y.push_back(sum);
    }
  }
  return y;
}

TEST(Contract, ARowParallelBiasCountsOnce) {
  for (const auto& axes : {kFour, kThree}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      Sharding columns(mesh, {Shard(1)}), everywhere(mesh, {});
      Tensor x = numbers({5, 7}, 1, columns), w = numbers({3, 7}, 2, columns);
      Tensor b = numbers({3}, 3, everywhere);
      b.set_requires_grad();
      TrafficScope scope(Traffic::free_only);
      Tensor y;
      EXPECT_EQ(bytes_received(mesh, [&] { y = linear(x, w, b); }), 0);
      expect_placements(y, {kSum});
      {
        TrafficScope open(Traffic::allow);
        expect_values(whole_values(y), linear_of(5, 7, 3, true));
      }
      Tensor ones = weft::ones({5, 3}, {.sharding = everywhere});
      EXPECT_EQ(bytes_received(mesh, [&] { backward({y}, {ones}); }), 0);
      expect_placements(b.grad(), {kWhole});
      expect_values(b.grad().to_vector<double>(), {5, 5, 5});
    });
  }
}

TEST(Contract, ARowParallelBiasOnTwoAxes) {
  on_mesh(kTwoByTwo, [](const DeviceMesh& mesh) {
    Tensor x = numbers({5, 7}, 1, Sharding(mesh, {Shard(0), Shard(1)}));
    Tensor w = numbers({3, 7}, 2, Sharding(mesh, {kWhole, Shard(1)}));
    Tensor y = linear(x, w, numbers({3}, 3, Sharding(mesh, {})));
    expect_placements(y, {Shard(0), kSum});
    expect_values(whole_values(y), linear_of(5, 7, 3, true));
    Tensor both = linear(numbers({5, 7}, 1, Sharding(mesh, {Shard(1), Shard(1)})),
                         numbers({3, 7}, 2, Sharding(mesh, {Shard(1), Shard(1)})),
                         numbers({3}, 3, Sharding(mesh, {})));
    expect_placements(both, {kSum, kSum});
    expect_values(whole_values(both), linear_of(5, 7, 3, true));
  });
}

/// Each rank holds numbers salted with its rank; the value is their mean.
static std::vector<double> mean_of_ranks(const Shape& shape, int ranks) {
  std::vector<double> mean(static_cast<size_t>(shape.product()), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<double> part = small_numbers(shape, rank);
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += part[i] / ranks;
  }
  return mean;
}

TEST(Contract, AnAverageStaysOneThroughLinearOps) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor part = numbers({5, 3}, mesh.rank());
    Tensor x = from_local(part, mesh, {kAvg}, {5, 3});
    Tensor bias = numbers({5, 3}, 9, Sharding(mesh, {}));
    Tensor y;
    EXPECT_EQ(bytes_received(mesh, [&] { y = add(x * 2.0 + 1.0, bias); }), 0);
    expect_placements(y, {kAvg});
    std::vector<double> expected = mean_of_ranks({5, 3}, 4), added = small_numbers({5, 3}, 9);
    for (size_t i = 0; i < expected.size(); ++i) expected[i] = expected[i] * 2 + 1 + added[i];
    expect_values(whole_values(y), expected);
  });
}

TEST(Contract, TheGradientOfAnAverageIsSharedOut) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    Tensor part = numbers({2}, mesh.rank());
    part.set_requires_grad();
    Tensor x = from_local(part, mesh, {kAvg}, {2});
    backward({x * 6.0}, {ones({2}, {.sharding = Sharding(mesh, {})})});
    expect_values(part.grad().to_vector<double>(), {2, 2}, 1e-7);
    Tensor term = numbers({2}, mesh.rank());
    term.set_requires_grad();
    backward({from_local(term, mesh, {kSum}, {2}) * 6.0},
             {ones({2}, {.sharding = Sharding(mesh, {})})});
    expect_values(term.grad().to_vector<double>(), {6, 6});
  });
}

TEST(Contract, AnOpChangesSeveralOperandsWhereTheyLie) {
  on_mesh(kThree, [](const DeviceMesh& mesh) {
    Sharding rows(mesh, {Shard(0)}), everywhere(mesh, {});
    const AdamWStep step{.learning_rate = 0.5, .weight_decay = 0};
    auto updated = [&](const Sharding& gradient, int64_t bytes) {
      Tensor p = numbers({7, 2}, 1, rows), m = zeros({7, 2}, {.sharding = rows});
      Tensor v = zeros({7, 2}, {.sharding = rows});
      Tensor g = gradient.has_partial() ? terms_of(small_numbers({7, 2}, 2), {7, 2}, gradient)
                                        : numbers({7, 2}, 2, gradient);
      Tensor one = ones({}, {.sharding = everywhere});
      EXPECT_EQ(bytes_received(mesh, [&] { adamw_(p, m, v, g, one, step); }), bytes);
      EXPECT_EQ(p.sharding(), rows);
      EXPECT_EQ(v.sharding(), rows);
      // The first step of AdamW is the learning rate times the gradient's sign.
      std::vector<double> expected = small_numbers({7, 2}, 1), signs = small_numbers({7, 2}, 2);
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] -= 0.5 * (signs[i] > 0) - 0.5 * (signs[i] < 0);
      }
      expect_values(whole_values(p), expected, 1e-6);
    };
    updated(rows, 0);
    updated(everywhere, 0);
    // Its rows from two other ranks: 3, 3 and 1 of them, two f32 each.
    updated(Sharding(mesh, {kSum}), 2 * 8 * (mesh.rank() < 2 ? 3 : 1));
  });
}

TEST(Contract, ArgmaxOverAShardedDimIsTheFirstIndexOfTheWhole) {
  for (const auto& axes : {kFour, kThree}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      std::vector<int64_t> bytes;
      for (int64_t columns : {int64_t{9}, int64_t{900}}) {
        Tensor a = numbers({5, columns}, 2, Sharding(mesh, {Shard(1)})), index;
        bytes.push_back(bytes_received(mesh, [&] { index = argmax(a, 1); }));
        expect_placements(index, {kWhole});
        std::vector<double> values = small_numbers({5, columns}, 2), expected;
        for (int64_t row = 0; row < 5; ++row) {
          auto first = values.begin() + row * columns;
          expected.push_back(double(std::max_element(first, first + columns) - first));
        }
        expect_values(index.to_vector<double>(), expected);
      }
      EXPECT_EQ(bytes[0], bytes[1]);
    });
  }
}

TEST(Contract, ArgmaxOverADimShorterThanTheMesh) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor a = from_values(std::vector<double>{-5, -3, -3}, {1, 3},
                           {.sharding = Sharding(mesh, {Shard(1)})});
    EXPECT_EQ(argmax(a, 1).to_vector<int64_t>(), std::vector<int64_t>{1});
  });
}

TEST(Contract, DropoutIsOfTheWholeTensor) {
  for (const auto& axes : {kFour, kTwoByTwo, kThree}) {
    on_mesh(axes, [](const DeviceMesh& mesh) {
      manual_seed(3);
      Tensor whole = dropout(numbers({6, 5}, 1), 0.5);
      std::vector<Placements> layouts = {{}, {Shard(0)}, {Shard(1)}, {kSum}};
      if (mesh.ndim() == 2) {
        layouts = {{Shard(1), Shard(0)}, {kSum, Shard(1)}, {Shard(0), Shard(0)}};
      }
      for (const Placements& placements : layouts) {
        manual_seed(3);
        Sharding sharding(mesh, placements);
        Tensor x = terms_of(small_numbers({6, 5}, 1), {6, 5}, sharding), y;
        EXPECT_EQ(bytes_received(mesh, [&] { y = dropout(x, 0.5); }), 0);
        EXPECT_EQ(y.sharding(), sharding);
        expect_values(whole_values(y), whole.to_vector<double>());
      }
    });
  }
}

TEST(Contract, TiedWeightsTrainByBothUses) {
  const std::vector<double> ids = {6, 0, 6, 3, 5};
  auto loss_of = [&](const Tensor& weight, const Tensor& rows) {
    return sum(linear(embedding(weight, rows), weight) * 0.25);
  };
  Tensor whole = numbers({7, 3}, 1);
  whole.set_requires_grad();
  loss_of(whole, from_values(ids, {5}, {.dtype = i64})).backward();
  const std::vector<double> expected = whole.grad().to_vector<double>();
  EXPECT_NE(expected[19], 0) << "the last row trains";
  for (const auto& axes : {kFour, kThree}) {
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      Tensor weight = numbers({7, 3}, 1, Sharding(mesh, {Shard(0)}));
      weight.set_requires_grad();
      loss_of(weight, targets_on(mesh, ids)).backward();
      expect_placements(weight.grad(), {Shard(0)});
      expect_values(whole_values(weight.grad()), expected);
    });
  }
}

TEST(Contract, AGradientHasItsLeafsDtype) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor weight = numbers({5, 3}, 1, Sharding(mesh, {Shard(0)}));
    weight.set_requires_grad();
    Tensor half = cast(weight, bf16);
    Tensor y = half * 2.0 + half;
    EXPECT_EQ(y.dtype(), bf16);
    backward({y}, {ones_like(y)});
    EXPECT_EQ(weight.grad().dtype(), f32);
    expect_placements(weight.grad(), {Shard(0)});
    expect_values(whole_values(weight.grad()), std::vector<double>(15, 3));
  });
}

TEST(Contract, ACastBetweenFloatsReducesNothing) {
  on_mesh(kFour, [](const DeviceMesh& mesh) {
    Tensor x = terms_of(small_numbers({5, 3}, 1), {5, 3}, Sharding(mesh, {kSum}));
    TrafficScope scope(Traffic::forbid);
    expect_placements(cast(x, bf16), {kSum});
    TrafficScope open(Traffic::allow);
    Tensor whole = cast(x, i64);
    EXPECT_FALSE(whole.sharding().has_partial()) << "a sum of rounded terms is not the rounded sum";
    expect_values(whole_values(whole), small_numbers({5, 3}, 1));
  });
}

TEST(Contract, ARuleCanBeARunTimeString) {
  std::string rule = "... k, k -> ...";
  Op dot({.name = "dot",
          .rule_text = rule,
          .linear = {{0}, {1}},
          .forward =
              [](const Call& c) {
                const MemoryBlock& x = c.in(0);
                for (int64_t i = 0; i < x.shape[0]; ++i) {
                  float sum = 0;
                  for (int64_t k = 0; k < x.shape[1]; ++k) {
                    sum += x.as<float>()[i * x.strides[0] + k * x.strides[1]] *
                           c.in(1).as<float>()[k * c.in(1).strides[0]];
                  }
                  c.out().as<float>()[i] = sum;
                }
              },
          .backward =
              [](const Grad& g) {
                g.give(0, mul(unsqueeze(g.grad(), 1), g.in(1)));
                g.give(1, mul(unsqueeze(g.grad(), 1), g.in(0)));
              }});
  on_mesh(kFour, [&](const DeviceMesh& mesh) {
    Tensor x = numbers({5, 7}, 1, Sharding(mesh, {Shard(1)}));
    Tensor w = numbers({7}, 2, Sharding(mesh, {Shard(0)}));
    w.set_requires_grad();
    Tensor y;
    EXPECT_EQ(bytes_received(mesh, [&] { y = dot({x, w}); }), 0);
    expect_placements(y, {kSum});
    std::vector<double> xs = small_numbers({5, 7}, 1), ws = small_numbers({7}, 2), expected(5, 0);
    std::vector<double> gradient(7, 0);
    for (size_t i = 0; i < 5; ++i) {
      for (size_t k = 0; k < 7; ++k) {
        expected[i] += xs[i * 7 + k] * ws[k];
        gradient[k] += xs[i * 7 + k];
      }
    }
    expect_values(whole_values(y), expected);
    backward({y}, {ones({5}, {.sharding = Sharding(mesh, {})})});
    expect_placements(w.grad(), {Shard(0)});
    expect_values(whole_values(w.grad()), gradient);
  });
  EXPECT_EQ(
      error_of([] { Op({.name = "dot", .rule_text = "k -> m", .forward = [](const Call&) {}}); }),
      "dot: the rule is \"k -> m\", expected operands -> results: a result names an unknown "
      "factor");
}

}  // namespace weft
