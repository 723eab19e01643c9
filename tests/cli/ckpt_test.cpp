// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

using tests::Outcome;
using tests::run_weft;

/// Runs the program on checkpoints and on training runs that are cut and taken up again.
class Ckpt : public testing::Test {
 protected:
  void SetUp() override {
    std::ostringstream text;
    for (int i = 0; i < 400; ++i) text << "line " << i << " of a text that repeats itself\n";
    text_ = scratch_.write("text.txt", text.str());
    std::ofstream(scratch_.path("model.json"))
        << R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":16,)"
           R"("intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4,)"
           R"("num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":64,)"
           R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
           R"("tie_word_embeddings":false})";
  }

  std::string train(const std::string& more) const {
    return "train --data " + text_ + " --model " + scratch_.path("model.json") +
           " --batch 12 --seq 16 " + more;
  }
  /// Losses by step.
  static std::map<int64_t, double> losses(const std::string& metrics) {
    std::map<int64_t, double> losses;
    std::ifstream file(metrics);
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      losses[json["step"].get<int64_t>()] = json["loss"].get<double>();
    }
    return losses;
  }
  void expect(int code, const std::string& arguments, const std::string& words) const {
    const Outcome outcome = run_weft(arguments);
    EXPECT_EQ(outcome.code, code) << arguments << "\n" << outcome.text;
    EXPECT_NE(outcome.text.find(words), std::string::npos) << arguments << "\n" << outcome.text;
  }
  static std::string only_checkpoint(const std::string& directory) {
    std::string found;
    for (const auto& entry : fs::directory_iterator(directory)) found = entry.path().string();
    return found;
  }

  static std::string newest(const std::string& directory) {
    std::string found;
    for (const auto& entry : fs::directory_iterator(directory)) {
      found = std::max(found, entry.path().string());
    }
    return found;
  }

  Scratch scratch_;
  std::string text_;
};

TEST_F(Ckpt, SaysWhatIsWrongWithItsFlags) {
  EXPECT_EQ(run_weft("ckpt --help").code, 0);
  for (const char* command : {"ls", "verify", "diff", "reshard", "export", "import"}) {
    EXPECT_EQ(run_weft(std::string("ckpt ") + command + " --help").code, 0) << command;
    EXPECT_EQ(run_weft(std::string("ckpt ") + command).code, 2) << command;
    expect(2, std::string("ckpt ") + command + " /no/such/thing /tmp/x", "");
  }
  expect(2, "ckpt", "subcommand");
  expect(2, "ckpt verify " + scratch_.path("absent"), "is no directory of checkpoints");
  expect(2, "ckpt ls " + scratch_.path("absent"), "is not there");
  expect(2, "ckpt reshard " + scratch_.path("absent") + " " + scratch_.path("to"), "--ranks");
  expect(2, "ckpt verify x --threads 0", "--threads");
  expect(2, "ckpt verify x --ranks 2", "--ranks");
  expect(2, train("--save-every 2"), "--save-every needs --save DIR");
  expect(2, train("--keep -1 --save " + scratch_.path("s")), "--keep is -1");
  expect(2, train("--resume " + scratch_.path("absent")), "is no directory");
}

TEST_F(Ckpt, ImportsAndExportsBitByBit) {
  const std::string model = std::string(WEFT_SOURCE_DIR) + "/tests/reference/grouped";
  expect(0, "ckpt import " + model + " " + scratch_.path("in") + " --ranks 3", "21 tensors");
  const std::string imported = only_checkpoint(scratch_.path("in"));
  expect(0, "ckpt verify " + scratch_.path("in"), "COMPLETE");
  expect(0, "ckpt ls " + imported, "model/lm_head.weight");
  expect(0, "ckpt reshard " + imported + " " + scratch_.path("two") + " --ranks 2", "2 ranks");
  expect(0, "ckpt diff " + imported + " " + only_checkpoint(scratch_.path("two")),
         "21 tensors compared, 0 differences");
  scratch_.write("out/tokenizer.json", "mine");
  const std::string out = scratch_.path("out");
  expect(0, "ckpt export " + imported + " " + out + " --threads 3", "written");
  EXPECT_FALSE(fs::exists(out + "/config.json"));
  expect(0, "ckpt diff " + out + " " + model, "21 tensors compared, 0 differences");
  std::string tokenizer;
  std::ifstream(out + "/tokenizer.json") >> tokenizer;
  EXPECT_EQ(tokenizer, "mine");
  expect(2, "ckpt export " + imported + " " + out, "model.safetensors already");
  expect(2, "ckpt export " + imported + " " + scratch_.path("n") + " --prefix none/",
         "no tensor whose key begins with \"none/\"");
  // A changed element is found, and how large the change is.
  std::fstream file(out + "/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-4, std::ios::end).write("\0\0\x80\x7f", 4);
  file.close();
  expect(1, "ckpt diff " + out + " " + model, "1 difference;");
}

TEST_F(Ckpt, ReportsWhatIsBroken) {
  const std::string model = std::string(WEFT_SOURCE_DIR) + "/tests/reference/heads";
  expect(0, "ckpt import " + model + " " + scratch_.path("in") + " --ranks 2", "");
  const std::string file =
      only_checkpoint(scratch_.path("in")) + "/rank-00001-of-00002.safetensors";
  const auto size = fs::file_size(file);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<std::streamoff>(size - 1))
      .put(1);
  expect(1, "ckpt verify " + scratch_.path("in"), "CORRUPT");
  expect(1, "ckpt verify " + scratch_.path("in"), "block 0 (tensor ");
  fs::remove(file);
  expect(1, "ckpt verify " + scratch_.path("in"), "lacks 1 of 2 files: rank-00001-of-00002");
  expect(0, "ckpt ls " + scratch_.path("in"), "INCOMPLETE");
}

TEST_F(Ckpt, GoesOnAsIfNeverStopped) {
  const std::string saved = scratch_.path("saved"), whole = scratch_.path("whole.jsonl");
  const std::string same = "--mesh dp=2,tp=2 --activation-checkpointing full ";
  expect(0, train("--steps 8 " + same + "--save " + saved + " --save-every 3 --metrics " + whole),
         "saved ");
  const std::map<int64_t, double> before = losses(whole);
  ASSERT_EQ(before.size(), 8u);
  // The newest two are broken: it says so and goes on from step 3.
  for (const auto& entry : fs::directory_iterator(saved)) {
    if (entry.path().string().find("step-00000003") != std::string::npos) continue;
    fs::remove(entry.path() / "rank-00000-of-00004.safetensors");
  }
  const std::string meshes[] = {same,
                                "--mesh dp=1 ",
                                "--mesh dp=3 ",
                                "--mesh dp=4 ",
                                "--mesh tp=2 ",
                                "--mesh dp=4 --strategy zero1 ",
                                "--mesh dp=2 --strategy zero2 ",
                                "--mesh dp=3 --strategy ddp ",
                                "--mesh a=2,b=2 --strategy hsdp "};
  for (const std::string& mesh : meshes) {
    const std::string metrics = scratch_.path("again.jsonl");
    const Outcome outcome =
        run_weft(train("--steps 8 " + mesh + "--resume " + saved + " --metrics " + metrics));
    EXPECT_EQ(outcome.code, 0) << mesh << outcome.text;
    EXPECT_NE(outcome.text.find("which is INCOMPLETE"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("after step 3"), std::string::npos) << outcome.text;
    const std::map<int64_t, double> after = losses(metrics);
    ASSERT_EQ(after.size(), 5u) << mesh;
    for (const auto& [step, loss] : after) {
      EXPECT_NEAR(loss, before.at(step), mesh == same ? 0 : 1e-5 * before.at(step))
          << mesh << "step " << step;
    }
  }
  expect(2, train("--steps 6 --seed 7 --resume " + saved),
         "the checkpoint's run has seed 0 but this run 7");
  fs::create_directory(scratch_.path("none"));
  expect(0, train("--steps 1 --resume " + scratch_.path("none")), "has no complete checkpoint");
}

TEST_F(Ckpt, KeepsRunsApart) {
  const std::string saved = scratch_.path("runs/a"), once = train("--mesh dp=2 --save " + saved);
  const Outcome first = run_weft(once + " --steps 4 --save-every 2");
  EXPECT_EQ(first.code, 0) << first.text;
  // One line a save.
  for (const char* step : {"step-00000002", "step-00000004"}) {
    const std::string line = "saved " + saved + "/" + step;
    EXPECT_EQ(first.text.find(line), first.text.rfind(line)) << first.text;
    EXPECT_NE(first.text.find(line), std::string::npos) << first.text;
  }
  expect(2, once + " --steps 1", "holds 2 checkpoints of another run; go on from there with");
  expect(0, once + " --steps 5 --resume " + saved, "after step 4");
  expect(2, train("--steps 1 --save " + saved + " --resume " + scratch_.root()),
         "holds 3 checkpoints of another run");
  // One checkpoint of it will do; and where none is complete there is nothing to go on from.
  const std::string last = newest(saved);
  expect(0, once + " --steps 6 --resume " + last, "after step 5");
  expect(2, once + " --steps 7 --resume " + last, "which is newer than --resume " + last);
  for (const auto& entry : fs::directory_iterator(saved)) {
    fs::remove(entry.path() / "rank-00000-of-00002.safetensors");
  }
  expect(1, once + " --steps 7 --resume " + saved, "none of the 4 checkpoints in ");
  expect(1, once + " --steps 7 --resume " + last, "is INCOMPLETE: ");
  expect(1, "sample --prompt x --resume " + saved, "which is INCOMPLETE");
}

TEST_F(Ckpt, ExportsARunThatTrainsOn) {
  const std::string saved = scratch_.path("saved"), out = scratch_.path("out");
  expect(0, train("--steps 2 --mesh dp=2 --save " + saved), "saved ");
  expect(0, "ckpt export " + saved + " " + out + " --threads 2", "written");
  std::ifstream written(out + "/config.json"), given(scratch_.path("model.json"));
  const auto config = nlohmann::json::parse(written), expected = nlohmann::json::parse(given);
  for (const auto& [key, value] : expected.items()) EXPECT_EQ(config[key], value) << key;
  EXPECT_EQ(config["head_dim"], 4);
  EXPECT_EQ(config["torch_dtype"], "float32");
  // What it says and holds is enough; and what was trained is what is there.
  const std::string data = "train --data " + text_ + " --batch 12 --seq 16 --steps 1 --init " + out;
  const std::string again = scratch_.path("again");
  expect(0, data + " --lr 1e-30 --mesh dp=3 --save " + again, "saved ");
  expect(0, "ckpt export " + again + " " + scratch_.path("out2"), "written");
  expect(0, "ckpt diff --tolerance 1e-20 " + out + " " + scratch_.path("out2"), " 0 differences");
  // A failed one leaves nothing, and one that is there as it was.
  const std::string file = out + "/model.safetensors";
  const auto size = fs::file_size(file);
  const Outcome failed =
      tests::run_command(std::string("sh -c 'trap \"\" XFSZ; ulimit -f 8; exec ") + WEFT_PROGRAM +
                         " ckpt export " + saved + " " + scratch_.path("full") + "' 2>&1");
  EXPECT_EQ(failed.code, 1) << failed.text;
  EXPECT_TRUE(fs::is_empty(scratch_.path("full")));
  EXPECT_EQ(fs::file_size(file), size);
}

TEST_F(Ckpt, CallsNoCheckpointBadThatCouldNotBeRead) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer opens a pipe to look at an object, and calls the object wrong";
#endif
  const std::string saved = scratch_.path("saved");
  expect(0, train("--steps 1 --mesh dp=2 --save " + saved), "saved ");
  const std::string command =
      std::string("sh -c 'ulimit -n FEW; exec ") + WEFT_PROGRAM + " ckpt ls " + saved + "' 2>&1";
  bool refused = false;
  for (int few = 3; few < 12; ++few) {
    std::string limited = command;
    limited.replace(limited.find("FEW"), 3, std::to_string(few));
    const Outcome outcome = tests::run_command(limited);
    EXPECT_EQ(outcome.text.find("CORRUPT"), std::string::npos) << outcome.text;
    refused |= outcome.code == 1 && outcome.text.find("Too many open files") != std::string::npos;
  }
  EXPECT_TRUE(refused);
}

TEST_F(Ckpt, ContinuesATextAlikeOnAnyRanks) {
  const std::string saved = scratch_.path("saved");
  expect(0, train("--steps 4 --mesh dp=3 --save " + saved), "saved ");
  std::string texts[2];
  for (const int ranks : {1, 2}) {
    const Outcome outcome =
        run_weft("sample --resume " + saved + " --prompt 'line 1' --tokens 12 --temperature 0" +
                 " --ranks " + std::to_string(ranks));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_NE(outcome.text.find("12 added at "), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find(" tokens/s"), std::string::npos) << outcome.text;
    texts[ranks - 1] = outcome.text.substr(0, outcome.text.find("weft: "));
  }
  EXPECT_TRUE(texts[0].starts_with("line 1")) << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
  expect(2, "sample --resume " + saved + " --prompt x --ranks 3", "which the 3 ranks");
  expect(2, "sample --resume " + saved + " --prompt ''", "--prompt is empty");
  expect(2, "sample --resume " + saved + " --prompt x --tokens 0", "--tokens is 0");
  expect(2, "sample --resume " + scratch_.path("absent") + " --prompt x", "is no directory");
}

/// The newest has a bad byte in its last block, which only loading reads.
TEST_F(Ckpt, ResumesFromAnOlderOneWhenTheNewestHasABadByte) {
  const std::string saved = scratch_.path("saved");
  expect(0, train("--steps 4 --save-every 2 --mesh dp=2 --save " + saved), "saved");
  fs::path newest;
  for (const auto& entry : fs::directory_iterator(saved)) {
    if (entry.path().string().find("step-00000004") != std::string::npos) newest = entry.path();
  }
  const fs::path file = newest / "rank-00001-of-00002.safetensors";
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  bytes.seekg(-1, std::ios::end);
  const char last = static_cast<char>(bytes.get() ^ 1);
  bytes.seekp(-1, std::ios::end);
  bytes.put(last);
  bytes.close();
  expect(0, train("--steps 5 --mesh dp=2 --resume " + saved), "after step 2");
  expect(0, train("--steps 5 --mesh dp=1 --resume " + saved), "passed over");
  // Nor is it the one that is kept.
  expect(0, train("--steps 5 --keep 1 --resume " + saved + " --save " + saved), "after step 2");
  fs::remove_all(list_checkpoints(saved)[0]);
  expect(0, train("--steps 5 --mesh dp=2 --resume " + saved), "after step 2");
}

/// Without --model it is the checkpoint's.
TEST_F(Ckpt, ResumesTheModelThatWasSaved) {
  const std::string saved = scratch_.path("saved");
  expect(0, train("--steps 2 --save " + saved), "saved");
  const std::string run = "train --data " + text_ + " --batch 12 --seq 16 --steps 3 --resume ";
  expect(0, run + saved, "after step 2");
}

/// Its exit code, when `signal` is called with its process once a checkpoint is there.
template <class Signal>
int code_of_signalled(const std::string& command, const std::string& saved, const Signal& signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  // While it trains and saves every other step.
  std::error_code ignored;
  for (int i = 0; i < 600 && (!fs::exists(saved, ignored) || fs::is_empty(saved, ignored)); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  signal(child);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Ckpt, SavesWhenItIsTerminated) {
  for (const int times : {1, 3}) {
    const std::string saved = scratch_.path(concat("saved", times));
    const std::string command =
        concat("exec ", WEFT_PROGRAM, " ",
               train("--steps 1000000 --mesh dp=2 --save-every 2 --keep 2 --save " + saved), " >",
               scratch_.path("log"), " 2>&1");
    const int code = code_of_signalled(command, saved, [&](pid_t child) {
      // All at once, as when a launcher passes on what its ranks were sent as well.
      for (int i = 0; i < times; ++i) ::kill(child, SIGTERM);
    });
    EXPECT_EQ(code, 128 + SIGTERM) << times;
    expect(0, "ckpt verify " + saved, "COMPLETE");
    expect(0, train("--steps 1 --mesh dp=2 --resume " + saved), "resumed from");
  }
}

TEST_F(Ckpt, SavesWhenOneRankIsSignalled) {
  const std::string saved = scratch_.path("saved"), rank = scratch_.path("rank");
  const std::string command =
      concat("exec ", WEFT_PROGRAM, " run -n 2 -- sh -c 'echo $$ >", rank, "-$WEFT_RANK; exec ",
             WEFT_PROGRAM, " ",
             train("--steps 1000000 --mesh dp=2 --save-every 2 --keep 2 --save " + saved), "' >",
             scratch_.path("log"), " 2>&1");
  const int code = code_of_signalled(command, saved, [&](pid_t) {
    pid_t second = 0;
    std::ifstream(rank + "-1") >> second;
    ASSERT_GT(second, 0);
    ::kill(second, SIGUSR2);
  });
  EXPECT_EQ(code, 128 + SIGUSR2);
  expect(0, "ckpt verify " + saved, "COMPLETE");
}

TEST_F(Ckpt, RefusesOtherDataOnAnotherRank) {
  for (const char rank : {'0', '1'}) {
    const std::string directory = scratch_.path(concat("data-", rank));
    fs::create_directory(directory);
    std::ofstream(directory + "/a") << std::string(20000, rank);
  }
  const std::string data = scratch_.path("data");
  const std::string command = concat("run -n 2 -- sh -c 'cd ", data, "-$WEFT_RANK && exec ",
                                     WEFT_PROGRAM, " train --data . --batch 4 --seq 16 --steps 2'");
  expect(2, command, "rank 1 reads ");
}

}  // namespace
}  // namespace weft
