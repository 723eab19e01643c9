// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "weft/extend/testing.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/shapes.h"

namespace weft {

// Correct ops on f32 matrices. Each test introduces one error, which the sweep must detect.

static float& element(const MemoryBlock& block, int64_t i, int64_t j) {
  return block.as<float>()[i * block.strides[0] + j * block.strides[1]];
}

static void for_elements(const MemoryBlock& block,
                         const std::function<void(int64_t, int64_t)>& visit) {
  for (int64_t i = 0; i < block.shape[0]; ++i) {
    for (int64_t j = 0; j < block.shape[1]; ++j) visit(i, j);
  }
}

static float row_sum(const MemoryBlock& block, int64_t i) {
  float sum = 0;
  for (int64_t j = 0; j < block.shape[1]; ++j) sum += element(block, i, j);
  return sum;
}

static OpSpec share_of_row() {
  return {.name = "share_of_row",
          .rule = "a [b] -> a [b]",
          .forward =
              [](const Call& c) {
                for_elements(c.out(), [&](int64_t i, int64_t j) {
                  element(c.out(), i, j) = element(c.in(0), i, j) / row_sum(c.in(0), i);
                });
              },
          .samples = {{.shapes = {{5, 7}}, .low = 0.5}}};
}

static OpSpec exponential() {
  return {.name = "exponential", .rule = "a b -> a b", .forward = [](const Call& c) {
            for_elements(c.out(), [&](int64_t i, int64_t j) {
              element(c.out(), i, j) = std::exp(element(c.in(0), i, j));
            });
          }};
}

static OpSpec product() {
  return {.name = "product",
          .rule = "a b, a b -> a b",
          .linear = {{0}, {1}},
          .forward = [](const Call& c) {
            for_elements(c.out(), [&](int64_t i, int64_t j) {
              element(c.out(), i, j) = element(c.in(0), i, j) * element(c.in(1), i, j);
            });
          }};
}

static OpSpec total() {
  return {
      .name = "total", .rule = "a b, a b -> a b", .linear = {{0, 1}}, .forward = [](const Call& c) {
        for_elements(c.out(), [&](int64_t i, int64_t j) {
          element(c.out(), i, j) = element(c.in(0), i, j) + element(c.in(1), i, j);
        });
      }};
}

static OpSpec plus_column() {
  return {.name = "plus_column", .rule = "a b -> a b", .forward = [](const Call& c) {
            const auto first = static_cast<float>(c.out_box().offset[1]);
            for_elements(c.out(), [&](int64_t i, int64_t j) {
              element(c.out(), i, j) = element(c.in(0), i, j) + first + static_cast<float>(j);
            });
          }};
}

static OpSpec plus_one() {
  return {.name = "plus_one", .rule = "a b -> a b", .linear = {{0}}, .forward = [](const Call& c) {
            for_elements(c.out(), [&](int64_t i, int64_t j) {
              element(c.out(), i, j) = element(c.in(0), i, j) + (c.counts_here() ? 1.0f : 0.0f);
            });
          }};
}

static OpSpec row_max() {
  return {.name = "row_max", .rule = "a b:max -> a", .forward = [](const Call& c) {
            for (int64_t i = 0; i < c.in(0).shape[0]; ++i) {
              float most = -INFINITY;
              for (int64_t j = 0; j < c.in(0).shape[1]; ++j) {
                most = std::max(most, element(c.in(0), i, j));
              }
              c.out().as<float>()[i * c.out().strides[0]] = most;
            }
          }};
}

static OpSpec staged_share_of_row() {
  OpSpec spec = share_of_row();
  spec.name = "staged_share_of_row";
  spec.rule = "a b -> a b";
  spec.staged_over = {"b"};
  spec.stages = {{.result = "a", .reduce = ReduceOp::sum, .run = [](const Call& c) {
                    for (int64_t i = 0; i < c.in(0).shape[0]; ++i) {
                      c.stage(0).as<float>()[i * c.stage(0).strides[0]] = row_sum(c.in(0), i);
                    }
                  }}};
  spec.forward = [](const Call& c) {
    for_elements(c.out(), [&](int64_t i, int64_t j) {
      float sum =
          c.staged() ? c.stage(0).as<float>()[i * c.stage(0).strides[0]] : row_sum(c.in(0), i);
      element(c.out(), i, j) = element(c.in(0), i, j) / sum;
    });
  };
  return spec;
}

static OpSpec row_mean() {
  return {.name = "row_mean",
          .rule = "a b -> a",
          .linear = {{0}},
          .forward =
              [](const Call& c) {
                const auto columns = static_cast<float>(c.in_shape(0)[1]);
                for (int64_t i = 0; i < c.in(0).shape[0]; ++i) {
                  c.out().as<float>()[i * c.out().strides[0]] = row_sum(c.in(0), i) / columns;
                }
              },
          .backward =
              [](const Grad& g) {
                const auto columns = static_cast<double>(g.in_shape(0)[1]);
                g.give(0, expand(unsqueeze(div(g.grad(), columns), 1), g.in_shape(0)));
              }};
}

/// Columns from 2 on.
static OpSpec from_column_two() {
  return {.name = "from_column_two",
          .rule_of =
              [](const Attributes&, std::span<const Shape> shapes) {
                return Rule{"a ~b -> a +c", {{"c", shapes[0][1] - 2}}};
              },
          .linear = {{0}},
          .forward =
              [](const Call& c) {
                for_elements(c.out(), [&](int64_t i, int64_t j) {
                  element(c.out(), i, j) = element(c.in(0), i, j);
                });
              },
          .needs =
              [](const Attributes&, int, std::span<const Shape>, const Box& result) {
                Box box = result;
                box.offset[1] += 2;
                return box;
              },
          .samples = {{{{5, 7}}}}};
}

static OpSpec swap() {
  return {.name = "swap_",
          .rule = "a b, a b ->",
          .forward =
              [](const Call& c) {
                for_elements(c.in(0), [&](int64_t i, int64_t j) {
                  std::swap(element(c.in(0), i, j), element(c.in(1), i, j));
                });
              },
          .writes = {0, 1},
          .differentiable = false};
}

static SweepReport swept(OpSpec spec) {
  const Op op(std::move(spec));
  SweepReport report = sweep(op, {.axes = {{"a", 4}}});
  report += sweep(op, {.axes = {{"a", 2}, {"b", 2}}});
  return report;
}

/// Checks that the sweep reports wrong results for the op.
static void expect_seen(OpSpec spec) {
  const std::string name = spec.name;
  SweepReport report = swept(std::move(spec));
  EXPECT_GT(report.wrong, 0) << name;
}

TEST(SweepWrong, RightOnesPass) {
  for (auto make : {share_of_row, exponential, product, total, plus_column, plus_one, row_max,
                    staged_share_of_row, row_mean, from_column_two, swap}) {
    SweepReport report = swept(make());
    EXPECT_EQ(report.wrong, 0) << make().name;
    EXPECT_GT(report.ran, 0) << make().name;
    for (const std::string& mismatch : report.mismatches) ADD_FAILURE() << mismatch;
  }
}

struct Mistake {
  const char* name;
  OpSpec (*right)();
  void (*make)(OpSpec& spec);
};

TEST(SweepWrong, SeesAMistakeInADescription) {
  const Mistake mistakes[] = {
      {"a factor that must be whole", share_of_row, [](OpSpec& spec) { spec.rule = "a b -> a b"; }},
      {"a function that is not linear", exponential, [](OpSpec& spec) { spec.linear = {{0}}; }},
      {"a product called jointly linear", product,
       [](OpSpec& spec) {
         spec.linear = {{0, 1}};
       }},
      {"a sum called linear in each", total,
       [](OpSpec& spec) {
         spec.linear = {{0}, {1}};
       }},
      {"a max that is summed", row_max, [](OpSpec& spec) { spec.rule = "a b -> a"; }},
      {"a stage reduced wrongly", staged_share_of_row,
       [](OpSpec& spec) { spec.stages[0].reduce = ReduceOp::max; }},
      {"an operand that is changed in secret", swap, [](OpSpec& spec) { spec.writes = {0}; }},
  };
  for (const Mistake& mistake : mistakes) {
    SCOPED_TRACE(mistake.name);
    OpSpec spec = mistake.right();
    mistake.make(spec);
    expect_seen(spec);
  }
}

TEST(SweepWrong, SeesALocalIndex) {
  OpSpec spec = plus_column();
  spec.forward = [](const Call& c) {
    for_elements(c.out(), [&](int64_t i, int64_t j) {
      element(c.out(), i, j) = element(c.in(0), i, j) + static_cast<float>(j);
    });
  };
  expect_seen(spec);
}

TEST(SweepWrong, SeesANumberAddedOnEachRank) {
  OpSpec spec = plus_one();
  spec.forward = [](const Call& c) {
    for_elements(c.out(), [&](int64_t i, int64_t j) {
      element(c.out(), i, j) = element(c.in(0), i, j) + 1;
    });
  };
  expect_seen(spec);
}

TEST(SweepWrong, SeesAMeanOverTheLocalSize) {
  OpSpec spec = row_mean();
  spec.forward = [](const Call& c) {
    for (int64_t i = 0; i < c.in(0).shape[0]; ++i) {
      const auto columns = static_cast<float>(std::max<int64_t>(1, c.in(0).shape[1]));
      c.out().as<float>()[i * c.out().strides[0]] = row_sum(c.in(0), i) / columns;
    }
  };
  expect_seen(spec);
}

TEST(SweepWrong, SeesAGradientOverTheLocalSize) {
  OpSpec spec = row_mean();
  spec.backward = [](const Grad& g) {
    const auto columns = static_cast<double>(std::max<int64_t>(1, g.in(0).block().shape[1]));
    g.give(0, expand(unsqueeze(div(g.grad(), columns), 1), g.in_shape(0)));
  };
  expect_seen(spec);
}

TEST(SweepWrong, SeesAFetchOfTheWrongSlice) {
  OpSpec spec = from_column_two();
  spec.needs = [](const Attributes&, int, std::span<const Shape>, const Box& result) {
    Box box = result;
    box.offset[1] = 2;
    return box;
  };
  expect_seen(spec);
}

}  // namespace weft
