// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "src/comm/flight/record.h"
#include "tests/comm/mpi_backend.h"
#include "tests/support/scratch.h"
#include "weft/communicator.h"
#include "weft/context.h"

namespace weft {
namespace {

TEST(MpiFlight, RecordsWhatGoesOverMpi) {
  run_on_mpi(2, [](Communicator world) {
    const auto record = std::make_shared<FlightRecord>(world.rank(), world.size());
    Context::current().flight = record;
    // Small data is sent along with the calls, large data separately.
    for (const int64_t count : {int64_t{4}, int64_t{100'000}}) {
      const std::vector<int64_t> counts(static_cast<size_t>(world.size()), count);
      std::vector<float> part(static_cast<size_t>(count)), whole(part.size() * counts.size());
      const Piece piece{.send = part.data(), .recv = whole.data(), .counts = counts};
      Work work = world.all_gather({&piece, 1});
      EXPECT_NE(record->operations().back().state, FlightState::done);
      work.wait();
      if (world.rank() == 0) world.send(part.data(), count, f32, 1, 7).wait();
      if (world.rank() == 1) world.recv(part.data(), count, f32, 0, 7).wait();
    }
    Context::current().flight = nullptr;
    const auto all = record->operations();
    ASSERT_EQ(all.size(), 4u);
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t bytes = (i < 2 ? 4 : 100'000) * 4;
      EXPECT_EQ(all[i].state, FlightState::done);
      EXPECT_STREQ(all[i].communicator.data(), "world");
      EXPECT_GE(all[i].ended, all[i].posted);
      if (i % 2 == 0) {
        EXPECT_EQ(all[i].call.kind, CollectiveKind::all_gather);
        EXPECT_EQ(all[i].bytes, bytes);
        EXPECT_GE(all[i].started, all[i].posted);
        EXPECT_GE(all[i].ended, all[i].started);
      } else {
        EXPECT_EQ(all[i].bytes, world.rank() == 1 ? bytes : 0);
        EXPECT_TRUE(has(all[i].in_words(), "rank " + std::to_string(1 - world.rank()) + ", tag 7"));
      }
    }
  });
}

}  // namespace
}  // namespace weft
