// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/data.h"
#include "cli/numbers.h"
#include "cli/prompts.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::cli {

namespace fs = std::filesystem;

/// A larger file is not held in memory whole.
static constexpr int64_t kLargestText = int64_t{1} << 30;

namespace {

/// Options of `weft tokenize`.
struct TokenizeOptions {
  /// A directory with a tokenizer, or its file.
  std::string tokenizer;
  /// Text files, or token files with `decodes`; directories stand for the files below them.
  std::vector<std::string> data;
  std::string output;
  bool decodes = false;
  bool no_special = false;
  int64_t file_tokens = 100'000'000;
};

/// Writes tokens as shards, which `weft train --data` reads.
class TokenFiles {
 public:
  TokenFiles(std::string directory, int64_t vocabulary, int64_t most)
      : directory_(std::move(directory)),
        form_(kShardForms[vocabulary > 1 << 16]),
        most_(static_cast<size_t>(most)) {}

  void add(std::span<const int64_t> ids) {
    for (const int64_t id : ids) {
      const auto value = static_cast<uint32_t>(id);
      bytes_.append(reinterpret_cast<const char*>(&value), static_cast<size_t>(form_.width));
      if (++count_ == most_) write();
    }
    total_ += static_cast<int64_t>(ids.size());
  }
  void finish() {
    if (count_ > 0) write();
  }
  int64_t total() const { return total_; }
  int files() const { return files_; }

 private:
  void write() {
    const std::array<int32_t, kShardHeader> header = {form_.magic, form_.version,
                                                      static_cast<int32_t>(count_)};
    const fs::path path = fs::path(directory_) / formatted("tokens-%05d.bin", files_++);
    OutputFile file("--output", path.string(), OutputFile::Mode::replace);
    file.write({reinterpret_cast<const char*>(header.data()), sizeof header});
    file.write(bytes_);
    file.close();
    bytes_.clear();
    count_ = 0;
  }

  std::string directory_;
  ShardForm form_;
  size_t most_, count_ = 0;
  std::string bytes_;
  int64_t total_ = 0;
  int files_ = 0;
};

}  // namespace

static void check_output(const std::string& directory) {
  if (directory.empty()) fail("tokenize: --output is missing, expected a directory");
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) fail_call("--output", "making ", directory, " failed: ", error.message());
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".bin") continue;
    fail("--output: ", directory, " has the token file ", entry.path().filename().string(),
         ", expected none");
  }
}

static void write_tokens(const TokenizeOptions& options, const Tokenizer& tokenizer,
                         const std::vector<std::string>& texts) {
  check_output(options.output);
  TokenFiles files(options.output, tokenizer.size(), options.file_tokens);
  const auto began = std::chrono::steady_clock::now();
  int64_t bytes = 0;
  for (const std::string& path : texts) {
    const File file = opened_text(path);
    if (file.size() > kLargestText) {
      fail("tokenize: ", path, " has ", file.size(), " bytes, expected at most ", kLargestText,
           "; split it");
    }
    const std::string text = file.text();
    bytes += file.size();
    std::vector<int64_t> ids = tokenizer.encode(text, !options.no_special);
    const auto eos = tokenizer.eos();
    if (!options.no_special && eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
    files.add(ids);
  }
  files.finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::fprintf(stderr, "weft: %lld tokens of %zu texts in %d files; %.1f MB/s\n",
               static_cast<long long>(files.total()), texts.size(), files.files(),
               static_cast<double>(bytes) / 1e6 / took.count());
}

static void print_texts(const TokenizeOptions& options, const Tokenizer& tokenizer,
                        const TokenStream& tokens) {
  static constexpr int64_t piece = 1 << 16;
  TextStream stream(tokenizer, !options.no_special);
  std::vector<int64_t> ids;
  for (int64_t from = 0; from < tokens.size(); from += piece) {
    ids.resize(static_cast<size_t>(std::min(piece, tokens.size() - from)));
    tokens.copy(from, ids);
    std::string text;
    for (const int64_t id : ids) text += stream.push(id);
    print(text);
  }
  print(stream.finish());
}

/// Writes token files, or the text of token files to stdout. Throws what went wrong.
static void tokenize(const TokenizeOptions& options) {
  const Tokenizer tokenizer = tokenizer_at(options.tokenizer);
  if (options.decodes && !options.output.empty()) {
    fail("tokenize: --output is given with --decode, expected one of them");
  }
  for (const std::string& path : options.data) {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) fail("--data: ", path, " does not exist");
  }
  // Whether it is text comes before its ids, which the tokenizer may not have.
  const std::vector<std::string> files = data_files(options.data);
  if (is_shard(files[0]) != options.decodes) {
    fail("--data: ", files[0], " is ", options.decodes ? "text" : "a token file", ", expected ",
         options.decodes ? "token files (.bin)" : "text; --decode prints it");
  }
  if (options.decodes) {
    return print_texts(options, tokenizer, TokenStream(options.data, tokenizer.size()));
  }
  for (const std::string& path : files) (void)opened_text(path);
  write_tokens(options, tokenizer, files);
}

void add_tokenize(CLI::App& program) {
  const auto options = std::make_shared<TokenizeOptions>();
  TokenizeOptions& o = *options;
  CLI::App* tokenize =
      program.add_subcommand("tokenize", "Turn text files into token files, and back");
  add_named(*tokenize, "TOKENIZER", o.tokenizer, "DIR",
            "A directory with tokenizer.json or tokenizer.model, or such a file")
      ->required();
  add_named(*tokenize, "--data", o.data, "PATH...",
            "Text files, or directories of them; with --decode token files (.bin)")
      ->required();
  tokenize->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_named(*tokenize, "--output", o.output, "DIR",
            "Directory for the token files, made if missing");
  tokenize->add_flag("--decode", o.decodes, "Print the text of token files");
  tokenize->add_flag("--no-special", o.no_special,
                     "Add no tokens around each text; with --decode: print special tokens too");
  add_whole(*tokenize, "--file-tokens", o.file_tokens, "The most tokens of an output file", 1);
  tokenize->footer(
      "Each text file is one document: its tokens stand between those that the tokenizer adds, "
      "and\n"
      "end with its token for the end of a text, if it has one. Invalid UTF-8 is read as U+FFFD.\n"
      "Example: weft tokenize llama --data books --output tokens\n"
      "         weft train --model llama/config.json --data tokens");
  tokenize->callback([options] { cli::tokenize(*options); });
}

}  // namespace weft::cli
