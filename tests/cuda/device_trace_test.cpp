// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cuda/trained_llama.h"
#include "tests/support/scratch.h"
#include "weft/trace.h"

namespace weft {

class DeviceTrace : public OnGpu {};

using nlohmann::json;

static constexpr int kSteps = 3;

/// Steps of a little Llama, fully sharded; the file they leave, and what rank 0's GPU overlapped.
static json traced_steps(int ranks, TraceOverlap& overlap) {
  const Scratch scratch;
  const std::string path = scratch.path("trace.json");
  run_ranks(ranks, [&](Communicator world) {
    const DeviceMesh mesh(world, {{"dp", ranks}});
    Llama model(little_llama());
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
    trace.note("found", found.exposed);
    trace.write(world, path);
  });
  std::ifstream file(path);
  return json::parse(file);
}

/// Lanes of a rank by their names.
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
      for (const json& event : events_in(trace, rank, lanes.at(stream))) {
        const std::string category = event.at("cat");
        EXPECT_GE(event.at("dur").get<double>(), 0);
        if (std::string(stream) == "cuda:0 compute") continue;
        // A stream does one thing after the other.
        EXPECT_EQ(category, "gpu,collective");
        EXPECT_GE(event.at("ts").get<double>(), before - 0.001);
        before = event.at("ts").get<double>() + event.at("dur").get<double>();
      }
    }
    int waits = 0, steps = 0;
    for (const json& event : events_in(trace, rank, lanes.at("cuda:0 compute"))) {
      waits += event.at("cat") == "gpu,wait" ? 1 : 0;
      steps += event.at("name").get<std::string>().starts_with("step ") ? 1 : 0;
    }
    // Those of units for parameters, and one for all at the end of each step.
    EXPECT_GT(waits, kSteps);
    EXPECT_EQ(steps, kSteps);
  }
  EXPECT_EQ(overlap.spans, kSteps);
  EXPECT_GT(overlap.communication, 0);
  EXPECT_GE(overlap.exposed, 0);
  EXPECT_NEAR(trace.at("otherData").at("found").get<double>(), overlap.exposed,
              1e-4 * overlap.exposed);
}

TEST_F(DeviceTrace, OfOneRankHasNoCommunication) {
  TraceOverlap overlap;
  traced_steps(1, overlap);
  EXPECT_EQ(overlap.spans, kSteps);
  EXPECT_EQ(overlap.communication, 0);
}

}  // namespace weft
