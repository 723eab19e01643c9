// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft::tests {
namespace {

/// Runs the program on checkpoints and on training runs that are cut and taken up again.
class Ckpt : public testing::Test {
 protected:
  void SetUp() override {
    text_ = scratch_.write("text.txt", repeating_text(400));
    scratch_.write("model.json", kSmallLlama);
  }

  std::string train(const std::string& more) const {
    return "train --data " + text_ + " --model " + scratch_.path("model.json") +
           " --batch 12 --seq 16 " + more;
  }
  /// Losses by step.
  static std::map<int64_t, double> losses(const std::string& metrics) {
    std::map<int64_t, double> losses;
    for (const auto& json : metrics_in(metrics)) {
      losses[json["step"].get<int64_t>()] = json["loss"].get<double>();
    }
    return losses;
  }
  static std::string only_checkpoint(const std::string& directory) {
    std::string found;
    for (const std::string& path : list_checkpoints(directory)) found = path;
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
  expect(2, "ckpt", "a command is required; see weft ckpt --help");
  expect(2, "ckpt verify " + scratch_.path("absent"), "expected a directory of checkpoints");
  expect(2, "ckpt ls " + scratch_.path("absent"), "does not exist");
  expect(2, "ckpt reshard " + scratch_.path("absent") + " " + scratch_.path("to"), "--ranks");
  expect(2, "ckpt verify x --threads 0", "--threads");
  expect(2, "ckpt verify x --ranks 2", "--ranks");
  expect(2, train("--save-every 2"), "--save is empty, expected a directory for --save-every");
  expect(2, train("--keep -1 --save " + scratch_.path("s")), "--keep is -1");
  expect(2, train("--resume " + scratch_.path("absent")),
         "is missing or a file, expected a directory");
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
  EXPECT_TRUE(fs::exists(out + "/config.json"));
  expect(0, "ckpt diff " + out + " " + model, "21 tensors compared, 0 differences");
  std::string tokenizer;
  std::ifstream(out + "/tokenizer.json") >> tokenizer;
  EXPECT_EQ(tokenizer, "mine");
  expect(2, "ckpt export " + imported + " " + out,
         "holds model.safetensors, expected a directory without a model");
  expect(2, "ckpt export " + imported + " " + scratch_.path("n") + " --prefix none/",
         "has no tensor to export, expected keys that begin with \"none/\"");
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
  // The newest two are broken: the run reports them and resumes from step 3.
  for (const std::string& path : list_checkpoints(saved)) {
    if (path.find("step-00000003") != std::string::npos) continue;
    fs::remove(path + "/rank-00000-of-00004.safetensors");
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
         "--resume: seed is 7, the checkpoint's is 0");
  fs::create_directory(scratch_.path("none"));
  expect(0, train("--steps 1 --resume " + scratch_.path("none")), "has no complete checkpoint");
}

/// One command starts a run and takes it up again, whatever an interruption left.
TEST_F(Ckpt, StartsAndRestartsByOneCommand) {
  const std::string saved = scratch_.path("runs/new");
  const std::string once = train("--mesh dp=2 --steps 3 --save " + saved + " --resume " + saved);
  // A name with the same meaning is the same directory.
  const std::string other =
      train("--mesh dp=2 --steps 3 --save " + saved + "/ --resume " + scratch_.path("runs/./new"));
  expect(0, once, "the run starts at step 1");
  expect(0, once, "after step 3");
  fs::remove_all(saved);
  expect(0, other, "the run starts at step 1");
  // A kill in the first save leaves files of some ranks or of none, and the save was not noted.
  fs::remove(fs::path(newest(saved)) / "rank-00001-of-00002.safetensors");
  for (const auto& entry : fs::directory_iterator(saved)) {
    if (entry.is_regular_file()) fs::remove(entry.path());
  }
  fs::create_directory(saved + "/step-00000002-0123456789abcdef");
  std::ofstream(saved + "/step-00000002-0123456789abcdef/.rank-00000-of-00002.safetensors.tmp");
  const std::string remains = newest(saved);
  const Outcome outcome = run_weft(once);
  expect(outcome, 0, "passed over " + remains + ", which is INCOMPLETE");
  EXPECT_NE(outcome.text.find("the run starts at step 1"), std::string::npos) << outcome.text;
  EXPECT_TRUE(fs::exists(remains));
  expect(0, once, "after step 3");
  // A directory that is not also --save is an error, and so is complete work that is damaged.
  expect(2, train("--resume " + scratch_.path("absent")),
         "is missing or a file, expected a directory");
  expect(2, train("--resume " + scratch_.path("absent") + " --save " + scratch_.path("other")),
         "is missing or a file, expected a directory");
  EXPECT_FALSE(fs::exists(scratch_.path("other")));
  for (const std::string& path : list_checkpoints(saved)) {
    if (inspect_checkpoint(path, {.depth = Inspection::headers}).verdict != Verdict::complete)
      continue;
    std::ofstream(path + "/rank-00000-of-00002.safetensors") << "short";
  }
  expect(1, once, "none of the 3 checkpoints in ");
}

/// A checkpoint that was complete once and lost files is not taken for an interrupted save.
TEST_F(Ckpt, DoesNotBeginAgainWhereFilesWereLost) {
  const std::string saved = scratch_.path("saved");
  const std::string once = train("--mesh dp=2 --steps 3 --save " + saved + " --resume " + saved);
  for (const int lost : {1, 2}) {
    expect(0, once, "the run starts at step 1");
    const fs::path path = only_checkpoint(saved);
    for (int rank = 2 - lost; rank < 2; ++rank) {
      fs::remove(path / concat("rank-0000", rank, "-of-00002.safetensors"));
    }
    // Two requests print it twice.
    for (int i = 0; i < 2; ++i) expect(1, once, "; --allow-change start begins at step 1");
    expect(1, "run -n 2 -- " WEFT_PROGRAM " " + once, "none of the 1 checkpoints in ");
    expect(0, once + " --allow-change start", "the run starts at step 1");
    expect(0, once, "after step 3");
    fs::remove_all(saved);
  }
  // Two of one run whose files were purged: the first was complete before the second was begun.
  for (const char* step : {"step-00000002", "step-00000004"}) {
    fs::create_directories(saved + "/" + step + "-0123456789abcdef");
  }
  expect(1, once, "none of the 2 checkpoints in ");
}

/// A lease that another host may hold for a minute is waited for.
TEST_F(Ckpt, WaitsForALeaseWithoutHarm) {
  const std::string saved = scratch_.path("saved"), metrics = scratch_.path("metrics");
  const auto hold = [&](int lifetime) {
    fs::remove_all(saved);
    scratch_.write("saved/.lease-00000001", concat(R"({"state":"held","host":"elsewhere","pid":1,)",
                                                   R"("lifetime_ms":)", lifetime, "}"));
  };
  const auto begin = [&](const std::string& before, const std::string& flags) {
    const std::string log = scratch_.path("log");
    fs::remove(log);
    const pid_t child = ::fork();
    if (child == 0) {
      const std::string command =
          concat("exec ", WEFT_PROGRAM, " ", before, flags, " --save ", saved, " >", log, " 2>&1");
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 600; ++i) {
      if (bytes_in(log).find("waiting at most") != std::string::npos) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return child;
  };
  const auto end = [](pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  };
  // A signal ends the wait, and the metrics of the job that saves there stay.
  scratch_.write("metrics", "of another job\n");
  const std::string run = train("--steps 1 --deadline 2 --metrics " + metrics);
  const std::string job = "run -n 2 -- " WEFT_PROGRAM " ";
  for (const std::string& before : {std::string(), job}) {
    hold(3'600'000);
    const pid_t child = begin(before, run);
    ::kill(child, SIGTERM);
    EXPECT_EQ(end(child), 128 + SIGTERM);
    std::string text;
    std::getline(std::ifstream(metrics) >> std::ws, text);
    EXPECT_EQ(text, "of another job");
  }
  // The other ranks wait as long.
  hold(5'000);
  EXPECT_EQ(end(begin(job, run)), 0);
  // Checkpoints that another run saves meanwhile are not mixed with it.
  const std::string other = scratch_.path("other");
  expect(0, train("--steps 1 --save " + other), "saved ");
  hold(5'000);
  const pid_t child = begin("", train("--steps 1"));
  const fs::path path = only_checkpoint(other);
  fs::rename(path, fs::path(saved) / path.filename());
  EXPECT_EQ(end(child), 2);
}

TEST_F(Ckpt, SavesNothingThatIsNotFiniteUnlessTold) {
  // The update of the last step makes NaN of a finite loss.
  const std::string saved = scratch_.path("saved"), none = scratch_.path("none");
  expect(1, train("--steps 1 --lr 1e38 --save " + none), "the validation loss at step 1 is ");
  EXPECT_TRUE(list_checkpoints(none).empty());
  expect(1, train("--steps 1 --lr 1e38 --save-non-finite --save " + none), "saved ");
  expect(0, "ckpt ls " + none, ", finite elements: all but 12112, the first in tensor \"model/");
  expect(0, "ckpt verify " + none, ", finite elements: all but 12112, the first in tensor ");
  expect(0, "ckpt ls " + only_checkpoint(none), "\nfinite elements: all but 12112");
  const std::string data = std::string(WEFT_SOURCE_DIR) + "/tests/checkpoint/data/";
  expect(0, "ckpt ls " + data + "dcp", "\nfinite elements: unknown");
  expect(0, "ckpt ls " + data + "format-1", ", finite elements: unknown");

  // A moment of a row that no text uses: each loss stays finite.
  expect(0, train("--mesh dp=2 --steps 2 --save-every 1 --save " + saved), "saved ");
  const std::string moment = "optimizer/model.embed_tokens.weight.m", last = newest(saved);
  run_ranks(1, [&](Communicator world) {
    StateDict state = state_in(last);
    fill_(slice(state.tensors.at(moment), 0, 255, 256), std::nan(""));
    fs::remove_all(last);
    CheckpointSaver(world, saved).save(2, state);
  });
  const std::string poisoned = newest(saved), more = train("--mesh dp=2 --steps 3 --resume ");
  expect(0, more + saved, "passed over " + poisoned + ", which is COMPLETE: finite elements: all");
  expect(0, more + saved, "after step 1");
  // If it is the best that there is, it is loaded, and not passed over.
  const std::string best = scratch_.path("best");
  fs::create_directory(best);
  fs::copy(poisoned, best + poisoned.substr(poisoned.rfind('/')), fs::copy_options::recursive);
  for (const char* flags : {"", " --allow-change start"}) {
    const Outcome loads = run_weft(more + best + flags);
    EXPECT_NE(loads.text.find("warning: loading "), std::string::npos) << loads.text;
    EXPECT_EQ(loads.text.find("passed over"), std::string::npos) << loads.text;
  }
  expect(0, more + poisoned,
         "warning: loading " + poisoned + ", finite elements: all but 16, the first in tensor \"" +
             moment + "\"");
  const std::string into = scratch_.path("into");
  expect(1, more + poisoned + " --save " + into,
         "save: tensor \"model/model.embed_tokens.weight\" at "
         "step 3 is not finite on rank ");
  EXPECT_EQ(newest_complete_checkpoint(into), "");
  expect(0, more + poisoned + " --save-non-finite --save " + scratch_.path("told"), "saved ");
  expect(0, "ckpt ls " + scratch_.path("told"), "all but 32, ");
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
  expect(2, once + " --steps 1",
         "holds 2 checkpoints of another run, expected none; go on from there with");
  expect(0, once + " --steps 5 --resume " + saved, "after step 4");
  expect(2, train("--steps 1 --save " + saved + " --resume " + scratch_.root()),
         "holds 3 checkpoints of another run");
  // One checkpoint of it will do; and where none is complete there is nothing to go on from.
  const std::string last = newest(saved);
  expect(0, once + " --steps 6 --resume " + last, "after step 5");
  expect(2, once + " --steps 7 --resume " + last, "expected nothing newer than --resume " + last);
  for (const std::string& path : list_checkpoints(saved)) {
    fs::remove(path + "/rank-00000-of-00002.safetensors");
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
  // The exported config and weights suffice to train, and the weights are the trained ones.
  const std::string data = "train --data " + text_ + " --batch 12 --seq 16 --steps 1 --init " + out;
  const std::string again = scratch_.path("again");
  expect(0, data + " --lr 1e-30 --mesh dp=3 --save " + again, "saved ");
  expect(0, "ckpt export " + again + " " + scratch_.path("out2"), "written");
  expect(0, "ckpt diff --tolerance 1e-20 " + out + " " + scratch_.path("out2"), " 0 differences");
  // A failed export leaves no new file, and an existing one unchanged.
  const std::string file = out + "/model.safetensors";
  const auto size = fs::file_size(file);
  const Outcome failed =
      run_command(std::string("sh -c 'trap \"\" XFSZ; ulimit -f 8; exec ") + WEFT_PROGRAM +
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
    const Outcome outcome = run_command(limited);
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
    expect(outcome, 0, "12 added at ");
    EXPECT_NE(outcome.text.find(" tokens/s"), std::string::npos) << outcome.text;
    texts[ranks - 1] = outcome.text.substr(0, outcome.text.find("weft: "));
  }
  EXPECT_TRUE(texts[0].starts_with("line 1")) << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
  // Heads that the ranks do not divide are cut unevenly.
  expect(0, "sample --resume " + saved + " --prompt x --ranks 3", "64 added at ");
  expect(2, "sample --resume " + saved + " --prompt ''", "--prompt is empty");
  expect(2, "sample --resume " + saved + " --prompt x --tokens 0", "--tokens is 0");
  expect(2, "sample --resume " + scratch_.path("absent") + " --prompt x",
         "is missing or a file, expected a directory");
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

/// The default of --model is the checkpoint's.
TEST_F(Ckpt, ResumesTheModelThatWasSaved) {
  const std::string saved = scratch_.path("saved");
  expect(0, train("--steps 2 --save " + saved), "saved");
  const std::string run = "train --data " + text_ + " --batch 12 --seq 16 --steps 3 --resume ";
  expect(0, run + saved, "after step 2");
}

/// Exit code of a command when `signal` gets its process id once a checkpoint exists.
template <class Signal>
int code_of_signalled(const std::string& command, const std::string& saved, const Signal& signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  // The checks run while it trains and saves every other step.
  std::error_code ignored;
  const auto is_saving = [&] {
    for (const auto& entry : fs::directory_iterator(saved, ignored)) {
      if (entry.path().filename().string().starts_with("step-")) return true;
    }
    return false;
  };
  for (int i = 0; i < 600 && !is_saving(); ++i) {
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

TEST_F(Ckpt, SavesWhenItsTerminalIsClosed) {
  const std::string run = train("--steps 1000000 --mesh dp=2 --save-every 2 --keep 2 --save ");
  for (const std::string& before : {std::string(), "run -n 2 -- " + std::string(WEFT_PROGRAM)}) {
    const std::string saved = scratch_.path(concat("saved", before.size()));
    const std::string command =
        concat("exec ", WEFT_PROGRAM, ' ', before, ' ', run, saved, " >/dev/null 2>&1");
    const int code = code_of_signalled(command, saved, [&](pid_t child) { ::kill(child, SIGHUP); });
    EXPECT_EQ(code, 128 + SIGHUP) << before;
    expect(0, "ckpt verify " + saved, "COMPLETE");
  }
  // nohup: it goes on.
  const std::string saved = scratch_.path("nohup");
  const std::string command =
      concat("exec nohup ", WEFT_PROGRAM, ' ', run, saved, " >/dev/null 2>&1");
  const int code = code_of_signalled(command, saved, [&](pid_t child) {
    ::kill(child, SIGHUP);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    EXPECT_EQ(::kill(child, SIGTERM), 0);
  });
  EXPECT_EQ(code, 128 + SIGTERM);
}

/// The first is refused a directory that is in use; the second takes it from a job that was
/// stopped, which ends when it goes on.
TEST_F(Ckpt, TwoJobsDoNotMixInOneDirectory) {
  const std::string saved = scratch_.path("saved"), log = scratch_.path("log");
  const std::string flags = "--mesh dp=2 --save-every 2 --keep 2 --lease-seconds 8 --save " + saved;
  const std::string second = train("--steps 1 " + flags + " --resume " + saved);
  const std::string command = concat("unset SLURM_JOB_ID WEFT_JOB; exec ", WEFT_PROGRAM, " ",
                                     train("--steps 1000000 " + flags), " >", log, " 2>&1");
  const int code = code_of_signalled(command, saved, [&](pid_t child) {
    expect(2, second, concat("is being saved to by process ", child, " of host "));
    expect(2, "run -n 2 -- " WEFT_PROGRAM " " + second, "is being saved to by process ");
    ::kill(child, SIGSTOP);
    expect(0, second, "; waiting at most 8 s for a sign of life");
    ::kill(child, SIGCONT);
  });
  EXPECT_EQ(code, 1);
  EXPECT_TRUE(
      has(bytes_in(log), "weft: save: the lease of " + saved + " was taken over by process "));
  // Nobody waits for a job that ended.
  const Outcome outcome = run_weft(second);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(outcome.text.find("waiting"), std::string::npos) << outcome.text;
  // A save that the stop interrupted stays incomplete.
  for (const std::string& path : list_checkpoints(saved)) {
    const Verdict verdict = inspect_checkpoint(path).verdict;
    EXPECT_TRUE(verdict == Verdict::complete || verdict == Verdict::incomplete) << path;
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
  expect(2, command, "rank 1 has data ");
}

}  // namespace
}  // namespace weft::tests
