// SPDX-License-Identifier: Apache-2.0
// Runs whose ranks were given different inputs, and runs that are resumed with other inputs.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/extend/saved_model.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft::tests {
namespace {

class Inputs : public testing::Test {
 protected:
  /// A folder for each of three ranks and one for rank "all", with a model and data in it.
  void SetUp() override {
    for (const char* folder : {"0", "1", "2", "all"}) {
      write_model(folder, "10000.0", "1e-5");
      scratch_.write(concat(folder, "/data/text.txt"), repeating_text(400));
    }
  }

  void write_model(const std::string& folder, const std::string& theta, const std::string& eps,
                   const std::string& more = "") const {
    scratch_.write(
        concat(folder, "/model.json"),
        concat(R"({"model_type":"llama","architectures":["LlamaForCausalLM"],)",
               R"("hidden_size":16,"intermediate_size":24,"num_hidden_layers":2,)",
               R"("num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256,)",
               R"("max_position_embeddings":64,"rms_norm_eps":)", eps, R"(,"rope_theta":)", theta,
               R"(,"hidden_act":"silu",)", more, R"("tie_word_embeddings":false})"));
  }

  /// Changes one byte of a file, `from_end` bytes before its end.
  static void change_byte(const std::string& path, int from_end) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-from_end, std::ios::end);
    const char other = static_cast<char>(file.get() ^ 1);
    file.seekp(-from_end, std::ios::end);
    file.put(other);
  }

  /// A file of 300 MiB with holes. Its digest reads 64 blocks of 1 MiB of it; between these, a part
  /// of the bytes is `filled`.
  std::string write_large(const std::string& name, char filled) const {
    constexpr int64_t size = int64_t{300} << 20, block = int64_t{1} << 20;
    const std::string path = scratch_.write(name, "");
    fs::resize_file(path, static_cast<uintmax_t>(size));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const std::string bytes(static_cast<size_t>(block) / 2, filled);
    for (int64_t i = 0; i < 63; ++i) {
      file.seekp(i * (size - block) / 63 + 2 * block);
      file.write(bytes.data(), static_cast<int64_t>(bytes.size()));
    }
    return path;
  }

  static std::string flags(const std::string& more) {
    return concat("train --data data --model model.json --batch 12 --seq 16 ", more);
  }
  /// Each rank in its own folder.
  Outcome run_apart(int ranks, const std::string& more) const {
    return run_weft(concat("run -n ", ranks, " -- sh -c 'cd ", scratch_.root(),
                           "/$WEFT_RANK && exec ", WEFT_PROGRAM, " ", flags(more), "'"),
                    "WEFT_FLIGHT= ");
  }
  /// All ranks in one folder, as threads or as processes.
  Outcome run_together(int ranks, bool processes, const std::string& more) const {
    const std::string command = concat(WEFT_PROGRAM, ' ', flags(more));
    const std::string job = concat(WEFT_PROGRAM, " run -n ", ranks, " -- ", command);
    return run_command(concat("cd ", scratch_.path("all"), " && ",
                              processes ? job : concat(command, " --ranks ", ranks), " 2>&1"));
  }
  Outcome run_alone(const std::string& more) const { return run_together(1, false, more); }

  static std::map<std::string, int64_t> numbers_of(const std::string& checkpoint) {
    return checkpoint_contents(checkpoint).numbers;
  }

  Scratch scratch_;
};

TEST_F(Inputs, RanksWithAnotherModelAreRefused) {
  write_model("2", "500000.0", "1e-5");
  for (const char* strategy : {"full_shard", "ddp"}) {
    expect(run_apart(3, concat("--steps 2 --strategy ", strategy)), 2,
           "rank 2 has model.rope_theta 500000, rank 0 has 10000");
  }
  write_model("1", "10000.0", "1.00001e-5");
  expect(run_apart(2, "--steps 2"), 2, "rank 1 has model.norm_eps 1.00001e-05, rank 0 has 1e-05");
  write_model("1", "10000.0", "1e-5", R"("initializer_range":0.05,)");
  expect(run_apart(2, "--steps 2"), 2, "rank 1 has model.deviation 0.05, rank 0 has 0.02");
}

TEST_F(Inputs, RanksWithOtherInitialWeightsAreRefused) {
  const std::string saved = scratch_.path("saved");
  expect(run_alone(concat("--steps 1 --save ", saved)), 0, "saved");
  const std::string from = list_checkpoints(saved).at(0);
  for (const char* rank : {"0", "1", "2"}) {
    const std::string to = scratch_.path(concat(rank, "/init"));
    expect(0, concat("ckpt export ", from, ' ', to), "written");
  }
  expect(run_apart(3, "--steps 1 --init init"), 0, "step");
  change_byte(scratch_.path("2/init/model.safetensors"), 2);
  for (const char* strategy : {"full_shard", "ddp"}) {
    expect(run_apart(3, concat("--steps 1 --init init --strategy ", strategy)), 2,
           "rank 2 has init ");
  }
}

TEST_F(Inputs, RanksWithOtherDataOfEqualLengthAreRefused) {
  change_byte(scratch_.path("2/data/text.txt"), 5001);
  expect(run_apart(2, "--steps 2"), 0, "step");
  expect(run_apart(3, "--steps 2"), 2, "rank 2 has data ");
  // The same tokens under another name, which a host may have.
  fs::rename(scratch_.path("1/data/text.txt"), scratch_.path("1/data/other.txt"));
  const std::string saved = scratch_.path("saved"), keeps = concat("--save ", saved);
  expect(run_apart(2, concat("--steps 2 ", keeps)), 0, "saved");
  expect(0, concat("ckpt verify ", saved), "COMPLETE");
  expect(run_apart(2, concat("--steps 3 --resume ", saved)), 0, "after step 2");
  fs::rename(scratch_.path("0/data/text.txt"), scratch_.path("0/data/another.txt"));
  expect(run_apart(2, concat("--steps 3 --resume ", saved)), 0, "data names is ");
  scratch_.write("1/data/text.txt", repeating_text(3));
  expect(run_apart(2, "--steps 2"), 2, "rank 1 has tokens ");
}

TEST_F(Inputs, RanksThatReadOtherTokensOfLargeDataAreStopped) {
  const std::string first = write_large("0/data/text.txt", 'a');
  for (const char* rank : {"1", "2"}) {
    const std::string path = scratch_.path(concat(rank, "/data/text.txt"));
    fs::remove(path);
    fs::create_hard_link(first, path);
  }
  const std::string saved = scratch_.path("saved");
  expect(run_apart(3, concat("--steps 2 --save ", saved)), 0, "saved");
  fs::remove(scratch_.path("2/data/text.txt"));
  write_large("2/data/text.txt", 'b');
  for (const char* mesh : {"dp=3", "tp=1,dp=3", "a=3,b=1"}) {
    expect(run_apart(3, concat("--steps 4 --save saved --save-every 2 --mesh ", mesh)), 2,
           "and 2 read different tokens in step 1");
    // Nothing was saved of a run that went wrong.
    for (const char* rank : {"0", "1", "2"}) {
      EXPECT_TRUE(list_checkpoints(scratch_.path(concat(rank, "/saved"))).empty()) << rank;
      fs::remove_all(scratch_.path(concat(rank, "/saved")));
    }
  }
  // Ranks of tp read the same rows.
  fs::rename(scratch_.path("2/data/text.txt"), scratch_.path("1/data/text.txt"));
  expect(run_apart(2, "--steps 4 --mesh tp=2"), 2, "ranks 0 and 1 read different tokens in step 1");
  // A checkpoint is not resumed with other tokens between the sampled blocks.
  fs::create_directories(scratch_.path("all/data"));
  fs::rename(scratch_.path("1/data/text.txt"), scratch_.path("all/data/text.txt"));
  for (const bool processes : {false, true}) {
    expect(run_together(2, processes, concat("--steps 3 --resume ", saved)), 2,
           "steps 1 to 2 of the checkpoint used different tokens");
    expect(run_together(2, processes, concat("--steps 3 --allow-change data --resume ", saved)), 0,
           "resumed from");
  }
}

TEST_F(Inputs, ResumingWithOtherDataIsRefused) {
  const std::string saved = scratch_.path("saved"), resume = concat(" --resume ", saved);
  expect(run_together(3, true, concat("--steps 2 --save ", saved)), 0, "saved");
  expect(run_together(3, true, concat("--steps 3", resume)), 0, "after step 2");
  const std::string path = scratch_.path("all/data/text.txt");
  fs::rename(path, scratch_.path("all/data/renamed.txt"));
  expect(run_alone(concat("--steps 3", resume)), 0, "note: data names ");
  fs::rename(scratch_.path("all/data/renamed.txt"), path);
  change_byte(path, 5001);
  for (const int ranks : {1, 3}) {
    for (const bool processes : {false, true}) {
      const Outcome refused = run_together(ranks, processes, concat("--steps 3", resume));
      expect(refused, 2, "--resume: data is ");
      expect(refused, 2, "; --allow-change data continues with the new value");
      expect(run_together(ranks, processes, concat("--steps 3 --allow-change data", resume)), 0,
             "after step 2");
    }
  }
}

TEST_F(Inputs, ResumingWithOtherSettingsIsRefused) {
  const std::string saved = scratch_.path("saved"), resume = concat(" --resume ", saved);
  expect(run_alone(concat("--steps 2 --save ", saved)), 0, "saved");
  struct Case {
    const char* flag;
    const char* name;
    const char* said;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"--lr 0.002", "lr", "lr is 0.002, the checkpoint's is 0.003"},
           {"--batch 24", "batch", "batch is 24, the checkpoint's is 12"},
           {"--seq 8", "seq", "seq is 8, the checkpoint's is 16"},
           {"--seed 7", "seed", "seed is 7, the checkpoint's is 0"},
           {"--weight-decay 0", "weight-decay", "weight-decay is 0, the checkpoint's is 0.1"},
           {"--clip 2", "clip", "clip is 2, the checkpoint's is 1"},
           {"--dtype bf16", "dtype", "dtype is bf16, the checkpoint's is f32"}}) {
    const std::string run = concat("--steps 3 ", c.flag, resume);
    const Outcome refused = run_alone(run);
    expect(refused, 2, concat("--resume: ", c.said));
    expect(refused, 2, concat("--allow-change ", c.name));
    expect(run_alone(concat(run, " --allow-change ", c.name)), 0, c.said);
  }
  expect(run_alone(concat("--steps 3 --lr 0.1 --clip 2 --allow-change clip,lr", resume)), 0,
         "after step 2");
  expect(run_alone(concat("--steps 3 --allow-change rope", resume)), 2, "--allow-change");
  write_model("all", "500000.0", "1e-5");
  const Outcome model = run_alone(concat("--steps 3", resume));
  expect(model, 2, "--resume: model.rope_theta is 500000, the checkpoint's is 10000");
  EXPECT_EQ(model.text.find("--allow-change"), std::string::npos) << model.text;
}

TEST_F(Inputs, HarmlessChangesAreNoted) {
  const std::string saved = scratch_.path("saved"), resume = concat(" --resume ", saved);
  expect(run_together(3, true, concat("--steps 2 --save ", saved)), 0, "saved");
  expect(run_alone(concat("--steps 20", resume)), 0,
         "note: steps is 20, the checkpoint's is 2 (the schedule");
  const Outcome other =
      run_together(2, false, concat("--steps 2 --mesh dp=2 --accumulate 2 --strategy ddp", resume));
  expect(other, 0, "note: mesh is dp=2, the checkpoint's is dp=3 (");
  expect(other, 0, "note: accumulate is 2, the checkpoint's is 1 (");
  expect(other, 0, "note: strategy is ddp, the checkpoint's is full_shard (");
  const Outcome same = run_together(3, true, concat("--steps 2", resume));
  expect(same, 0, "after step 2");
  EXPECT_EQ(same.text.find("note: "), std::string::npos) << same.text;
  EXPECT_EQ(same.text.find("warning: "), std::string::npos) << same.text;
}

/// Checkpoints that the program wrote before it saved what decides numbers.
TEST_F(Inputs, OlderCheckpointsAreResumed) {
  const std::string saved = scratch_.path("saved"), older = scratch_.path("older");
  expect(run_alone(concat("--steps 2 --save ", saved)), 0, "saved");
  const std::string from = list_checkpoints(saved).at(0);
  run_ranks(1, [&](const Communicator& world) {
    StateDict state = state_in(from);
    const auto numbers = state.numbers;
    for (const auto& [name, number] : numbers) {
      const bool is_known = name == "run/seed" || name == "run/batch" || name == "run/seq" ||
                            name == "run/tokens" || !name.starts_with("run/");
      if (!is_known) state.numbers.erase(name);
    }
    EXPECT_LT(state.numbers.size(), numbers.size());
    CheckpointSaver(world, older).save(2, state);
  });
  for (const int ranks : {1, 3}) {
    for (const bool processes : {false, true}) {
      const Outcome outcome =
          run_together(ranks, processes, concat("--steps 3 --lr 0.1 --resume ", older));
      expect(outcome, 0, "after step 2");
      expect(outcome, 0, "weft: warning: ");
      expect(outcome, 0, "lr, ");
      EXPECT_EQ(outcome.text.find("warning: "), outcome.text.rfind("warning: ")) << outcome.text;
      expect(run_together(ranks, processes, concat("--steps 3 --seed 7 --resume ", older)), 2,
             "seed is 7, the checkpoint's is 0");
    }
  }
}

/// Python wrote 1e15 in other digits than the program does.
TEST_F(Inputs, NumbersInOtherDigitsAreEqual) {
  write_model("all", "1e15", "1e-5");
  const std::string saved = scratch_.path("saved"), older = scratch_.path("older");
  expect(run_alone(concat("--steps 2 --save ", saved)), 0, "saved");
  const std::string from = list_checkpoints(saved).at(0), key = "config/config";
  for (const char* digits : {"1000000000000000.0", "1000000000000000", "2e15"}) {
    run_ranks(1, [&](const Communicator& world) {
      StateDict state = state_in(from);
      std::string text = saved_text(key, state.numbers);
      std::erase_if(state.numbers,
                    [&](const auto& number) { return number.first.starts_with(key + ":"); });
      const size_t at = text.find("1e+15");
      ASSERT_NE(at, text.npos) << text;
      save_text(key, text.replace(at, 5, digits), state.numbers);
      CheckpointSaver(world, older).save(2, state);
    });
    const bool equal = std::string(digits) != "2e15";
    expect(run_alone(concat("--steps 3 --resume ", older)), equal ? 0 : 2,
           equal ? "after step 2" : "--resume: model.config is {");
    fs::remove_all(older);
  }
}

TEST_F(Inputs, TheDigestOfTokensDependsOnTheTokensAlone) {
  std::vector<int64_t> digests;
  const auto train = [&](int ranks, bool processes, const std::string& more) {
    const std::string saved = scratch_.path(concat("saved-", digests.size()));
    const Outcome outcome =
        run_together(ranks, processes, concat(more, " --save-every 2 --save ", saved));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    digests.push_back(numbers_of(list_checkpoints(saved).at(0)).at("run/used_tokens"));
  };
  train(1, false, "--steps 4");
  train(3, false, "--steps 4");
  train(3, true, "--steps 4");
  train(1, false, "--steps 4 --accumulate 3");
  train(2, true, "--steps 4 --mesh tp=2");
  const std::string half = concat(" --resume ", list_checkpoints(scratch_.path("saved-0")).at(1));
  train(3, true, concat("--steps 4", half));
  for (const int64_t digest : digests) EXPECT_EQ(digest, digests[0]);
  train(1, false, "--steps 5");
  EXPECT_NE(digests.back(), digests[0]);
  train(1, false, "--steps 4 --seed 1");
  EXPECT_NE(digests.back(), digests[0]);
}

}  // namespace
}  // namespace weft::tests
