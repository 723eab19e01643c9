// SPDX-License-Identifier: Apache-2.0
// `weft train` with arrays on disk, and with a budget of memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft::tests {
namespace {

class Offload : public testing::Test {
 protected:
  Offload() {
    text_ = scratch_.write("text.txt", repeating_text(40));
    scratch_.write("model.json",
                   R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":20,)"
                   R"("intermediate_size":28,"num_hidden_layers":3,"num_attention_heads":4,)"
                   R"("num_key_value_heads":2,"vocab_size":259,"max_position_embeddings":64,)"
                   R"("head_dim":6,"rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
                   R"("tie_word_embeddings":false})");
    std::filesystem::create_directory(scratch_.path("disk"));
  }

  std::string train(const std::string& more) const {
    return concat("train --tokenizer bytes --data ", text_, " --model ",
                  scratch_.path("model.json"), " --batch 12 --seq 8 --threads 1 ", more);
  }
  /// Losses and norms of all steps.
  std::vector<std::string> numbers_of(const std::string& flags) const {
    const std::string file = scratch_.path("metrics.jsonl");
    std::filesystem::remove(file);
    const Outcome outcome = run_weft(train(concat(flags, " --metrics ", file)));
    EXPECT_EQ(outcome.code, 0) << flags << "\n" << outcome.text;
    return numbers_in(file);
  }
  static std::vector<std::string> numbers_in(const std::string& file) {
    std::vector<std::string> numbers;
    for (const auto& json : metrics_in(file)) {
      numbers.push_back(concat(json.at("loss").dump(), ' ', json.at("grad_norm").dump()));
    }
    return numbers;
  }
  /// "--offload a=disk:DIR,b=disk:DIR".
  std::string to_disk(const std::vector<std::string>& what) const {
    std::string text = " --offload ";
    for (const std::string& one : what) {
      text += concat(text.ends_with(' ') ? "" : ",", one, "=disk:", scratch_.path("disk"));
    }
    return text;
  }

  Scratch scratch_;
  std::string text_;
};

TEST_F(Offload, TrainsWithTheSameBits) {
  for (const char* flags :
       {"--ranks 1", "--ranks 2 --dtype bf16", "--ranks 3 --activation-checkpointing op",
        "--mesh dp=2,tp=2 --accumulate 2", "--mesh replicate=2,shard=2 --strategy hsdp",
        "--ranks 2 --strategy zero1 --activation-checkpointing full"}) {
    const std::string steps = concat("--steps 4 ", flags);
    const auto expected = numbers_of(steps);
    ASSERT_EQ(expected.size(), 4U) << flags;
    EXPECT_EQ(numbers_of(steps + to_disk({"state"})), expected) << flags;
    EXPECT_EQ(numbers_of(steps + to_disk({"state", "parameters", "gradients"})), expected) << flags;
    if (steps.find("checkpointing") == std::string::npos) continue;
    EXPECT_EQ(numbers_of(steps + to_disk({"activations"})), expected) << flags;
    EXPECT_EQ(numbers_of(steps + to_disk({"activations", "state", "gradients"})), expected)
        << flags;
  }
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path("disk")));
}

/// Removes the newest checkpoint of a run, as if the process was killed before it was complete.
static void forget_newest(const std::string& run) {
  std::set<std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(run)) {
    if (entry.path().filename().string().starts_with("step-")) all.insert(entry.path().string());
  }
  ASSERT_GE(all.size(), 2U);
  std::filesystem::remove_all(*all.rbegin());
}

TEST_F(Offload, ResumesFromItsCheckpoint) {
  const std::string all = to_disk({"state", "parameters", "gradients"});
  const auto expected = numbers_of("--steps 6 --ranks 2");
  const std::string save =
      concat("--steps 6 --save ", scratch_.path("run"), " --save-every 2 --keep 0 ");
  EXPECT_EQ(numbers_of(concat(save, "--ranks 2", all)), expected);
  const std::vector<std::string> last(expected.begin() + 4, expected.end());
  // The run resumes from disk to disk, and to memory.
  for (const std::string& tier : {all, std::string()}) {
    forget_newest(scratch_.path("run"));
    const std::string resume = concat(" --resume ", scratch_.path("run"));
    EXPECT_EQ(numbers_of(concat(save, "--ranks 2", tier, resume)), last);
  }
}

TEST_F(Offload, KilledAtAnyMomentItResumes) {
  const std::string steps = "--steps 40 --ranks 2 --activation-checkpointing op";
  const auto expected = numbers_of(steps);
  const std::string all = to_disk({"state", "parameters", "gradients", "activations"});
  const std::string run = scratch_.path("run");
  const std::string goes_on =
      concat(steps, all, " --save ", run, " --save-every 2 --keep 2 --resume ", run);
  for (const char* seconds : {"0.2", "0.5", "0.9", "1.4", "0.7"}) {
    run_weft(train(goes_on), concat("timeout -s KILL ", seconds, ' '));
    EXPECT_TRUE(std::filesystem::is_empty(scratch_.path("disk")));
  }
  const auto rest = numbers_of(goes_on);
  ASSERT_LE(rest.size(), expected.size());
  const auto last = expected.end() - static_cast<ptrdiff_t>(rest.size());
  EXPECT_EQ(rest, std::vector<std::string>(last, expected.end()));
}

TEST_F(Offload, PlainReadsAndWritesGiveTheSameBits) {
  const std::string steps = "--steps 3 --ranks 2 --activation-checkpointing full";
  const auto expected = numbers_of(steps);
  const std::string all = to_disk({"state", "parameters", "gradients", "activations"});
  const std::string metrics = scratch_.path("plain.jsonl");
  const Outcome plain =
      run_weft(train(concat(steps, all, " --metrics ", metrics)), "WEFT_PLAIN_IO=1 ");
  EXPECT_EQ(plain.code, 0) << plain.text;
  const std::string warning = "WEFT_PLAIN_IO is set, so that reads and writes pass through the ";
  const size_t at = plain.text.find(warning);
  ASSERT_NE(at, std::string::npos) << plain.text;
  EXPECT_EQ(plain.text.find("so that reads", at + warning.size()), std::string::npos) << plain.text;
  EXPECT_EQ(numbers_in(metrics), expected);
}

/// Numbers of steps whose gradient norms were summed by other units: equal but for rounding.
static void expect_near(const std::vector<std::string>& lines,
                        const std::vector<std::string>& expected) {
  ASSERT_EQ(lines.size(), expected.size());
  for (size_t i = 0; i < lines.size(); ++i) {
    std::istringstream line(lines[i]), wanted(expected[i]);
    for (double value = 0, other = 0; wanted >> other;) {
      ASSERT_TRUE(line >> value) << lines[i];
      EXPECT_NEAR(value, other, 1e-6 * other) << lines[i];
    }
  }
}

TEST_F(Offload, APlanMayUseTheDisk) {
  const auto expected = numbers_of("--steps 3 --ranks 2");
  const std::string free =
      concat("--steps 3 --ranks 2 --offload auto=disk:", scratch_.path("disk"));
  const Outcome none = run_weft(train(free + " --memory 1"));
  EXPECT_EQ(none.code, 2);
  const size_t at = none.text.find("expected at least ");
  ASSERT_NE(at, std::string::npos) << none.text;
  const std::string least = none.text.substr(at + 18, none.text.find(',', at + 18) - at - 18);
  expect_near(numbers_of(free + " --memory " + least), expected);
  expect(2, train(free), "--offload auto is given without --memory, expected both");
  expect(2, train("--offload activations=disk:/tmp"),
         "activations rest in a tier while --activation-checkpointing is none");
}

/// Values, gradients and both moments take four times the memory that the process may allocate.
TEST_F(Offload, TrainsAModelOfFourTimesTheMemory) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "a sanitizer allocates more than the limit itself";
#endif
  scratch_.write("large.json",
                 R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":256,)"
                 R"("intermediate_size":1000,"num_hidden_layers":48,"num_attention_heads":4,)"
                 R"("num_key_value_heads":4,"vocab_size":259,"max_position_embeddings":64,)"
                 R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
                 R"("tie_word_embeddings":false})");
  const std::string model = scratch_.path("large.json");
  const Outcome estimate =
      run_weft(concat("estimate --model ", model, " --mesh dp=2 --batch 2 --seq 8 --json"));
  ASSERT_EQ(estimate.code, 0) << estimate.text;
  const auto bytes = nlohmann::json::parse(estimate.text).at("peak_bytes_of");
  int64_t states = 0;
  for (const char* of : {"parameters", "gradients", "optimizer"}) {
    states += 2 * bytes.at(of).get<int64_t>();
  }
  const std::string file = scratch_.path("metrics.jsonl");
  const auto run = [&](const std::string& more, const std::string& limit) {
    std::filesystem::remove(file);
    return run_weft(concat("train --tokenizer bytes --data ", text_, " --model ", model,
                           " --ranks 2 --batch 2 ",
                           "--seq 8 --threads 1 --steps 20 --activation-checkpointing full ",
                           "--metrics ", file, more),
                    limit);
  };
  ASSERT_EQ(run("", "").code, 0);
  const auto expected = numbers_in(file);
  ASSERT_EQ(expected.size(), 20U);
  const std::string limit = concat("ulimit -d ", states / 4 / 1024, "; ");
  const Outcome in_memory = run("", limit);
  EXPECT_NE(in_memory.code, 0);
  EXPECT_TRUE(in_memory.text.find("bad_alloc") != std::string::npos ||
              in_memory.text.find(" bytes of memory are not available") != std::string::npos)
      << in_memory.text;
  const Outcome outcome = run(to_disk({"state", "parameters", "gradients", "activations"}), limit);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(numbers_in(file), expected);
}

TEST_F(Offload, ErrorsNameTheItem) {
  expect(2, train("--offload weights=disk:/tmp"),
         "--offload: item is \"weights=disk:/tmp\", expected parameters, "
         "gradients, state, activations or auto");
  expect(2, train("--offload state=tape"),
         "--offload state: tier is \"tape\", expected device, host or disk:DIR");
  expect(2, train("--offload state"), "write state=disk:DIR");
  expect(2, train("--offload state=disk:/nonexistent/folder"),
         "offload: no file can be made in \"/nonexistent/folder\"");
}

TEST_F(Offload, AMemoryBudgetKeepsTheNumbers) {
  const auto expected = numbers_of("--steps 3 --ranks 2");
  const Outcome none = run_weft(train("--steps 1 --ranks 2 --memory 1"));
  EXPECT_EQ(none.code, 2);
  const size_t at = none.text.find("expected at least ");
  ASSERT_NE(at, std::string::npos) << none.text;
  const std::string least = none.text.substr(at + 18, none.text.find(',', at + 18) - at - 18);
  expect_near(numbers_of("--steps 3 --ranks 2 --memory " + least), expected);
  EXPECT_EQ(numbers_of("--steps 3 --ranks 2 --activation-checkpointing budget=10MB"), expected);
  const Outcome printed = run_weft(concat("estimate --model ", scratch_.path("model.json"),
                                          " --mesh dp=2 --batch 12 --seq 8 --memory ", least));
  expect(printed, 0, "blocks that save for backward: 3 their inputs");
  EXPECT_NE(printed.text.find(least), std::string::npos) << printed.text;
}

}  // namespace
}  // namespace weft::tests
