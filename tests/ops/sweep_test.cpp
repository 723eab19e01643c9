// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/testing.h"

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

TEST_P(Sweep, EqualsOneDevice) {
  const Op& op = op_named(GetParam());
  auto start = std::chrono::steady_clock::now();
  const SweepReport total = sweep(op);
  std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::cout << "sweep: " << GetParam() << ": " << total << ", in " << seconds.count() << " s\n";
  EXPECT_TRUE(total.ok());
}

INSTANTIATE_TEST_SUITE_P(, Sweep, testing::ValuesIn(op_names()),
                         [](const auto& test) { return test.param; });

}  // namespace weft
