// SPDX-License-Identifier: Apache-2.0
// The program on a GPU, or on emulated ones, compared with the same run on the CPU.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/device.h"
#include "weft/error.h"

namespace weft::tests {
namespace {

class DeviceRuns : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count(DeviceKind::cuda) == 0) {
      GTEST_SKIP() << "there is no GPU, nor an emulated one";
    }
    text_ = scratch_.write("text.txt", repeating_text(40));
    scratch_.write("model.json", kSmallLlama);
  }

  std::string train(const std::string& more) const {
    return concat("train --data ", text_, " --model ", scratch_.path("model.json"),
                  " --batch 12 --seq 8 ", more);
  }
  /// The value of a metric at each step of the run.
  std::vector<double> told(const std::string& file, const char* key) const {
    std::vector<double> values;
    for (const auto& line : metrics_in(scratch_.path(file))) {
      values.push_back(line.at(key).get<double>());
    }
    return values;
  }
  /// Runs it and gives its losses and the norms of its gradients.
  std::vector<double> numbers_of(const std::string& flags, const std::string& file) const {
    const Outcome outcome = run_weft(train(concat(flags, " --metrics ", scratch_.path(file))));
    EXPECT_EQ(outcome.code, 0) << flags << "\n" << outcome.text;
    std::vector<double> numbers = told(file, "loss");
    for (const double norm : told(file, "grad_norm")) numbers.push_back(norm);
    return numbers;
  }
  void expect_as_on_the_cpu(const std::string& flags, double tolerance,
                            const std::string& there_too = "") const {
    const std::string steps = concat("--steps 3 ", flags);
    const std::vector<double> there =
        numbers_of(steps + " --device cuda" + there_too, "there.jsonl");
    const std::vector<double> here = numbers_of(steps, "here.jsonl");
    ASSERT_EQ(here.size(), 6u) << flags;
    ASSERT_EQ(there.size(), 6u) << flags;
    for (size_t i = 0; i < here.size(); ++i) EXPECT_NEAR(there[i], here[i], tolerance) << flags;
  }

  Scratch scratch_;
  std::string text_;
};

TEST_F(DeviceRuns, TrainWithEveryStrategy) {
  for (const char* strategy : {"full_shard", "zero2", "zero1", "ddp"}) {
    expect_as_on_the_cpu(concat("--ranks 2 --strategy ", strategy), 2e-5);
  }
  for (const int ranks : {1, 3}) expect_as_on_the_cpu(concat("--ranks ", ranks), 2e-5);
  expect_as_on_the_cpu("--mesh replicate=2,shard=2 --strategy hsdp", 2e-5);
}

TEST_F(DeviceRuns, TrainCutByTensorParallelism) {
  expect_as_on_the_cpu("--mesh tp=2", 2e-5);
  expect_as_on_the_cpu("--mesh dp=2,tp=2 --sequence-parallel", 2e-5);
  expect_as_on_the_cpu("--mesh dp=3,tp=2 --strategy zero1", 2e-5);
}

TEST_F(DeviceRuns, TrainInBf16) {
  for (const char* flags :
       {"--ranks 1", "--ranks 3", "--mesh dp=2,tp=2", "--ranks 2 --strategy ddp"})
    expect_as_on_the_cpu(concat("--dtype bf16 ", flags), 5e-3);
}

TEST_F(DeviceRuns, TrainInPartsAndWithRecompute) {
  expect_as_on_the_cpu("--ranks 2 --accumulate 3", 2e-5);
  expect_as_on_the_cpu("--ranks 2 --activation-checkpointing full", 2e-5);
  expect_as_on_the_cpu("--ranks 2 --activation-checkpointing selective --keep-gathered", 2e-5);
}

TEST_F(DeviceRuns, TrainByAGraphWithEqualLosses) {
  for (const char* flags : {"", "--dtype bf16 --accumulate 2", "--offload state"}) {
    const std::string steps = concat("--ranks 1 --steps 5 --device cuda ", flags);
    const std::vector<double> plain = numbers_of(steps, "plain.jsonl");
    const std::vector<double> played = numbers_of(steps + " --cuda-graph", "played.jsonl");
    ASSERT_EQ(plain.size(), 10u) << flags;
    EXPECT_EQ(played, plain) << flags;
    std::filesystem::remove(scratch_.path("plain.jsonl"));
    std::filesystem::remove(scratch_.path("played.jsonl"));
  }
  for (const char* wrong :
       {"--device cuda --ranks 1 --steps 2", "--device cuda --ranks 2", "--device cpu --ranks 1",
        "--device cuda --ranks 1 --offload gradients"}) {
    expect(2, train(concat("--cuda-graph ", wrong)), "--cuda-graph");
  }
}

TEST_F(DeviceRuns, TrainWithWhatRestsOnTheHost) {
  for (const char* what : {"gradients", "parameters,gradients,state"}) {
    expect_as_on_the_cpu("--ranks 2", 2e-5, concat(" --offload ", what));
  }
  const Outcome sampled =
      run_weft(train("--ranks 2 --steps 1 --device cuda --offload parameters --sample 5"));
  EXPECT_EQ(sampled.code, 0) << sampled.text;
  EXPECT_EQ(run_weft(train("--offload state --steps 1")).code, 2);
  expect(2, train("--device cuda --offload weights --steps 1"), "weights");
}

TEST_F(DeviceRuns, GoOnFromWhatWasSavedOnAnyMeshAndDevice) {
  const std::string folder = scratch_.path("saved");
  const std::vector<double> whole = numbers_of(
      concat("--steps 4 --ranks 2 --device cuda --save-every 2 --save ", folder), "whole.jsonl");
  ASSERT_EQ(whole.size(), 8u);
  std::string half;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with("step-00000002")) half = entry.path();
  }
  ASSERT_FALSE(half.empty());
  for (const char* flags : {"--device cuda --ranks 2", "--device cuda --mesh dp=2,tp=2",
                            "--device cuda:0 --ranks 3", "--device cpu --ranks 2"}) {
    std::filesystem::remove(scratch_.path("rest.jsonl"));
    const std::vector<double> rest =
        numbers_of(concat("--steps 4 --resume ", half, ' ', flags), "rest.jsonl");
    ASSERT_EQ(rest.size(), 4u) << flags;
    for (const size_t i : {0, 1, 2, 3}) EXPECT_NEAR(rest[i], whole[i + (i < 2 ? 2 : 4)], 2e-5);
  }
}

TEST_F(DeviceRuns, SaveTheStepUnderWayWhenTheyAreStopped) {
  const std::string out = scratch_.path("out"), folder = scratch_.path("saved");
  const std::string endless =
      train(concat("--steps 100000 --ranks 2 --device cuda --save ", folder));
  expect(run_command(concat(WEFT_PROGRAM, ' ', endless, " >", out, " 2>&1 & p=$!; i=0; ",
                            "until grep -q 'step 1/' ", out,
                            " || test $i -gt 600; do sleep 0.1; i=$((i+1)); done; ",
                            "kill -TERM $p; wait $p; code=$?; cat ", out, "; exit $code")),
         128 + SIGTERM, "stopped at step ");
  // It compares only the generated text: sanitizers add warnings on stderr.
  const std::string sample = concat(WEFT_PROGRAM, " sample --resume ", folder,
                                    " --prompt 'line ' --tokens 9 --temperature 0 2>/dev/null ");
  const Outcome there = run_command(concat(sample, "--ranks 2 --device cuda"));
  const Outcome here = run_command(sample);
  EXPECT_EQ(there.code, 0);
  EXPECT_NE(here.text, "");
  EXPECT_EQ(there.text, here.text);
}

TEST_F(DeviceRuns, SayWhatTheyRunOn) {
  const std::string flags = "--steps 1 --ranks 3 --sample 4 --peak-tflops 10 --device cuda";
  const Outcome outcome = run_weft(train(flags));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  const std::string name = device_name({DeviceKind::cuda, 0});
  EXPECT_TRUE(has(outcome.text, concat("on mesh(dp=3) of cuda (", name, ')')));
  EXPECT_NE(outcome.text.find("  MFU "), std::string::npos) << outcome.text;
  EXPECT_NE(outcome.text.find("--- sample"), std::string::npos) << outcome.text;
}

TEST_F(DeviceRuns, TraceWhatTheirStreamsDid) {
  const std::string file = scratch_.path("trace.json");
  const auto traced = [&](const std::string& flags) {
    const Outcome outcome =
        run_weft(train(concat("--device cuda --steps 4 --trace ", file, flags)));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    std::ifstream text(file);
    return std::pair(outcome.text, nlohmann::json::parse(text));
  };
  const auto [told, trace] = traced(" --ranks 2");
  EXPECT_NE(told.find("measured: "), std::string::npos) << told;
  // The emulated device is in no table of rates.
  const bool known = told.find("predicted: 0.") != std::string::npos;
  EXPECT_TRUE(known || told.find("predicted: nothing, ") != std::string::npos) << told;
  EXPECT_GT(trace.at("otherData").at("measured_communication_seconds").get<double>(), 0);
  const auto [of_graph, played] = traced(" --ranks 1 --cuda-graph");
  EXPECT_EQ(of_graph.find("measured: "), std::string::npos) << of_graph;
  int graphs = 0;
  for (const auto& event : played.at("traceEvents")) {
    graphs += event.value("cat", "") == "gpu,span" && event.at("name") == "graph" ? 1 : 0;
  }
  EXPECT_EQ(graphs, 4);
}

TEST_F(DeviceRuns, RefuseWithoutADevice) {
  const Outcome outcome = run_weft(train("--device cuda"), "CUDA_VISIBLE_DEVICES= ");
  expect(outcome, 2, "device: cuda:0 does not exist: ");
  EXPECT_NE(outcome.text.find("; use device cpu"), std::string::npos) << outcome.text;
}

}  // namespace
}  // namespace weft::tests
