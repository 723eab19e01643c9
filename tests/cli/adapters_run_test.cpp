// SPDX-License-Identifier: Apache-2.0
// Runs that train adapters, and what becomes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/adapters.h"
#include "weft/hugging_face.h"
#include "weft/peft.h"
#include "weft/transformer.h"

namespace weft::tests {
namespace {

class AdaptersRun : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 300; ++i) text += concat("LINE ", i % 17, " OF A TEXT\n");
    train_ = "train --tokenizer bytes --data " + scratch_.write("text.txt", text) + " --init " +
             base_ + " --batch 6 --seq 12 ";
  }
  std::string path(const std::string& name) const { return scratch_.path(name); }

  Scratch scratch_;
  const std::string base_ = WEFT_SOURCE_DIR "/tests/reference/grouped";
  /// A training, to be followed by other flags.
  std::string train_;
};

/// max|a - b| over all tensors / max|b|.
double difference(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  EXPECT_EQ(a.size(), b.size());
  double greatest = 0, most = 0;
  for (const auto& [name, tensor] : a) {
    const auto x = tensor.to_vector<double>(), y = b.at(name).to_vector<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      most = std::max(most, std::abs(x[i] - y[i]));
      greatest = std::max(greatest, std::abs(y[i]));
    }
  }
  return most / greatest;
}

std::string newest(const std::string& run) { return newest_complete_checkpoint(run); }

TEST_F(AdaptersRun, SavesAdaptersAloneAndResumesOnOtherRanks) {
  const std::string lora = "--lora rank=3,alpha=6,targets=q_proj,v_proj,down_proj --qlora int4 ";
  expect(0, train_ + lora + "--steps 6 --ranks 3 --save " + path("whole"), "learning rate 0.0002");
  const StateDict whole = state_in(newest(path("whole")));
  for (const auto& [name, tensor] : whole.tensors) {
    EXPECT_TRUE(name.find(".lora_") != name.npos) << name;
  }
  expect(0, train_ + lora + "--steps 6 --ranks 3 --save " + path("parts") + " --save-every 2");
  for (const std::string& checkpoint : list_checkpoints(path("parts"))) {
    if (checkpoint.find("step-00000002-") == checkpoint.npos) fs::remove_all(checkpoint);
  }
  expect(0,
         train_ + lora + "--steps 6 --mesh dp=2,tp=2 --resume " + path("parts") + " --save " +
             path("parts"),
         "resumed from");
  EXPECT_LE(difference(state_in(newest(path("parts"))).tensors, whole.tensors), 1e-5);
  expect(2, train_ + "--lora rank=3,alpha=7 --steps 7 --resume " + path("parts"),
         "which nothing expects");
}

TEST_F(AdaptersRun, IsExportedMergedAndSampled) {
  const std::string run = path("run");
  expect(0, train_ + "--lora rank=4,all-linear --lr 0.05 --steps 5 --ranks 2 --save " + run,
         "adapters of rank 4: ");
  expect(0, "ckpt export " + run + " " + path("peft") + " --base " + base_);
  expect(0, "ckpt export " + run + " " + path("merged") + " --merge --threads 3 --base " + base_);
  expect(0, "ckpt export " + path("peft") + " " + path("again") + " --merge --base " + base_);
  TransformerModel expected(transformer_config(base_)), merged(transformer_config(base_)),
      again(transformer_config(base_)), unchanged(transformer_config(base_));
  load_hugging_face(expected, base_);
  load_hugging_face(unchanged, base_);
  load_peft(expected, path("peft"));
  merge_adapters(expected);
  load_hugging_face(merged, path("merged"));
  load_hugging_face(again, path("again"));
  EXPECT_LE(difference(state_dict(merged).tensors, state_dict(expected).tensors), 1e-6);
  EXPECT_LE(difference(state_dict(again).tensors, state_dict(expected).tensors), 1e-6);
  EXPECT_GT(difference(state_dict(merged).tensors, state_dict(unchanged).tensors), 1e-3);
  EXPECT_FALSE(fs::exists(path("merged/.merged")));
  const std::string prompt = " --prompt \"LINE 3\" --tokens 12 --temperature 0";
  const auto sampled = [&](const std::string& from) {
    const std::string text = run_weft("sample " + from + prompt).text;
    return text.substr(0, text.rfind("\nweft: "));
  };
  EXPECT_EQ(sampled(base_ + " --adapter " + run), sampled(path("merged")));
  EXPECT_EQ(sampled(base_ + " --adapter " + path("peft")), sampled(path("merged")));
}

TEST_F(AdaptersRun, GoesOnFromAdapters) {
  const std::string run = path("run");
  // Without a value: the default of the help.
  expect(0, train_ + "--lora --lr 0.05 --steps 5 --ranks 2 --save " + run, "adapters of rank 8: ");
  expect(0, "ckpt export " + run + " " + path("peft") + " --base " + base_);
  expect(0, "ckpt export " + run + " " + path("merged") + " --merge --base " + base_);
  const auto first_loss = [&](const std::string& flags) {
    expect(0, flags + " --steps 1 --metrics " + path("m.jsonl"));
    return metrics_in(path("m.jsonl"))[0]["loss"].get<double>();
  };
  std::string merged = train_;
  merged.replace(merged.find(base_), base_.size(), path("merged"));
  const double expected = first_loss(merged), base = first_loss(train_);
  EXPECT_GT(std::abs(base - expected), 1e-2);
  for (const std::string& from : {path("peft"), run}) {
    for (const char* ranks : {" --ranks 1", " --ranks 3"}) {
      EXPECT_NEAR(first_loss(train_ + "--adapter " + from + ranks), expected, 1e-5);
    }
  }
  expect(2, train_ + "--lora rank=8 --adapter " + run,
         "--adapter is given with --lora, expected it with --init alone, which is its base");
  expect(2, "train --data " + path("text.txt") + " --adapter " + run, "--adapter is given without");
}

TEST_F(AdaptersRun, RefusesWrongFlags) {
  expect(2, train_ + "--lora rank=x", "--lora: item is \"rank=x\", expected rank=N, alpha=X, ");
  expect(2, train_ + "--lora q_proj", "--lora: item is \"q_proj\", expected rank=N, alpha=X, ");
  expect(2, train_ + "--qlora int4", "--qlora is int4 without --lora, expected both");
  expect(2, train_ + "--lora rank=2 --qlora int8 --float8",
         "--qlora is given with --float8, expected one of them");
  expect(2, train_ + "--lora rank=2 --qlora int8 --mesh dp=1,tp=2 --async-tp",
         "--qlora is given with --async-tp, expected one of them");
  expect(2, "train --data " + path("text.txt") + " --lora rank=2",
         "--lora is given without --init, expected the model that the adapters belong to");
  expect(2, train_ + "--lora rank=2,targets=q", "add_adapters: target \"q\" matches no Linear");
  const std::string run = path("run");
  expect(0, train_ + "--lora rank=2 --steps 1 --ranks 1 --save " + run);
  expect(2, "ckpt export " + run + " " + path("out") + " --merge",
         "--merge is given without --base, expected both");
  expect(2, "sample " + run + " --prompt A", "has adapters only, expected the weights of a model");
  expect(2, "sample " + base_ + " --prompt A --adapter " + base_, "--adapter");
  expect(0, train_ + "--steps 1 --ranks 1 --save " + path("plain"));
  expect(2, "ckpt export " + path("plain") + " " + path("out") + " --base " + base_,
         "has no adapters, expected a run of weft train --lora");
  expect(2, "sample " + base_ + " --prompt A --adapter " + path("plain"),
         "has no adapters, expected adapter_config.json or a run of weft train --lora");
}

/// Records of quantized weights are read from files too.
TEST_F(AdaptersRun, RestsOnDiskWithTheSameLosses) {
  const std::string flags = train_ + "--lora rank=2,all-linear --qlora int8 --steps 3 --ranks 2 ";
  expect(0, flags + "--metrics " + path("memory.jsonl"));
  expect(0, flags + "--offload parameters=disk:" + scratch_.root() + " --metrics " +
                path("disk.jsonl"));
  const auto memory = metrics_in(path("memory.jsonl")), disk = metrics_in(path("disk.jsonl"));
  ASSERT_EQ(memory.size(), 3u);
  ASSERT_EQ(disk.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(memory[i]["loss"], disk[i]["loss"]);
}

/// The estimate counts the frozen base once, and no state of it.
TEST_F(AdaptersRun, IsEstimated) {
  const auto line_of = [&](const std::string& flags, const std::string& name) {
    const Outcome outcome = run_weft("estimate --model " + base_ +
                                     "/config.json --mesh dp=2 --batch 4 --seq 16 " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.text;
    const size_t at = outcome.text.find(name);
    return outcome.text.substr(at, outcome.text.find('\n', at) - at);
  };
  for (const char* name : {"  parameters", "gradients", "optimizer"}) {
    const std::string all = line_of("", name), lora = line_of("--lora rank=2", name);
    EXPECT_NE(all, lora) << name;
    EXPECT_NE(line_of("--lora rank=2 --qlora int4", "  parameters"),
              line_of("--lora rank=2", "  parameters"));
  }
}

}  // namespace
}  // namespace weft::tests
