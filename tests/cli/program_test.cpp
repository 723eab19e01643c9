// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"

namespace weft::tests {
namespace {

class Program : public testing::Test {
 protected:
  void SetUp() override { text_ = scratch_.write("text.txt", repeating_text(400)); }
  /// A run that is as small as one can be.
  std::string small(const std::string& more) const {
    return concat("train --data ", text_, " --steps 2 --batch 3 --seq 16 ", more);
  }

  /// A run with each of these flags is refused with these words.
  void expect_refused(std::initializer_list<std::pair<const char*, const char*>> cases) const {
    for (const auto& [more, words] : cases) expect(2, small(more), words);
  }

  Scratch scratch_;
  std::string text_;
};

TEST_F(Program, TellsHowItIsUsed) {
  Outcome help = run_weft("--help");
  expect(help, 0, "train");
  for (const char* wrong : {"--steps 0", "--offload bogus", "--dtype x", "--no-such-flag"}) {
    const Outcome with_mistake = run_weft(concat("train ", wrong, " --help"));
    EXPECT_EQ(with_mistake.code, 0) << wrong;
    EXPECT_EQ(with_mistake.text, run_weft("train --help").text) << wrong;
  }
  Outcome train = run_weft("train --help");
  EXPECT_EQ(train.code, 0);
  for (const char* flag : {"--data", "--model", "--init", "--ranks", "--mesh", "--steps", "--batch",
                           "--seq", "--seed", "--metrics"}) {
    EXPECT_NE(train.text.find(flag), std::string::npos) << flag;
  }
  EXPECT_EQ(run_weft("--version").code, 0);
}

TEST_F(Program, RefusesWrongFlags) {
  expect(2, "", "a command is required");
  expect(2, "trian", "trian");
  expect(2, "train", "--data");
  expect_refused({{"--nonsense 3", "--nonsense"},
                  {"--steps many", "--steps"},
                  {"--steps 0", "--steps is 0, expected a whole number from 1"},
                  {"--batch -1", "--batch is -1, expected a whole number from 1"},
                  {"--lr 0", "--lr is 0, expected a finite number above 0"},
                  {"--ranks 0", "--ranks"}});
}

TEST_F(Program, RefusesImpossibleMeshes) {
  expect_refused(
      {{"--ranks 4 --mesh dp=5", "--mesh dp=5 has 5 ranks, expected 4, that of --ranks"},
       {"--mesh dp", "axis is \"dp\", expected a name and a size; write for example dp=4"},
       {"--mesh dp=0", "axis is \"dp=0\""},
       {"--mesh dp=65536,a=65536", "ranks or more, expected at most 1024"},
       {"--mesh 'dp=2, tp=2'", "axis is \" tp=2\""},
       {"--mesh dp=2,TP=2", "axis is TP, expected tp (tensor parallelism)"},
       {"--mesh tp=2,tp=2", "--mesh \"tp=2,tp=2\": two axes are called \"tp\", expected"},
       {"--strategy hsdp --mesh dp=2", "--mesh dp=2 has 1 axis that carries rows, expected 2"},
       {"--strategy zero9", "zero9"},
       {"--accumulate 2", "--batch is 3, expected a multiple of --accumulate, 2"},
       {"--sequence-way ring", "--sequence-way: --mesh is dp=1, expected one with an axis cp"},
       {"--sequence-parallel", "expected one with an axis tp"}});
  expect(2, "estimate --mesh dp=4 --world 8", "has 4 ranks, expected 8, that of --world");
  expect(2, "estimate --machine abacus", "--machine is \"abacus\"");
}

TEST_F(Program, RefusesAxesWhoseNamesMislead) {
  for (const char* name :
       {"PP",         "Dp",     "DP",      "dpp",      "ddp",           "pd",
        "fsdp",       "FSDP",   "hsdp",    "tensor",   "data",          "Replicate",
        "replicated", "shards", "shrad",   "TP",       "tpp",           "tp2",
        "et",         "mp",     "sp",      "pipeline", "data_parallel", "TensorParallel",
        "expert",     "model",  "sequence"}) {
    for (const std::string command : {"estimate", "train --data ."}) {
      expect(2, concat(command, " --mesh ", name, "=2"), concat("axis is ", name, ", expected tp"));
    }
  }
  expect(2, "estimate --mesh 'dp =2'", "axis is \"dp =2\", expected a name and a size");
  for (const char* name : {"dp", "replicate", "shard", "a", "rows", "nodes", "gpu", "hosts"}) {
    expect(0, concat("estimate --machine h100 --mesh ", name, "=2"), "2 ranks");
  }
}

TEST_F(Program, RefusesToOverwriteWhatItReads) {
  expect(2, concat("train --data ", scratch_.path(""), " --save ", scratch_.path("ck")),
         "is within --data");
  expect(2, concat("train --data . --metrics not/there/yet.jsonl"), "is within --data");
  const std::string file = scratch_.path("same.json");
  expect(2, small(concat("--trace ", file, " --metrics ", file)), "is also the file of --metrics");
  const std::string text = scratch_.write("own.txt", "some text");
  expect(2, concat("train --data ", text, " --trace ", text), "is also the file of --data");
}

TEST_F(Program, GoesOnWithItsMetrics) {
  const std::string metrics = scratch_.path("metrics.jsonl"), folder = scratch_.path("saved");
  const std::string run_flags = concat(" --metrics ", metrics, " --save ", folder);
  EXPECT_EQ(run_weft(small(run_flags)).code, 0);
  Outcome more = run_weft(small(concat(run_flags, " --resume ", folder, " --steps 4")));
  EXPECT_EQ(more.code, 0) << more.text;
  const auto lines = metrics_in(metrics);
  ASSERT_GE(lines.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(lines[i]["step"], i + 1);
  expect(0, small(concat(run_flags, " --resume ", folder, " --steps 4")),
         "4 steps are done already");
}

TEST_F(Program, WritesEachStepOnce) {
  const std::string metrics = scratch_.path("metrics.jsonl"), folder = scratch_.path("saved");
  const std::string flags = concat(" --metrics ", metrics, " --save ", folder);
  const auto resume = [&] {
    const Outcome more = run_weft(small(concat(flags, " --resume ", folder, " --steps 4")));
    EXPECT_EQ(more.code, 0) << more.text;
    const auto lines = metrics_in(metrics);
    EXPECT_EQ(lines.size(), 4u);
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["step"], i + 1);
    return more.text;
  };
  EXPECT_EQ(run_weft(small(flags + " --steps 2")).code, 0);
  const std::string two = bytes_in(metrics);
  // Steps after the checkpoint's, and a last line that was torn at any byte.
  const std::string later = R"({"step":3,"loss":1.5,"val_loss":null})";
  for (const std::string& added :
       {later + '\n', later + "\n" + later.substr(0, 20), later.substr(0, 1), later,
        later + "\n" + R"({"step":4,"loss":)"}) {
    fs::remove_all(folder);
    fs::remove(metrics);
    EXPECT_EQ(run_weft(small(flags + " --steps 2")).code, 0);
    std::ofstream(metrics, std::ios::app) << added;
    EXPECT_NE(resume().find("after step 2, from which the run goes on"), std::string::npos);
  }
  // A whole last line without its end is ended.
  fs::remove_all(folder);
  fs::remove(metrics);
  EXPECT_EQ(run_weft(small(flags + " --steps 2")).code, 0);
  fs::resize_file(metrics, fs::file_size(metrics) - 1);
  EXPECT_EQ(resume().find("removed"), std::string::npos);
}

TEST_F(Program, ReplacesNoFileOfAnEarlierRun) {
  const std::string metrics = scratch_.path("metrics.jsonl"), trace = scratch_.path("trace.json");
  const std::string run = small(concat("--metrics ", metrics, " --trace ", trace));
  EXPECT_EQ(run_weft(run).code, 0);
  const std::string before = bytes_in(metrics), traced = bytes_in(trace);
  expect(0, run, concat("the file of an earlier run is now ", metrics, ".1"));
  expect(0, run, concat("the file of an earlier run is now ", trace, ".2"));
  EXPECT_EQ(bytes_in(metrics + ".1"), before);
  EXPECT_EQ(bytes_in(trace + ".1"), traced);
  EXPECT_EQ(metrics_in(metrics).size(), metrics_in(metrics + ".2").size());
  const std::string longest = scratch_.write(std::string(255, 'm'), "text");
  expect(2, small("--metrics " + longest),
         "exists and cannot be renamed (File name too long), expected no file");
  expect(0, small("--metrics /dev/null"), "step");
  EXPECT_FALSE(fs::exists("/dev/null.1"));
  // A link, which stays, leads to the file.
  fs::create_symlink(metrics, scratch_.path("link"));
  expect(0, small("--metrics " + scratch_.path("link")), concat(metrics, ".3"));
  EXPECT_TRUE(fs::is_symlink(scratch_.path("link")));
}

TEST_F(Program, SaysThatAFractionIsAboveThePeak) {
  const std::string words = "MFU above 100 %: the peak";
  expect(0, small("--peak-tflops 1e-9"), words);
  EXPECT_EQ(run_weft(small("--peak-tflops 1000")).text.find(words), std::string::npos);
  // However long the sequences are, and whatever the layers see of them.
  scratch_.write(
      "windowed/config.json",
      std::string(kSmallLlama).replace(1, 20, R"("sliding_window":64,"model_type":"mistral")"));
  for (const std::string& model : {std::string("tiny"), scratch_.path("windowed")}) {
    for (const int seq : {64, 8192, 65536}) {
      const auto one = nlohmann::json::parse(
          run_weft(concat("estimate --json --machine h100 --dtype bf16 --batch 1 --model ", model,
                          " --seq ", seq))
              .text);
      EXPECT_LT(one["mfu"], 1) << model << ' ' << seq;
    }
  }
}

TEST_F(Program, AdvisesWhatWasNotGiven) {
  const std::string least = small("--memory 1kB ");
  expect(2, least,
         "or use more ranks, a higher --accumulate, --dtype bf16, --offload auto=disk:DIR");
  expect(2, least + "--dtype bf16 --accumulate 3 --offload auto=disk:" + scratch_.path(""),
         "or use more ranks\n");
  expect(2, least + "--activation-checkpointing full",
         "--activation-checkpointing none, so that --memory chooses");
}

TEST_F(Program, EstimatesWorldsThatAreNotThere) {
  Outcome outcome = run_weft(
      "estimate --model small --mesh replicate=64,shard=8 --strategy hsdp "
      "--batch 512 --machine h100 --dtype bf16 --schedule");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  for (const char* part :
       {"512 ranks", "optimizer", "over shard", "within a host", "over replicate", "across hosts",
        "tokens/s", "unshard model.embed_tokens"}) {
    EXPECT_NE(outcome.text.find(part), std::string::npos) << part << "\n" << outcome.text;
  }
}

TEST_F(Program, ComparesStrategies) {
  const std::string flags = "--model small --mesh replicate=64,shard=8 --batch 512 --machine h100";
  const Outcome table = run_weft("estimate " + flags + " --compare full_shard,hsdp");
  EXPECT_EQ(table.code, 0) << table.text;
  for (const char* part : {"strategy", "full_shard ", "hsdp ", "MFU", "tokens/s"}) {
    EXPECT_NE(table.text.find(part), std::string::npos) << part << "\n" << table.text;
  }
  const auto both = nlohmann::json::parse(
      run_weft("estimate " + flags + " --compare full_shard,hsdp --json").text);
  ASSERT_EQ(both.size(), 2u);
  const auto one =
      nlohmann::json::parse(run_weft("estimate " + flags + " --strategy hsdp --json").text);
  EXPECT_EQ(both[1], one);
  EXPECT_EQ(one["ranks"], 512);
  EXPECT_EQ(one["fits"], true);
  // 6 FLOP a parameter and token, and attention, of the data sheet's 66.9 TFLOP/s.
  EXPECT_GT(one["mfu"], 0);
  EXPECT_LT(one["mfu"], 1);
  EXPECT_GT(one["peak_bytes"], one["peak_bytes_of"]["parameters"]);
  expect(2, "estimate --compare full_shard,full", "name is \"full\"");
}

TEST_F(Program, RefusesBytesInAVocabularyOfATokenizer) {
  scratch_.write("many/config.json",
                 R"({"model_type": "llama", "hidden_size": 8, "intermediate_size": 8,
                     "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
                     "vocab_size": 5000, "rms_norm_eps": 1e-5, "max_position_embeddings": 64})");
  expect(2, small("--model " + scratch_.path("many")),
         "is text and the model, which has 5000 ids, no tokenizer, expected one; name it by "
         "--tokenizer, or make token files by weft tokenize");
  expect(0, small("--tokenizer bytes --model " + scratch_.path("many")), "step 1/");
}

/// All that can hold a model's weights, in the commands that use one.
TEST_F(Program, AModelIsARunAStepAnImportOrAHuggingFaceDirectory) {
  const auto only_checkpoint = [](const std::string& directory) {
    const auto found = list_checkpoints(directory);
    return found.size() == 1 ? found[0] : "";
  };
  const std::string hugging_face = std::string(WEFT_SOURCE_DIR) + "/tests/reference/grouped";
  const std::string imported = scratch_.path("in"), saved = scratch_.path("run");
  // A vocabulary of fewer tokens than there are bytes.
  const std::string text = scratch_.write("low.txt", std::string(4000, '\1') + "\n\2\3\4\5");
  const std::string flags =
      "train --tokenizer bytes --data " + text + " --batch 2 --seq 8 --steps 1 ";
  expect(0, "ckpt import " + hugging_face + " " + imported + " --ranks 2", "21 tensors");
  expect(0, flags + "--init " + hugging_face + " --save " + saved, "saved");
  std::string first;
  for (const std::string& model : {hugging_face, imported, only_checkpoint(imported)}) {
    const Outcome sampled = run_weft("sample " + model + " --prompt 01 --tokens 4");
    EXPECT_EQ(sampled.code, 0) << sampled.text;
    const Outcome trained = run_weft(flags + "--init " + model);
    EXPECT_EQ(trained.code, 0) << trained.text;
    const std::string loss = trained.text.substr(trained.text.find("loss "), 11);
    if (first.empty()) first = loss;
    EXPECT_EQ(loss, first) << model;
    expect(0, flags + "--resume " + model,
           "holds weights only; the run starts with them at step 1");
  }
  for (const std::string& model : {saved, only_checkpoint(saved)}) {
    expect(0, "sample " + model + " --prompt 0 --tokens 2", "2 added");
    expect(0, flags + "--init " + model, "step 1/1");
  }
  expect(0, "ckpt diff " + saved + " " + only_checkpoint(saved), "0 differences");
  expect(0, "ckpt verify " + saved, "COMPLETE");
  expect(0, "ckpt export " + saved + " " + scratch_.path("out"), "written");
  expect(0, "sample " + scratch_.path("out") + " --prompt 0 --tokens 2", "2 added");
  fs::create_directory(scratch_.path("empty"));
  expect(2, flags + "--init " + scratch_.path("empty"), "has no weights, expected a complete");
  expect(2, "sample " + scratch_.path("absent") + " --prompt a",
         "absent is missing or a file, expected a directory");
}

TEST_F(Program, RefusesDevicesThatAreNotThere) {
  for (const char* name : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:0,1", "CUDA"}) {
    expect(2, small(concat("--device ", name)), concat("device: name is \"", name));
  }
  expect(2, small("--device meta"), "--device is meta, expected cpu or cuda; see weft estimate");
  expect(2, small("--device cuda:99"), "device: cuda:99 does not exist");
  expect(2, concat("sample --resume ", scratch_.path(""), " --prompt a --device cuda:99"),
         "device: cuda:99 does not exist");
}

TEST_F(Program, TellsTheFractionOfAPeakThatIsSaid) {
  const std::string metrics = scratch_.path("metrics.jsonl");
  const auto told = [&](const std::string& more) {
    const Outcome outcome = run_weft(small(concat("--ranks 2 --metrics ", metrics, ' ', more)));
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_EQ(outcome.text.find("  MFU ") != std::string::npos, !more.empty()) << outcome.text;
    return metrics_in(metrics).at(0);
  };
  EXPECT_TRUE(told("")["mfu"].is_null());
  const auto line = told("--peak-tflops 0.5");
  // `tiny` takes 6 operations for each parameter outside the embedding, and those of attention.
  const int64_t block = 2 * 256 * 256 + 2 * 128 * 256 + 3 * 704 * 256 + 2 * 256;
  const int64_t parameters = 4 * block + 256 + 256 * 256;
  const auto operations = static_cast<double>(6 * parameters + 12 * 4 * 256 * 17 / 2);
  EXPECT_NEAR(line["mfu"].get<double>(),
              line["tokens_per_second"].get<double>() * operations / (2 * 0.5e12), 1e-12);
  expect(2, small("--peak-tflops -1"), "--peak-tflops is -1, expected a finite number above 0");
}

TEST_F(Program, RefusesFilesThatAreNotThereOrMalformed) {
  expect(2, "train --data /no/such/file", "/no/such/file");
  expect(2, concat("train --data ", scratch_.write("empty.txt", "")), "empty");
  expect(2, small("--model /no/such/config.json"), "/no/such/config.json");
  expect(2, small("--model " + scratch_.write("bad.json", "{\"hidden_size\": ")), "bad.json");
  expect(2, small("--init /no/such/folder"), "/no/such/folder");
  expect(2, small("--metrics /no/such/folder/metrics.jsonl"), "--metrics");
  expect(2, concat("train --data ", text_, " --seq 100000"), "tokens");
  const std::string init = std::string(WEFT_SOURCE_DIR) + "/tests/reference/heads";
  scratch_.write("hf/model.safetensors", "no header");
  std::filesystem::copy_file(init + "/config.json", scratch_.path("hf/config.json"));
  // The reference's vocabulary ends before the letters.
  std::string digits;
  for (int i = 0; i < 4000; ++i) digits += static_cast<char>('0' + i % 10);
  const std::string numbers =
      concat("train --tokenizer bytes --data ", scratch_.write("numbers.txt", digits),
             " --batch 2 --seq 8 --init ");
  expect(2, numbers + scratch_.path("hf"), "model.safetensors");
  expect(2, small("--model tiny --init " + init),
         "tensor \"model.embed_tokens.weight\" is [97, 32] but the parameter [256, 256]");
}

TEST_F(Program, TrainsAndWritesMetrics) {
  for (const char* ranks : {"1", "3"}) {
    const std::string metrics = scratch_.path("metrics.jsonl");
    Outcome outcome = run_weft(small(concat("--ranks ", ranks, " --sample 5 --metrics ", metrics)));
    ASSERT_EQ(outcome.code, 0) << outcome.text;
    EXPECT_NE(outcome.text.find("step 2/2"), std::string::npos) << outcome.text;
    EXPECT_NE(outcome.text.find("--- sample"), std::string::npos) << outcome.text;
    int64_t step = 0;
    for (const auto& json : metrics_in(metrics)) {
      EXPECT_EQ(json["step"], ++step);
      for (const char* key : {"loss", "lr", "grad_norm", "tokens_per_second", "seconds",
                              "bytes_moved", "peak_bytes"}) {
        EXPECT_TRUE(json[key].is_number()) << key;
      }
      EXPECT_TRUE(json.contains("val_loss"));
      EXPECT_EQ(json["bytes_moved"] > 0, ranks[0] != '1');
    }
    EXPECT_EQ(step, 2);
  }
}

TEST_F(Program, StartsFromAHuggingFaceModel) {
  const std::string init = std::string(WEFT_SOURCE_DIR) + "/tests/reference/grouped";
  // Its vocabulary is smaller than a byte: token shards would fit, text does not.
  expect(2, small("--init " + init), "is text and the model, which has 89 ids, no tokenizer");
  expect(2, small("--tokenizer bytes --init " + init), "vocabulary");
}

}  // namespace
}  // namespace weft::tests
