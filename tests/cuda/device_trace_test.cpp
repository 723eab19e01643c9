// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "ops/engine/trace_recorder.h"
#include "src/base/ticks.h"
#include "tests/cuda/trained_llama.h"
#include "tests/support/scratch.h"
#include "weft/ranks.h"
#include "weft/trace.h"

namespace weft {

class DeviceTrace : public OnGpu {};

using nlohmann::json;

static constexpr int kSteps = 3;

/// Runs steps of a small, fully sharded Llama; returns the trace file and rank 0's GPU overlap.
static json traced_steps(int ranks, TraceOverlap& overlap) {
  const Scratch scratch;
  const std::string path = scratch.path("trace.json");
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", ranks}});
    TransformerModel model(little_llama());
    shard(model, mesh, {});
    model.materialize(gpu);
    TraceScope trace;
    for (int step = 0; step < kSteps; ++step) {
      const TraceSpan span("step", step, gpu);
      const Tensor loss =
          model.loss(batch_of(mesh, 12, step).to(gpu), batch_of(mesh, 12, step + 1).to(gpu));
      loss.backward();
      for (const auto& parameter : model.parameters()) parameter->clear_grad();
    }
    const TraceOverlap found = trace.overlap("step");
    if (world.rank() == 0) overlap = found;
    EXPECT_EQ(trace.overlap("no such span").spans, 0);
    trace.note("found", 2.5);
    EXPECT_THROW(trace.note("wrong", 1 / 0.0), std::invalid_argument);
    trace.write(world, path);
  });
  std::ifstream file(path);
  return json::parse(file);
}

/// Lanes of a rank by name.
static std::map<std::string, int> lanes_of(const json& trace, int rank) {
  std::map<std::string, int> lanes;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "M" || event.at("name") != "thread_name" || event.at("pid") != rank)
      continue;
    lanes[event.at("args").at("name")] = event.at("tid");
  }
  return lanes;
}

static std::vector<json> events_in(const json& trace, int rank, int lane) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == "X" && event.at("pid") == rank && event.at("tid") == lane) {
      events.push_back(event);
    }
  }
  return events;
}

TEST_F(DeviceTrace, TellsWhatEachStreamDid) {
  TraceOverlap overlap;
  const json trace = traced_steps(2, overlap);
  for (const int rank : {0, 1}) {
    const auto lanes = lanes_of(trace, rank);
    for (const char* stream : {"cuda:0 compute", "cuda:0 gather", "cuda:0 scatter"}) {
      ASSERT_TRUE(lanes.contains(stream)) << stream;
      double before = 0;
      if (std::string(stream) == "cuda:0 compute") continue;
      for (const json& event : events_in(trace, rank, lanes.at(stream))) {
        // A stream runs one operation after the other.
        EXPECT_EQ(event.at("cat"), "gpu,collective");
        EXPECT_NE(event.at("name").get<std::string>().find("world"), std::string::npos);
        EXPECT_GE(event.at("ts").get<double>(), before - 0.001);
        before = event.at("ts").get<double>() + event.at("dur").get<double>();
      }
    }
    int waits = 0;
    std::map<std::string, json> steps;
    for (const json& event : events_in(trace, rank, lanes.at("cuda:0 compute"))) {
      waits += event.at("cat") == "gpu,wait" ? 1 : 0;
      const std::string name = event.at("name");
      if (name.starts_with("step ")) steps[name] = event;
    }
    // Waits for the units' parameters, and one for all at the end of each step.
    EXPECT_GT(waits, kSteps);
    ASSERT_EQ(steps.size(), static_cast<size_t>(kSteps));
    // The GPU starts a step after the host, and also finishes the last one after it, by the same
    // clock.
    for (const json& event : events_in(trace, rank, lanes.at("ops"))) {
      const std::string name = event.at("name");
      if (!name.starts_with("step ")) continue;
      const double host = event.at("ts"), device = steps.at(name).at("ts");
      EXPECT_GE(device, host - 1) << name;
      EXPECT_LT(device, host + 60e6) << name;
    }
  }
  EXPECT_EQ(overlap.spans, kSteps - 1);
  EXPECT_GT(overlap.communication, 0);
  EXPECT_LE(overlap.exposed, overlap.communication);
  EXPECT_EQ(trace.at("otherData").at("found"), 2.5);
}

TEST_F(DeviceTrace, OfOneRankHasNoCommunication) {
  TraceOverlap overlap;
  traced_steps(1, overlap);
  EXPECT_EQ(overlap.spans, kSteps - 1);
  EXPECT_EQ(overlap.communication, 0);
}

/// Intervals of the compute and gather streams.
static StreamStretch on(StreamRole role, StreamWork work, int64_t begin, int64_t end) {
  return {0, static_cast<int>(role), work, "", begin, end, 0};
}

TEST_F(DeviceTrace, CountsCommunicationOnceAndWhatIsExposed) {
  using enum StreamRole;
  using enum StreamWork;
  struct Case {
    std::vector<StreamStretch> stretches;
    int64_t all, exposed;
  };
  const Case cases[] = {
      {{}, 0, 0},
      {{on(gather, collective, 10, 30)}, 20, 0},
      // Two overlapping collectives count once.
      {{on(gather, collective, 10, 30), on(scatter, collective, 20, 40)}, 30, 0},
      // Only the part of a wait during communication counts.
      {{on(gather, collective, 10, 30), on(compute, wait, 25, 90)}, 20, 5},
      {{on(compute, wait, 0, 12), on(gather, collective, 10, 30), on(compute, wait, 28, 29)},
       20,
       3},
      // A collective within computation.
      {{on(compute, collective, 5, 9), on(compute, span, 0, 100)}, 4, 4},
      {{on(compute, wait, 0, 100), on(compute, span, 0, 100)}, 0, 0},
  };
  for (const Case& one : cases) {
    const CommunicationTime time = communication_time(one.stretches);
    EXPECT_EQ(time.all, one.all);
    EXPECT_EQ(time.exposed, one.exposed);
  }
}

TEST_F(DeviceTrace, CountsOnFromNewPoints) {
  // Each mark is measured relative to a different point.
  StreamTimes times(0);
  const Stream stream = current_stream(gpu);
  for (int i = 0; i < 5; ++i) {
    const StreamTimes::Mark begin = times.mark(stream);
    times.add(begin, StreamWork::span, concat(i));
  }
  const std::vector<StreamStretch> all = times.stretches();
  ASSERT_EQ(all.size(), 5u);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_GE(all[i].begin, all[i - 1].end);
  EXPECT_LE(all[4].end, steady_nanoseconds());
  EXPECT_TRUE(StreamTimes().mark(current_stream(cpu)).time == nullptr);
}

}  // namespace weft
