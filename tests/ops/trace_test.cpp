// SPDX-License-Identifier: Apache-2.0
#include "weft/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "src/base/trace_file.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"

namespace weft {
namespace {

using nlohmann::json;

json read(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file);
}

/// Names of a rank's timed events, ordered by their end.
std::vector<std::string> names_in(const json& trace, int rank, const std::string& category) {
  std::vector<std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("pid") != rank) continue;
    if (event.at("cat") == category) names.push_back(event.at("name"));
  }
  return names;
}

TEST(Trace, WritesWhatEachRankDid) {
  const Scratch scratch;
  const std::string path = scratch.path("trace.json");
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    const Tensor x = numbers({7, 4}, 0, Sharding(mesh, {Shard(0)}));
    TraceScope trace;
    {
      const TraceSpan span("step", 5);
      const TraceSpan inner("inner");
      const Tensor y = matmul(x, x.t());  // moves an operand
    }
    const int64_t events = trace.events();
    EXPECT_GE(events, 5);
    trace.write(mesh.communicator(), path);
    const Tensor later = add(x, x);
    EXPECT_EQ(trace.events(), events);
  });
  const json trace = read(path);
  for (int rank = 0; rank < 3; ++rank) {
    const auto ops = names_in(trace, rank, "op");
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "matmul"), 1);
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "add"), 0);
    EXPECT_EQ(names_in(trace, rank, "span"), (std::vector<std::string>{"inner", "step 5"}));
    ASSERT_EQ(names_in(trace, rank, "collective").size(), 1u);
    for (const json& event : trace.at("traceEvents")) {
      if (event.at("ph") != "X" || event.at("pid") != rank) continue;
      // 7 rows over 3 ranks: 3, 3 and 1; each rank receives the rows of the others.
      const int64_t moved = (rank == 2 ? 6 : 4) * 4 * 4;
      if (event.at("name") == "matmul") {
        EXPECT_EQ(event.at("args").at("bytes_moved"), moved);
      }
      if (event.at("cat") == "collective") {
        EXPECT_EQ(event.at("args").at("bytes"), moved);
      }
    }
  }
}

TEST(Trace, CountsWhatFindsNoRoom) {
  const Scratch scratch;
  const std::string path = scratch.path("trace.json");
  run_ranks(2, [&](Communicator world) {
    const Tensor x = numbers({2});
    TraceScope trace(10);
    for (int i = 0; i < 25 + world.rank(); ++i) (void)add(x, x);
    EXPECT_EQ(trace.events(), 10);
    EXPECT_EQ(trace.dropped(), 15 + world.rank());
    trace.write(world, path);
  });
  const json trace = read(path);
  EXPECT_EQ(trace["otherData"]["dropped_events"], (json{{"rank 0", 15}, {"rank 1", 16}}));
  EXPECT_EQ(names_in(trace, 1, "op").size(), 10u);
}

TEST(Trace, IsOneAtATimeAndTellsOfItsFile) {
  const Tensor x = numbers({2});
  const TraceSpan none("no trace is under way");
  run_ranks(1, [&](Communicator world) {
    TraceScope trace;
    EXPECT_EQ(error_of([] { TraceScope second; }),
              "trace: the rank has one already, expected none");
    EXPECT_EQ(error_of([] { TraceScope second(0); }),
              "trace: room for events must be at least 1, got 0");
    (void)add(x, x);
    EXPECT_EQ(trace.events(), 1);
    const std::string error =
        error_of<std::runtime_error>([&] { trace.write(world, "/no/such/folder/trace.json"); });
    EXPECT_EQ(error,
              "trace: \"/no/such/folder/trace.json\" cannot be written: No such file or directory");
    TraceScope next;
    (void)add(x, x);
    EXPECT_EQ(next.events(), 1);
  });
}

TEST(Trace, PutsWhatOverlapsIntoLanes) {
  const std::vector<TraceTimes> none, times{{0, 10}, {5, 8}, {8, 9}, {10, 20}, {6, 30}, {9, 9}};
  EXPECT_TRUE(lanes_for(none).empty());
  EXPECT_EQ(lanes_for(times), (std::vector<int>{0, 1, 1, 0, 2, 1}));
  TraceEvents events(3, 1'000);
  events.add(0, "c", "quo\"te\n", {999, 2'234'567}, "\"a\":1");
  const json event = json::parse(events.text());
  EXPECT_EQ(event["name"], "quo\"te\n");
  EXPECT_TRUE(has(events.text(), "\"ts\":-0.001,\"dur\":2233.568"));
}

}  // namespace
}  // namespace weft
