// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/commands.h"
#include "cli/data_flags.h"
#include "cli/numbers.h"
#include "cli/prompts.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/store.h"
#include "weft/extend/token_files.h"

namespace weft::cli {

namespace fs = std::filesystem;

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
  TextFlags text;
  int64_t file_tokens = 100'000'000;
  int threads = 0;
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
  const auto began = std::chrono::steady_clock::now();
  const TokenCounts counts = write_token_files(texts,
                                               {.tokenizer = tokenizer,
                                                .field = options.text.field,
                                                .loss = options.text.loss_on(),
                                                .adds_special = !options.no_special,
                                                .file_tokens = options.file_tokens,
                                                .threads = options.threads},
                                               options.output);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::fprintf(stderr, "weft: %lld tokens of %lld documents in %d files; %.1f MB/s\n",
               static_cast<long long>(counts.tokens), static_cast<long long>(counts.documents),
               counts.files, static_cast<double>(counts.bytes) / 1e6 / took.count());
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
  const Tokenizer tokenizer =
      with_chat_template(tokenizer_at(options.tokenizer), options.text.chat_template);
  if (options.decodes && !options.output.empty()) {
    fail("tokenize: --output is given with --decode, expected one of them");
  }
  for (const std::string& path : options.data) {
    if (!path_exists(path)) fail("--data: ", path, " does not exist");
  }
  // Decides first whether it is text, and then asks for its ids, which the tokenizer may not have.
  const std::vector<std::string> files = data_files(options.data);
  if ((data_kind(files[0]) == DataKind::tokens) != options.decodes) {
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
            "Text files, lines of JSON (.jsonl) with texts or conversations, or directories of "
            "them; with --decode token files (.bin)")
      ->required();
  tokenize->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_named(*tokenize, "--output", o.output, "DIR",
            "Directory for the token files, made if missing");
  tokenize->add_flag("--decode", o.decodes, "Print the text of token files");
  tokenize->add_flag("--no-special", o.no_special,
                     "Add no tokens around each text; with --decode: print special tokens too");
  add_text_flags(*tokenize, o.text);
  add_whole(*tokenize, "--threads", o.threads, "Threads (default: the cores)", 0, kMostThreads);
  add_whole(*tokenize, "--file-tokens", o.file_tokens, "The most tokens of an output file", 1);
  tokenize->footer(
      "A text file is one document, and so is a line of JSON. The tokens of a text stand between\n"
      "those that the tokenizer adds, and end with its token for the end of a text, if it has "
      "one.\n"
      "Next to each token file (.bin) is an index (.idx) of its documents and of the tokens that\n"
      "count for the loss. Invalid UTF-8 is read as U+FFFD.\n"
      "Example: weft tokenize llama --data books --output tokens\n"
      "         weft train --model llama/config.json --data tokens");
  tokenize->callback([options] { cli::tokenize(*options); });
}

}  // namespace weft::cli
