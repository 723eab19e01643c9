// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/support/collected_warnings.h"
#include "weft/ranks.h"

namespace weft {
namespace {

TEST(Warnings, GoToTheHandlerFromAllRanks) {
  const CollectedWarnings collected;
  run_ranks(3, [](Communicator world) { warn("rank ", world.rank(), " of ", world.size()); });
  EXPECT_EQ(collected.sentences(),
            (std::multiset<std::string>{"rank 0 of 3", "rank 1 of 3", "rank 2 of 3"}));
}

TEST(Warnings, WriteToNoStreamWithoutAHandler) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  warn("nobody hears this");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Warnings, TheHandlerBeforeIsReturned) {
  const CollectedWarnings outer;
  {
    const CollectedWarnings inner;
    warn("inner");
    EXPECT_EQ(inner.sentences().size(), 1u);
  }
  warn("outer");
  EXPECT_EQ(outer.sentences(), (std::multiset<std::string>{"outer"}));
}

}  // namespace
}  // namespace weft
