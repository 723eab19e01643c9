// SPDX-License-Identifier: Apache-2.0
#include "tests/support/sweep.h"

#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

namespace weft {

/// Every op in every layout: all combinations on four ranks in a row, up to 20,000 per op on a
/// two-by-two mesh, samples on three ranks and on three axes.
class Sweep : public testing::TestWithParam<std::string> {};

static const Op& op_named(const std::string& name) {
  for (const Op& op : all_ops()) {
    if (op.spec().name == name) return op;
  }
  throw std::invalid_argument("no op is called " + name);
}

static std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const Op& op : all_ops()) names.push_back(op.spec().name);
  return names;
}

static std::vector<SweepOptions> sweep_meshes(const Op& op) {
  const auto samples = static_cast<int64_t>(std::max<size_t>(1, op.spec().samples.size()));
  const int percent = sweep_percent();
  return {{{{"a", 4}}, 20'000, percent, 1},
          {{{"a", 2}, {"b", 2}}, 20'000 / samples, percent, 2},
          {{{"a", 3}}, 200, percent, 3},
          {{{"a", 2}, {"b", 1}, {"c", 2}}, 200, percent, 4}};
}

TEST_P(Sweep, EqualsOneDevice) {
  const Op& op = op_named(GetParam());
  auto start = std::chrono::steady_clock::now();
  SweepReport total;
  for (const SweepOptions& options : sweep_meshes(op)) total += sweep(op, options);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "sweep: " << GetParam() << ": " << total.ran << " of " << total.all
            << " combinations, " << total.gradients << " with gradients, " << total.free
            << " free by rule, " << total.refused << " refused, in " << seconds.count() << " s\n";
  EXPECT_GT(total.ran, 0);
  EXPECT_EQ(total.wrong, 0);
  for (const std::string& mismatch : total.mismatches) ADD_FAILURE() << mismatch;
}

INSTANTIATE_TEST_SUITE_P(, Sweep, testing::ValuesIn(op_names()),
                         [](const auto& test) { return test.param; });

}  // namespace weft
