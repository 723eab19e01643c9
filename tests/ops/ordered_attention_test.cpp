// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ops/sequences.h"

namespace weft {
namespace {

struct Case {
  int64_t heads, kv_heads, tokens;
  AttentionOptions options = {};
  bool has_sinks = false;
  /// Lengths of documents; empty: one.
  std::vector<int64_t> documents = {};
};

constexpr int64_t kRows = 2, kWidth = 4;

Tensor random_numbers(const Shape& shape, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<size_t>(shape.product()));
  for (double& value : values) value = normal(engine);
  return from_values(values, shape, {.dtype = f64});
}

Tensor segments_of(const Case& c) {
  if (c.documents.empty()) return {};
  std::vector<int64_t> ids;
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<int64_t> lengths = c.documents;
    std::ranges::rotate(lengths, lengths.begin() + row);
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (int64_t j = 0; j < lengths[i]; ++j) ids.push_back(static_cast<int64_t>(i) + 5);
    }
  }
  return from_values(ids, {kRows, c.tokens});
}

/// Rows of x [batch, tokens, ...] in the order of places [batch, tokens].
Tensor ordered(const Tensor& x, const std::vector<int64_t>& places) {
  const auto given = x.to_vector<double>();
  const int64_t width = x.numel() / (x.size(0) * x.size(1));
  std::vector<double> made(given.size());
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / x.size(1);
    std::copy_n(given.begin() + (row * x.size(1) + places[i]) * width, width,
                made.begin() + static_cast<int64_t>(i) * width);
  }
  return from_values(made, x.shape(), {.dtype = f64});
}

void expect_near(const Tensor& made, const Tensor& expected, const std::string& what) {
  const auto x = made.full_tensor().to_vector<double>(), y = expected.to_vector<double>();
  ASSERT_EQ(x.size(), y.size()) << what;
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-10) << what << ' ' << i;
}

/// The operands of a case, the gradient of the output, and what one rank makes of them.
struct Reference {
  Tensors x;
  Tensor dout, out;

  explicit Reference(const Case& c) {
    for (unsigned i = 0; i < 3; ++i) {
      const int64_t heads = i == 0 ? c.heads : c.kv_heads;
      x.push_back(random_numbers({kRows, c.tokens, heads, kWidth}, i + 1));
    }
    if (c.has_sinks) x.push_back(random_numbers({c.heads}, 4));
    dout = random_numbers(x[0].shape(), 5);
    for (Tensor& each : x) each.set_requires_grad();
    AttentionOptions options = c.options;
    if (c.has_sinks) options.sinks = x[3];
    options.segments = segments_of(c);
    out = attention(x[0], x[1], x[2], options);
    sum(mul(out, dout)).backward();
  }
};

void expect_as_one_rank(const Case& c, const std::vector<MeshAxis>& axes, SequenceWay way) {
  const Reference expected(c);
  on_mesh(axes, [&](const DeviceMesh& mesh) {
    const Tensor segments = segments_of(c);
    const Tensor ids = arange(kRows * c.tokens).reshape({kRows, c.tokens});
    const auto over = [&](const Tensor& t) { return t ? distribute(t, mesh, {}) : t; };
    const SharedSequence shared = share_sequence(over(ids), {}, over(segments), mesh["cp"]);
    const auto places = shared.order.places.full_tensor().to_vector<int64_t>();
    Tensors x;
    for (size_t i = 0; i < 3; ++i) {
      Tensor cut = distribute(ordered(expected.x[i].detach(), places), mesh, {{"cp", Shard(1)}});
      x.push_back(cut.set_requires_grad());
    }
    AttentionOptions options = c.options;
    if (c.has_sinks) {
      x.push_back(over(expected.x[3].detach()).set_requires_grad());
      options.sinks = x[3];
    }
    const Tensor out = ordered_attention(x[0], x[1], x[2], shared.order, options, way);
    EXPECT_EQ(out.sharding(), x[0].sharding());
    expect_near(out, ordered(expected.out.detach(), places), "out");
    sum(mul(out, over(ordered(expected.dout, places)))).backward();
    for (size_t i = 0; i < x.size(); ++i) {
      const Tensor gradient = expected.x[i].grad();
      expect_near(x[i].grad(), i < 3 ? ordered(gradient, places) : gradient,
                  concat("gradient ", i));
    }
  });
}

const Case kCases[] = {
    {6, 2, 29},
    {4, 4, 24, {.softcap = 2}},
    {4, 1, 31, {.window = 5}, true},
    {6, 2, 29, {.scale = 0.7}, true, {3, 11, 1, 14}},
    {2, 2, 37, {.window = 4}, false, {20, 17}},
    {2, 2, 3},
};

TEST(OrderedAttention, EqualsOneRank) {
  for (const Case& c : kCases) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const SequenceWay way :
           {SequenceWay::automatic, SequenceWay::gather, SequenceWay::ring, SequenceWay::heads}) {
        if (way == SequenceWay::heads && c.kv_heads % ranks != 0) continue;
        SCOPED_TRACE(testing::Message()
                     << name_of(way) << " on " << ranks << " ranks, " << c.tokens << " tokens");
        expect_as_one_rank(c, {{"cp", ranks}}, way);
      }
    }
    expect_as_one_rank(c, {{"dp", 2}, {"cp", 2}}, SequenceWay::ring);
  }
}

/// The work of the busiest rank over the mean: keys that its tokens see.
double imbalance(const std::vector<int64_t>& places, const std::vector<int64_t>& segments,
                 int ranks) {
  std::vector<int64_t> before(segments.size());
  for (size_t i = 1; i < before.size(); ++i) {
    before[i] = segments[i] == segments[i - 1] ? before[i - 1] + 1 : 0;
  }
  const size_t part = (places.size() + static_cast<size_t>(ranks) - 1) / static_cast<size_t>(ranks);
  std::vector<double> work(static_cast<size_t>(ranks));
  double all = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto keys = static_cast<double>(before[static_cast<size_t>(places[i])] + 1);
    work[i / part] += keys, all += keys;
  }
  return *std::ranges::max_element(work) / (all / ranks);
}

TEST(OrderedAttention, HasEqualWorkOnEachRank) {
  std::mt19937 engine(7);
  for (const int ranks : {2, 3, 4, 8}) {
    on_mesh({{"cp", ranks}}, [&, seed = engine()](const DeviceMesh& mesh) {
      if (mesh.rank() > 0) return;  // communicates nothing
      std::mt19937 own(static_cast<unsigned>(seed));
      for (const int64_t tokens : {4096, 4097, 6001}) {
        const Tensor ids = distribute(zeros({1, tokens}, {.dtype = i64}), mesh, {});
        const auto places = [&](const Tensor& segments) {
          const SharedSequence shared = share_sequence(ids, {}, segments, mesh["cp"]);
          return shared.order.places.local().to_vector<int64_t>();
        };
        std::vector<int64_t> segments(static_cast<size_t>(tokens));
        EXPECT_LE(imbalance(places({}), segments, ranks), 1.05) << tokens;
        for (int packing = 0; packing < 9; ++packing) {
          // Few long documents, or many short ones.
          std::exponential_distribution<double> length(std::pow(2.0, packing) / 4096);
          int64_t left = 0, id = 0;
          for (int64_t& segment : segments) {
            if (left-- <= 0) left = static_cast<int64_t>(length(own)), ++id;
            segment = id;
          }
          const Tensor packed = distribute(from_values(segments, {1, tokens}), mesh, {});
          EXPECT_LE(imbalance(places(packed), segments, ranks), 1.1) << tokens << ' ' << packing;
        }
      }
    });
  }
}

TEST(OrderedAttention, IsOfPartsOfBothEnds) {
  on_mesh({{"cp", 2}}, [](const DeviceMesh& mesh) {
    const Tensor ids = distribute(arange(10).reshape({1, 10}), mesh, {});
    const SharedSequence shared = share_sequence(ids, add(ids, 1), {}, mesh["cp"]);
    const std::vector<int64_t> order = {0, 1, 2, 8, 9, 3, 4, 5, 6, 7};
    EXPECT_EQ(shared.order.places.full_tensor().to_vector<int64_t>(), order);
    EXPECT_EQ(shared.ids.full_tensor().to_vector<int64_t>(), order);
    EXPECT_EQ(shared.positions.full_tensor().to_vector<int64_t>(), order);
    EXPECT_EQ(shared.targets.full_tensor().to_vector<int64_t>()[3], 9);
    EXPECT_EQ(shared.ids.sharding()[0], Placement(Shard(1)));
    EXPECT_FALSE(shared.order.segments);
  });
}

TEST(OrderedAttention, HoldsOnlyPartsOfOtherKeysOnTheRing) {
  on_mesh({{"cp", 4}}, [](const DeviceMesh& mesh) {
    const auto over = [&](const Shape& shape) {
      return distribute(ones(shape), mesh, {Shard(1)}).set_requires_grad();
    };
    const Tensor q = over({1, 512, 8, 16}), k = over({1, 512, 2, 16}), v = over({1, 512, 2, 16});
    const Tensor ids = distribute(zeros({1, 512}, {.dtype = i64}), mesh, {});
    const TokenOrder order = share_sequence(ids, {}, {}, mesh["cp"]).order;
    const auto own = static_cast<double>(2 * k.local().numel()) * 4;
    const auto gathered = [&](SequenceWay way) {
      mesh.communicator().barrier();
      reset_peak_memory();
      sum(ordered_attention(q, k, v, order, {}, way)).backward();
      constexpr auto kPurpose = static_cast<size_t>(Purpose::gathered);
      return static_cast<double>(memory_statistics().by_purpose[kPurpose].peak);
    };
    EXPECT_LE(gathered(SequenceWay::ring), 0.3 * own);
    EXPECT_GE(gathered(SequenceWay::gather), 4 * own);
  });
}

TEST(OrderedAttention, ExplainsItsWays) {
  on_mesh({{"cp", 2}}, [](const DeviceMesh& mesh) {
    const Tensor q = distribute(zeros({1, 8, 4, 2}), mesh, {Shard(1)}),
                 k = distribute(zeros({1, 8, 2, 2}), mesh, {Shard(1)});
    const std::string text = explain_attention(q, k, k);
    EXPECT_NE(text.find("attention, gather: "), text.npos) << text;
    EXPECT_NE(text.find("attention, heads: "), text.npos) << text;
    EXPECT_NE(text.find("attention, ring: "), text.npos) << text;
    EXPECT_NE(text.find(", chosen"), text.npos) << text;
  });
  EXPECT_EQ(explain_attention(zeros({1, 8, 4, 2}), zeros({1, 8, 2, 2}), zeros({1, 8, 2, 2})),
            "attention: on one device\n");
}

TEST(OrderedAttention, NamesWrongCalls) {
  const Tensor q = zeros({1, 8, 4, 2}), k = zeros({1, 8, 2, 2});
  const TokenOrder order{arange(8).reshape({1, 8})};
  const auto error = [&](const TokenOrder& given, const AttentionOptions& options) {
    return error_of([&] { ordered_attention(q, k, k, given, options); });
  };
  EXPECT_EQ(error({}, {}), "ordered_attention: no places are given, expected a tensor");
  EXPECT_EQ(error({zeros({1, 8})}, {}),
            "ordered_attention: places are f32 [1, 8], expected integers [1, 8], one for each "
            "token of q [1, 8, 4, 2]");
  const std::string rest =
      " is given, expected scale, window, softcap and sinks only; call attention of tokens in "
      "their order";
  EXPECT_EQ(error(order, {.dropout = 0.5}), "ordered_attention: dropout" + rest);
  EXPECT_EQ(error(order, {.mask = zeros({1, 1, 8, 8})}), "ordered_attention: a mask" + rest);
  EXPECT_EQ(error(order, {.alibi = zeros({4})}), "ordered_attention: alibi" + rest);
  EXPECT_EQ(error(order, {.segments = order.places}), "ordered_attention: segments" + rest);
  EXPECT_EQ(error(order, {.causal = false}), "ordered_attention: causal is false, expected true");
  EXPECT_EQ(error(order, {.window = -1}), "ordered_attention: window is -1, expected 0 or more");
  EXPECT_EQ(error(order, {.softcap = -1}), "ordered_attention: softcap is -1, expected 0 or more");
  EXPECT_EQ(error(order, {.sinks = zeros({2})}),
            "ordered_attention: shape of sinks is [2], expected [4]");
  EXPECT_EQ(error_of([&] {
              ordered_attention(q, zeros({1, 8, 3, 2}), k, order);
            }),
            "ordered_attention: q, k and v are [1, 8, 4, 2], [1, 8, 3, 2] and [1, 8, 2, 2], "
            "expected [batch, s, heads, d] and twice [batch, s, kv heads, d]");
  EXPECT_EQ(error_of([&] {
              ordered_attention(q, zeros({1, 9, 2, 2}), zeros({1, 9, 2, 2}), order);
            }),
            "ordered_attention: number of keys is 9, expected 8, that of the queries");
  EXPECT_EQ(error_of([] { sequence_way_named("--sequence-way", "round"); }),
            "--sequence-way: way is \"round\", expected automatic, gather, heads or ring");
  on_mesh({{"cp", 3}, {"seq", 2}}, [&](const DeviceMesh& mesh) {
    const auto over = [&](const Tensor& x, const Placements& placements) {
      return distribute(x, mesh, placements);
    };
    const Placements cut{{"cp", Shard(1)}}, twice{Shard(1), Shard(1)};
    EXPECT_EQ(error_of([&] {
                ordered_attention(over(q, cut), over(k, cut), over(k, cut), order, {},
                                  SequenceWay::heads);
              }),
              "ordered_attention: number of key heads is 2, expected a multiple of the ranks that "
              "share the sequence and heads, because the way is heads");
    EXPECT_EQ(error_of([&] {
                ordered_attention(over(q, twice), over(k, twice), over(k, twice), order, {},
                                  SequenceWay::ring);
              }),
              "ordered_attention: number of axes that cut the sequence is 2, expected 1 for the "
              "way ring");
    EXPECT_EQ(error_of([&] { ordered_attention(over(q, cut), k, k, order); }),
              "ordered_attention: only some of q, k and v have a mesh, expected all or none");
    const Tensor ids = over(zeros({1, 8}, {.dtype = i64}), {});
    const auto shared = [&](const Tensor& rows, const Tensor& targets, const DeviceMesh& axis) {
      return error_of([&] { share_sequence(rows, targets, {}, axis); });
    };
    EXPECT_EQ(shared(ids, {}, mesh),
              "share_sequence: the mesh is not a view of one axis, expected one such as "
              "mesh[\"cp\"]");
    EXPECT_EQ(shared(zeros({1, 8}), {}, mesh["cp"]),
              "share_sequence: ids are f32 [1, 8], expected integers [1, 8]");
    EXPECT_EQ(shared(ids, zeros({1, 8}, {.dtype = i64}), mesh["cp"]),
              "share_sequence: targets are laid out otherwise than ids, expected both alike");
    const Tensor once = over(zeros({1, 8}, {.dtype = i64}), cut);
    EXPECT_EQ(shared(once, {}, mesh["cp"]),
              concat("share_sequence: ids are laid out as ", once.sharding(),
                     ", expected rows that are whole along the axis"));
  });
}

}  // namespace
}  // namespace weft
