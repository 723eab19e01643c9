// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"
#include "tests/support/scratch.h"
#include "weft/safetensors.h"

namespace weft::tests {
namespace {

/// `weft tokenize`, and `weft sample` by a tokenizer.
class Text : public testing::Test {
 protected:
  static inline const fs::path kReference = fs::path(WEFT_SOURCE_DIR) / "tests/reference";

  std::string tokenizer(const std::string& family) const {
    return (kReference / "tokenizers" / family).string();
  }
  /// A model of 89 tokens with a tokenizer: the letters, and "ab" and "abc".
  std::string model() const {
    const fs::path to = scratch_.path("model");
    fs::create_directories(to);
    for (const auto& entry : fs::directory_iterator(kReference / "grouped")) {
      if (entry.path().filename() != "reference.safetensors")
        fs::copy(entry.path(), to, fs::copy_options::overwrite_existing);
    }
    nlohmann::json vocabulary;
    for (int i = 0; i < 80; ++i) vocabulary[std::string(1, static_cast<char>('!' + i))] = i;
    vocabulary.erase("n");
    vocabulary["\u0120"] = 77;
    vocabulary["ab"] = 80;
    vocabulary["abc"] = 81;
    const nlohmann::json tokenizer = {
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", {"a b", "ab c"}}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
        {"decoder", {{"type", "ByteLevel"}}}};
    std::ofstream(to / "tokenizer.json") << tokenizer;
    return to;
  }
  /// The program's text on stdout.
  static Outcome printed(const std::string& arguments) {
    return run_command(concat(WEFT_PROGRAM, ' ', arguments, " 2>/dev/null"));
  }
  static void expect_refused(const std::string& arguments, const std::string& sentence) {
    const Outcome outcome = run_weft(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_EQ(outcome.text.substr(0, outcome.text.find('\n')), "weft: " + sentence);
  }

  Scratch scratch_;
};

TEST_F(Text, BecomesTokenFilesAndTextAgain) {
  const std::string text = "int main() {}\n\u00fcber \U0001f600\n";
  scratch_.write("in/a.txt", text);
  scratch_.write("in/b.txt", text);
  const std::string out = scratch_.path("out"), data = scratch_.path("in");
  const std::string command = concat("tokenize ", tokenizer("gpt2"), " --data ", data);
  expect(0, concat(command, " --output ", out, " --file-tokens 20"), " tokens of 2 documents in ");
  const Outcome back = run_weft(concat("tokenize ", tokenizer("gpt2"), " --decode --data ", out));
  EXPECT_EQ(back.text, text + text);
  // Its tokens are above those of bytes.
  expect_refused(
      concat("tokenize ", tokenizer("gpt2"), " --output ", scratch_.path("x"), " --data ", out),
      concat("--data: ", out,
             "/tokens-00000.bin is a token file, expected text; --decode prints it"));
  expect(2,
         concat("train --steps 1 --batch 1 --seq 4 --model ", (kReference / "grouped").string(),
                " --data ", out),
         "but the model's vocabulary has 89 ids");
  expect_refused(concat(command, " --output ", out),
                 concat("--output: ", out, " has the token file tokens-00000.bin, expected none"));
}

TEST_F(Text, IsContinuedByTheTokenizerOfTheModel) {
  const std::string command = concat("sample ", model(), " --prompt abca --temperature 0 ");
  const Outcome whole = printed(concat(command, "--tokens 20"));
  EXPECT_EQ(whole.code, 0) << whole.text;
  EXPECT_TRUE(whole.text.starts_with("abca")) << whole.text;
  // The prompt has 2 tokens.
  EXPECT_NE(run_weft(concat(command, "--tokens 1")).text.find("weft: 2 tokens read in "),
            std::string::npos);
  const std::string added = whole.text.substr(4, whole.text.size() - 5);
  ASSERT_GE(added.size(), 4u);
  const std::string stop = added.substr(2, 1);
  const Outcome stopped = printed(concat(command, "--tokens 20 --stop '", stop, "'"));
  EXPECT_EQ(stopped.text, concat("abca", added.substr(0, added.find(stop)), '\n'));
  const Outcome both = printed(concat(command, "--prompt abca --tokens 20"));
  EXPECT_EQ(both.text, whole.text + whole.text);
  const std::string drawn = concat("sample ", model(), " --prompt abca --seed 3 --top-k 4 ",
                                   "--top-p 0.9 --min-p 0.01 --repetition-penalty 1.2");
  EXPECT_EQ(printed(drawn).text, printed(drawn).text);
}

/// Rewrites the model's weights as the upper halves of its f32.
void round_to_bf16(const std::string& model) {
  nlohmann::ordered_json header;
  std::string data;
  {
    const TensorFiles files(model);
    for (const std::string& name : files.names()) {
      const SafetensorsEntry& entry = files.entry(name);
      std::vector<uint32_t> values(static_cast<size_t>(entry.shape.product()));
      files.read_box(name, {Dims::filled(entry.shape.ndim(), 0), entry.shape}, values.data());
      const size_t begin = data.size();
      for (const uint32_t value : values) {
        data += static_cast<char>(value >> 16 & 0xff);
        data += static_cast<char>(value >> 24);
      }
      header[name] = {{"dtype", "BF16"},
                      {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                      {"data_offsets", {begin, data.size()}}};
    }
  }
  const std::string text = header.dump();
  const auto length = static_cast<uint64_t>(text.size());
  std::ofstream(model + "/model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char*>(&length), sizeof length) << text << data;
}

TEST_F(Text, IsContinuedByAnImportInBf16) {
  const std::string bf16 = model(), in = scratch_.path("in");
  round_to_bf16(bf16);
  const std::string with = concat(" --tokenizer ", bf16, "/tokenizer.json --prompt abca ",
                                  "--temperature 0 --tokens 20");
  const Outcome expected = printed(concat("sample ", bf16, with));
  EXPECT_EQ(expected.code, 0) << run_weft(concat("sample ", bf16, with)).text;
  EXPECT_EQ(run_weft(concat("ckpt import ", bf16, ' ', in, " --ranks 3")).code, 0);
  for (const char* ranks : {" --ranks 1", " --ranks 2"}) {
    const std::string command = concat("sample ", in, with, ranks);
    EXPECT_EQ(printed(command).text, expected.text) << run_weft(command).text;
  }
  const std::string data = scratch_.write("text.txt", std::string(500, 'A'));
  std::map<std::string, std::string> losses;
  int runs = 0;
  for (const std::string& from : {"--init " + bf16, "--init " + in, "--resume " + in}) {
    const std::string metrics = scratch_.path(concat("metrics", ++runs));
    const Outcome trained = run_weft(concat("train --steps 1 --batch 3 --seq 4 --ranks 3 --data ",
                                            data, " --metrics ", metrics, ' ', from));
    EXPECT_EQ(trained.code, 0) << trained.text;
    losses[nlohmann::json::parse(std::ifstream(metrics))["loss"].dump()] = from;
  }
  EXPECT_EQ(losses.size(), 1u);
}

TEST_F(Text, SeveralPromptsArePrintedInTheirOrder) {
  const std::vector<std::string> prompts = {"abca", "bb", "cabbage", "a"};
  const std::string command = concat("sample ", model(), " --tokens 12 --stop bb --temperature 1 ");
  std::string lines, alone;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string more = concat("--seed ", 5 + i, " --prompt ", prompts[i]);
    alone += printed(command + more).text;
    if (i > 0) lines += prompts[i] + '\n';
  }
  const std::string file = scratch_.write("prompts", lines);
  const std::string all = concat(command, "--seed 5 --prompt abca --prompts ", file);
  for (const char* more : {"", " --batch 2", " --batch 1", " --ranks 2"}) {
    EXPECT_EQ(printed(concat(all, more)).text, alone) << more;
  }
  EXPECT_NE(run_weft(all).text.find(" tokens of 4 prompts read in "), std::string::npos);
}

TEST_F(Text, TheTokenizerIsThatOfTheModelThatARunBeganWith) {
  const std::string run = scratch_.path("run"), imported = scratch_.path("imported");
  const std::string text = scratch_.write("a.txt", "ABC 0123456789 ABC ABC");
  const Outcome trained =
      run_weft(concat("train --init ", model(), " --steps 1 --batch 1 --seq 4 --sample 0 --data ",
                      text, " --save ", run));
  ASSERT_EQ(trained.code, 0) << trained.text;
  ASSERT_EQ(run_weft(concat("ckpt import ", model(), ' ', imported)).code, 0);
  std::string checkpoint;
  for (const auto& entry : fs::directory_iterator(run)) {
    if (entry.path().filename().string().starts_with("step-")) checkpoint = entry.path();
  }
  // The prompt has 2 tokens; as bytes it would have 4, of which two are beyond the vocabulary.
  for (const std::string& directory : {run, run + '/', checkpoint, imported}) {
    expect(0, concat("sample ", directory, " --prompt abca --tokens 1"), "weft: 2 tokens read in ");
  }
}

/// Puts the text in single quotes of the shell.
std::string in_shell(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

TEST_F(Text, EachLineOfStandardInputIsAMessageOfOneConversation) {
  const std::string options = concat(" sample ", model(), " --temperature 0 --tokens 6 ");
  const auto answers_to = [&](const std::string& lines, const std::string& more) {
    return run_command(concat("printf ", in_shell(lines), " | ", WEFT_PROGRAM, options,
                              "--chat --chat-template deepseek-v2 ", more, " 2>&1"));
  };
  const auto continued = [&](const std::string& prompt) {
    const Outcome outcome = printed(concat(options, "--prompt ", in_shell(prompt)));
    EXPECT_EQ(outcome.code, 0);
    return outcome.text.substr(prompt.size());
  };
  const std::string first = continued("Be!\n\nUser: abca\n\nAssistant:");
  const std::string answer = first.substr(0, first.size() - 1);
  const std::string second =
      continued(concat("Be!\n\nUser: abca\n\nAssistant: ", answer, "User: bb\n\nAssistant:"));
  for (const char* ranks : {"", "--ranks 2 "}) {
    const Outcome both = answers_to("abca\\r\\n\\nbb", concat(ranks, "--system 'Be!'"));
    EXPECT_EQ(both.code, 0);
    EXPECT_EQ(both.text, first + second) << ranks;
  }
  EXPECT_EQ(answers_to("", "").text, "");
  const Outcome longer = answers_to("abca\\nbb", "--tokens 60");
  EXPECT_EQ(longer.code, 2) << longer.text;
  const std::string sentence =
      "weft: sample: the conversation up to message 2 of standard input has ";
  const size_t at = longer.text.find(sentence);
  ASSERT_NE(at, std::string::npos) << longer.text;
  EXPECT_NE(longer.text.find(" tokens, expected at most 64, those that the model takes", at),
            std::string::npos)
      << longer.text;
}

TEST_F(Text, WrongInputIsOneSentence) {
  const std::string text = scratch_.write("a.txt", "abc"), gpt2 = tokenizer("gpt2");
  const std::string out = concat(" --output ", scratch_.path("out"));
  const std::string broken = scratch_.write("broken/tokenizer.json", "{\"model\": {}}");
  const std::string damaged = scratch_.write("tokenizer.model", "no such thing");
  const std::string sample = concat("sample ", model(), " --prompt abc ");
  fs::create_directories(scratch_.path("empty"));
  const std::pair<std::string, std::string> cases[] = {
      {concat("tokenize ", scratch_.path("absent"), " --data ", text, out),
       concat("tokenizer: cannot open ", scratch_.path("absent"))},
      {concat("tokenize ", scratch_.path("empty"), " --data ", text, out),
       concat("tokenizer: ", scratch_.path("empty"),
              " has no tokenizer, expected tokenizer.json or tokenizer.model")},
      {concat("tokenize ", scratch_.path("broken"), " --data ", text, out),
       concat("tokenizer: ", broken, ": model.vocab is missing, expected a value")},
      {concat("tokenize ", damaged, " --data ", text, out),
       concat("tokenizer: ", damaged, ": the file is damaged, expected a model of SentencePiece")},
      {concat("tokenize ", gpt2, " --data ", scratch_.path("absent"), out),
       concat("--data: ", scratch_.path("absent"), " does not exist")},
      {concat("tokenize ", gpt2, " --data ", text),
       "tokenize: --output is missing, expected a directory"},
      {concat("tokenize ", gpt2, " --data ", text, " --decode"),
       concat("--data: ", text, " is text, expected token files (.bin)")},
      {concat("tokenize ", gpt2, " --data ", text, out, " --decode"),
       "tokenize: --output is given with --decode, expected one of them"},
      {concat(sample, "--chat"), concat("sample: ", scratch_.path("model"),
                                        " has no chat template, expected one; name it by "
                                        "--chat-template")},
      {concat(sample, "--chat-template llama3"),
       "sample: --chat-template is given without --chat, expected both"},
      {concat(sample, "--system x"), "sample: --system is given without --chat, expected both"},
      {concat("sample ", (kReference / "grouped").string(), " --prompt abc --stop x"),
       concat("sample: ", (kReference / "grouped").string(),
              " has no tokenizer, expected one for --stop; name it by --tokenizer")},
      {concat("sample ", (kReference / "grouped").string(), " --prompt abc --chat"),
       concat("sample: ", (kReference / "grouped").string(),
              " has no tokenizer, expected one for --chat; name it by --tokenizer")},
      {concat("sample ", (kReference / "grouped").string(), " --prompt hello --tokenizer ", gpt2),
       "--prompt: token 327 is beyond the vocabulary, expected 0 to 88"},
      {concat(sample, "--chat --system ''"), "--system is empty, expected at least one byte"},
      {concat("tokenize ", gpt2, " --data ", text, ' ', scratch_.write("none.txt", ""), out),
       concat("data: ", scratch_.path("none.txt"), " is empty, expected text")},
      {concat(sample, "--top-p 0"), "--top-p is 0, expected a finite number above 0 and at most 1"},
      {concat(sample, "--top-k -1"), "--top-k is -1, expected a whole number from 0 to 2147483647"},
  };
  for (const auto& [arguments, sentence] : cases) {
    const Outcome outcome = run_weft(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments << '\n' << outcome.text;
    EXPECT_TRUE(outcome.text.starts_with(concat("weft: ", sentence)))
        << outcome.text << "expected: " << sentence;
    EXPECT_EQ(std::ranges::count(outcome.text, '\n'), 1) << outcome.text;
  }
}

}  // namespace
}  // namespace weft::tests
