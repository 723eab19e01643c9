// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/split_products.h"

#include <gtest/gtest.h>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "tests/tp/little_llama.h"
#include "weft/autograd.h"
#include "weft/extend/op_log.h"
#include "weft/fsdp.h"
#include "weft/layers.h"

namespace weft {
namespace {

/// A result and gradients, whole.
using Values = std::vector<std::vector<double>>;

/// Sharded parameters or inputs of small integers, whose products and sums are exact.
Tensor leaf(const Shape& shape, int64_t salt, const DeviceMesh& mesh,
            const Placements& placements) {
  Tensor tensor = numbers(shape, salt, Sharding(mesh, placements, shape.ndim()));
  tensor.set_requires_grad();
  return tensor;
}

/// The values of tensors, and of the gradients that `outputs` give the leaves.
Values values_of(const Tensors& outputs, const Tensors& leaves) {
  Tensors gradients;
  for (size_t i = 0; i < outputs.size(); ++i) {
    gradients.push_back(
        numbers(outputs[i].shape(), 11 + static_cast<int64_t>(i), outputs[i].sharding()));
  }
  backward(outputs, gradients);
  Values values;
  for (const Tensor& output : outputs) values.push_back(whole_values(output));
  for (const Tensor& one : leaves) values.push_back(whole_values(one.grad()));
  return values;
}

struct Case {
  std::vector<MeshAxis> axes;
  Shape input;
  /// The placements of the input, next to tp.
  Placements rows;
  int dim;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {{{"tp", 1}}, {2, 5, 6}, {{"tp", Shard(1)}}, 1},
      {{{"tp", 2}}, {4, 6, 6}, {{"tp", Shard(1)}}, 1},
      {{{"tp", 3}}, {1, 7, 6}, {{"tp", Shard(1)}}, 1},
      {{{"tp", 3}}, {2, 2, 6}, {{"tp", Shard(1)}}, 1},
      {{{"tp", 3}}, {7, 6}, {{"tp", Shard(0)}}, 0},
      {{{"tp", 4}}, {5, 2, 3, 6}, {{"tp", Shard(1)}}, 1},
      {{{"tp", 2}}, {3, 2, 5, 6}, {{"tp", Shard(2)}}, 2},
      {{{"dp", 2}, {"tp", 2}}, {3, 5, 6}, {{"dp", Shard(0)}, {"tp", Shard(1)}}, 1},
      {{{"tp", 3}, {"dp", 2}}, {4, 9, 6}, {{"dp", Shard(0)}, {"tp", Shard(1)}}, 1},
      {{{"dp", 2}, {"tp", 2}}, {1, 4, 6}, {{"dp", Shard(0)}, {"tp", Shard(1)}}, 1},
      {{{"dp", 2}, {"tp", 2}}, {2, 8, 6}, {{"dp", Shard(1)}, {"tp", Shard(1)}}, 1},
      {{{"tp", 2}}, {0, 4, 6}, {{"tp", Shard(1)}}, 1},
  };
  return all;
}

/// Expects the same values of the product in any number of parts.
void expect_equal_in_parts(Values (*product)(const Case& one, const DeviceMesh& mesh, int parts)) {
  for (const Case& one : cases()) {
    Values whole;
    for (const int parts : {1, 2, 3, 5}) {
      on_mesh(one.axes, [&](const DeviceMesh& mesh) {
        const Values values = product(one, mesh, parts);
        if (parts == 1 && mesh.rank() == 0) whole = values;
        if (parts > 1) {
          EXPECT_EQ(values, whole) << mesh << one.input << parts;
        }
      });
    }
  }
}

/// Two layers with one input, the second one without a bias.
Values gathered(const Case& one, const DeviceMesh& mesh, int parts) {
  const Tensor x = leaf(one.input, 1, mesh, one.rows);
  const Tensor w = leaf({5, 6}, 2, mesh, {{"tp", Shard(0)}}),
               b = leaf({5}, 3, mesh, {{"tp", Shard(0)}}),
               v = leaf({7, 6}, 4, mesh, {{"tp", Shard(0)}});
  GatheredInput input(x, {mesh["tp"], parts});
  EXPECT_TRUE(input.is_of(x));
  EXPECT_FALSE(input.is_of(x.detach()));
  return values_of({input.linear(w, b), input.linear(v, {})}, {x, w, b, v});
}

TEST(SplitProducts, OfAGatheredInputEqualWholeOnes) { expect_equal_in_parts(gathered); }

Values scattered(const Case& one, const DeviceMesh& mesh, int parts) {
  Placements rows({{"tp", Shard(-1)}});
  if (one.axes.size() > 1) rows = Placements({{"dp", Shard(0)}, {"tp", Shard(-1)}});
  const Tensor x = leaf(one.input, 1, mesh, rows);
  const Tensor w = leaf({5, 6}, 2, mesh, {{"tp", Shard(1)}});
  const Tensor b = leaf({5}, 3, mesh, Placements());
  Values values =
      values_of({linear_reduce_scatter(x, w, b, one.dim, {mesh["tp"], parts})}, {x, w, b});
  const Tensor y = linear_reduce_scatter(x.detach(), w.detach(), {}, one.dim, {mesh["tp"], parts});
  if (mesh["tp"].size() > 1) {
    EXPECT_EQ(y.sharding()[mesh["tp"].root_axis(0)], Placement(Shard(one.dim)));
  }
  values.push_back(whole_values(y));
  return values;
}

TEST(SplitProducts, ThatAreScatteredEqualWholeOnes) { expect_equal_in_parts(scattered); }

/// Parameters, inputs and layers that need no gradient.
TEST(SplitProducts, PassGradientsOnlyWhereTheyAreWanted) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    const SplitProducts split{mesh["tp"], 2};
    for (const bool input : {false, true}) {
      Tensor x = leaf({2, 4, 6}, 1, mesh, {{"tp", Shard(1)}});
      Tensor w = leaf({4, 6}, 2, mesh, {{"tp", Shard(0)}}), v = leaf({6, 4}, 3, mesh, {Shard(1)});
      const Tensor given = input ? x : x.detach();
      const Tensor up = input ? w.detach() : w, down = input ? v.detach() : v;
      GatheredInput gathered(given, split);
      const Tensor unused = gathered.linear(up, {});
      const Tensor y = linear_reduce_scatter(gathered.linear(up, {}), down, {}, 1, split);
      backward({y}, {numbers(y.shape(), 5, y.sharding())});
      EXPECT_EQ(static_cast<bool>(x.grad()), input);
      EXPECT_EQ(static_cast<bool>(w.grad()), !input);
      EXPECT_EQ(static_cast<bool>(v.grad()), !input);
    }
    const NoGrad no_grad;
    const Tensor x = leaf({2, 4, 6}, 1, mesh, {{"tp", Shard(1)}});
    const Tensor w = leaf({4, 6}, 2, mesh, {Shard(0)});
    EXPECT_FALSE(GatheredInput(x, split).linear(w, {}).requires_grad());
  });
}

/// Weights of another layout or dtype, and inputs that are Partial or whole, as `linear` takes
/// them.
TEST(SplitProducts, ComputeWholeWhereTheyCannotBeSplit) {
  on_mesh({{"dp", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    const SplitProducts split{mesh["tp"], 2};
    const std::vector<double> w = small_numbers({4, 6}, 2), x = small_numbers({2, 4, 6}, 1);
    const auto expected = whole_values(linear(from_values(x, {2, 4, 6}), from_values(w, {4, 6})));
    for (const Placements& weight : {Placements{}, {{"tp", Shard(1)}}, {{"dp", Shard(0)}}}) {
      for (const Placements& input :
           {Placements{}, {{"tp", Shard(1)}}, {{"tp", Shard(2)}}, {{"dp", Shard(1)}}}) {
        const Tensor rows = leaf({2, 4, 6}, 1, mesh, input),
                     columns = leaf({4, 6}, 2, mesh, weight);
        EXPECT_EQ(whole_values(GatheredInput(rows, split).linear(columns, {})), expected);
        const Tensor y = linear_reduce_scatter(rows, columns, {}, 1, split);
        EXPECT_EQ(whole_values(y), expected);
      }
    }
    const Tensor sum = terms_of(x, {2, 4, 6}, Sharding(mesh, {{"tp", Partial()}}));
    const Tensor columns = leaf({4, 6}, 2, mesh, {{"tp", Shard(0)}});
    EXPECT_EQ(whole_values(GatheredInput(sum, split).linear(columns, {})), expected);
    const Tensor rows = leaf({2, 4, 6}, 1, mesh, {{"tp", Shard(1)}});
    const Tensor wide = GatheredInput(rows, split).linear(columns.to(f64), {});
    EXPECT_EQ(wide.dtype(), f64);
    EXPECT_EQ(whole_values(wide), expected);
  });
}

/// Losses and gradients of a Llama, with FSDP over the other axis and with recomputation.
TEST(SplitProducts, LearnAsWholeOnesUnderFsdpAndRecomputation) {
  const auto values_with = [](const DeviceMesh& mesh, int parts, int recompute) {
    TransformerModel model(little_llama(4, 2));
    parallelize(model, mesh["tp"],
                transformer_styles(model.config(), {.sequence_parallel = true, .parts = parts}));
    for (Module* block : model.blocks()) {
      if (recompute > 0) {
        block->set_recompute(true, recompute > 1 ? costly_ops() : std::vector<std::string>());
      }
      fully_shard(*block, mesh["dp"]);
    }
    fully_shard(model, mesh["dp"]);
    model.materialize();
    const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {{"dp", Shard(0)}})};
    Values values(1);
    for (int step = 0; step < 2; ++step) {
      const Tensor loss = model.loss(some_ids({4, 7}, step, rows), some_ids({4, 7}, 2, rows));
      loss.backward();
      values[0].push_back(loss.full_tensor().item());
    }
    for (const ParameterPtr& parameter : model.parameters()) {
      values.push_back(whole_values(parameter->grad()));
    }
    return values;
  };
  for (const int recompute : {0, 1, 2}) {
    Values whole;
    for (const int parts : {1, 2, 3}) {
      on_mesh({{"dp", 2}, {"tp", 2}}, [&](const DeviceMesh& mesh) {
        const Values split = values_with(mesh, parts, recompute);
        if (parts == 1 && mesh.rank() == 0) whole = split;
        if (parts == 1) return;
        ASSERT_EQ(split.size(), whole.size());
        for (size_t i = 0; i < whole.size(); ++i) expect_values(split[i], whole[i], 1e-6);
      });
    }
  }
}

/// One gather of the input for two layers, and one reduction of its gradient.
TEST(SplitProducts, ShareAGatherAndMoveAsManyBytes) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    const auto bytes_with = [&](int parts) {
      TransformerModel model(little_llama(4, 2));
      parallelize(model, mesh["tp"],
                  transformer_styles(model.config(), {.sequence_parallel = true, .parts = parts}));
      model.materialize();
      const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {})};
      return bytes_received(mesh, [&] {
        model.loss(some_ids({4, 7}, 1, rows), some_ids({4, 7}, 2, rows)).backward();
      });
    };
    EXPECT_EQ(bytes_with(4), bytes_with(1));
  });
}

TEST(SplitProducts, LogWhatTheyOverlap) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    const Tensor x = leaf({2, 4, 6}, 1, mesh, {{"tp", Shard(1)}});
    const Tensor w = leaf({4, 6}, 2, mesh, {Shard(0)});
    OpLog log;
    const Tensor y = GatheredInput(x, {mesh["tp"], 2}).linear(w, {});
    ASSERT_EQ(log.splits.size(), 1u);
    const SplitMovement expected{.axes = "tp",
                                 .parts = 2,
                                 .bytes = 2 * 2 * 6 * 4,
                                 .operations = 2.0 * 8 * 2 * 6,
                                 .product_bytes = (2 * 6 + 8 * (2 + 6)) * 4};
    EXPECT_EQ(log.splits[0], expected);
    backward({y}, {numbers(y.shape(), 5, y.sharding())});
    ASSERT_EQ(log.splits.size(), 2u);
    EXPECT_EQ(log.splits[1], expected);
  });
}

TEST(SplitProducts, LogTheBytesOfUnevenParts) {
  on_mesh({{"tp", 2}}, [](const DeviceMesh& mesh) {
    const Tensor x = leaf({2, 5, 6}, 1, mesh, {{"tp", Shard(1)}});
    const Tensor w = leaf({4, 6}, 2, mesh, {Shard(0)});
    OpLog log;
    const Tensor y = GatheredInput(x, {mesh["tp"], 2}).linear(w, {});
    backward({y}, {numbers(y.shape(), 5, y.sharding())});
    ASSERT_EQ(log.splits.size(), 2u);
    const int64_t own = mesh.rank() == 0 ? 3 : 2, row = 2 * 6 * 4;
    EXPECT_EQ(log.splits[0].bytes, (5 - own) * row);
    EXPECT_EQ(log.splits[1].bytes, own * row);
  });
}

void expect_refused(const std::function<void()>& call, const std::string& text) {
  EXPECT_EQ(error_of(call), text);
}

TEST(SplitProducts, RefuseWhatHasNoParts) {
  on_mesh({{"dp", 2}, {"tp", 2}}, [](const DeviceMesh& mesh) {
    const Tensor x = leaf({2, 4, 6}, 1, mesh, {{"tp", Shard(1)}});
    expect_refused(
        [&] {
          GatheredInput(x, {mesh["tp"], 17});
        },
        "gathered_input: number of parts is 17, expected one from 1 to 16");
    expect_refused(
        [&] {
          GatheredInput(x, {mesh, 2});
        },
        "gathered_input: the mesh is not a view of one axis, expected one such as "
        "mesh[\"tp\"]");
    const auto refused = [&](Module& module, const Style& style, const std::string& text) {
      expect_refused([&] { parallelize(module, mesh["tp"], {{"", style}}); }, text);
    };
    Linear linear(4, 6);
    Embedding embedding(4, 6);
    refused(linear, Colwise{.parts = 0},
            "parallelize: number of parts of \"\" is 0, expected one from 1 to 16");
    refused(
        linear, Rowwise{.parts = 2},
        "parallelize: output of \"\" is R, expected Shard of a dim counted from the first for a "
        "product in 2 parts");
    refused(embedding, Colwise{.parts = 2},
            "parallelize: \"\" is an Embedding, expected a Linear for products in 2 parts");
    expect_refused([&] { transformer_styles(little_llama(4, 2), {.parts = 2}); },
                   "transformer_styles: number of parts is 2, expected 1 without "
                   "sequence_parallel");
  });
}

/// A product in 8 bits gathers its input whole.
TEST(SplitProducts, LeaveFloat8Alone) {
  std::vector<double> whole;
  for (const int parts : {1, 3}) {
    on_mesh({{"tp", 2}}, [&](const DeviceMesh& mesh) {
      TransformerModel model(little_llama(4, 2, 1));
      parallelize(model, mesh["tp"],
                  transformer_styles(model.config(), {.sequence_parallel = true, .parts = parts}));
      convert_to_float8(model);
      model.materialize();
      const TensorOptions rows{.dtype = i64, .sharding = Sharding(mesh, {})};
      const std::vector<double> values = whole_values(model(some_ids({4, 7}, 1, rows)));
      if (parts == 1 && mesh.rank() == 0) whole = values;
      if (parts > 1) expect_values(values, whole, 1e-6);
    });
  }
}

}  // namespace
}  // namespace weft
