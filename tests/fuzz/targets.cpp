// SPDX-License-Identifier: Apache-2.0

// libFuzzer's entry. The variable WEFT_FUZZ names the target; with compilers that lack libFuzzer,
// driver.cpp calls the entry.

#include "tests/fuzz/targets.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>

#include "checkpoint/pickle.h"
#include "data/template/template.h"
#include "data/template/value.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/flight.h"
#include "weft/safetensors.h"
#include "weft/tokenizer.h"
#include "weft/transformer_config.h"

namespace weft::fuzz {

std::string scratch_file(const std::string& name, const std::string& content) {
  static const std::filesystem::path folder = [] {
    const auto path = std::filesystem::path("/dev/shm") / concat("weft-fuzz-", getpid());
    std::filesystem::create_directory(path);
    std::atexit([] {
      std::filesystem::remove_all(std::filesystem::path("/dev/shm") /
                                  concat("weft-fuzz-", getpid()));
    });
    return path;
  }();
  std::filesystem::create_directories((folder / name).parent_path());
  std::ofstream(folder / name, std::ios::binary) << content;
  return folder / name;
}

std::vector<std::string> parts_of(const std::string& input) {
  const std::string mark = "\n====\n";
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = input.find(mark, begin)) != input.npos; begin = at + mark.size()) {
    parts.push_back(input.substr(begin, at - begin));
  }
  parts.push_back(input.substr(begin));
  return parts;
}

void safetensors(const std::string& input) {
  const SafetensorsFile file(scratch_file("x.safetensors", input));
  for (const SafetensorsEntry& entry : file.entries()) {
    std::vector<std::byte> bytes(static_cast<size_t>(entry.bytes));
    file.read(entry, 0, bytes);
  }
}

void config(const std::string& input) {
  // A number may be written with another last digit than it was read.
  transformer_config_of(config_json(transformer_config_of(input, "fuzz")), "fuzz");
}

/// A tokenizer.json, then a text to encode.
void tokenizer(const std::string& input) {
  const std::vector<std::string> parts = parts_of(input);
  const Tokenizer tokenizer = Tokenizer::from_file(scratch_file("tokenizer.json", parts[0]));
  const std::string text = parts.size() > 1 ? parts[1] : "It's 2 o'clock,\n caf\xc3\xa9 \xff!";
  tokenizer.decode(tokenizer.encode(text.substr(0, 1000)));
}

/// A template, then a JSON object of its variables.
void chat_template(const std::string& input) {
  const std::vector<std::string> parts = parts_of(input);
  const jinja::Template form(parts[0]);
  jinja::Named variables{
      {"messages", jinja::value_of_json("fuzz", R"([{"role": "user", "content": "a"},
                                                    {"role": "assistant", "content": "b"}])")},
      {"bos_token", "<s>"},
      {"add_generation_prompt", true}};
  if (parts.size() > 1) variables.emplace_back("x", jinja::value_of_json("fuzz", parts[1]));
  form.render(std::move(variables));
}

/// A `.metadata` of PyTorch's distributed checkpoint.
void dcp(const std::string& input) {
  const Pickle pickle("fuzz", input, [](std::string_view) { return true; });
  static const std::string zeros(4096, '\0');
  for (const char* name : {"dcp/__0_0.distcp", "dcp/__1_0.distcp"}) scratch_file(name, zeros);
  const std::string path = scratch_file("dcp/.metadata", input);
  checkpoint_contents(std::filesystem::path(path).parent_path());
}

/// The records of one or several ranks.
void flight(const std::string& input) {
  std::vector<std::string> files;
  for (const std::string& part : parts_of(input)) {
    files.push_back(scratch_file(concat("rank-", files.size(), ".json"), part));
  }
  merge_flight_records(files, scratch_file("trace.json", ""));
}

}  // namespace weft::fuzz

static const std::map<std::string, void (*)(const std::string&)> kTargets{
    {"checkpoint", weft::fuzz::checkpoint},
    {"safetensors", weft::fuzz::safetensors},
    {"config", weft::fuzz::config},
    {"tokenizer", weft::fuzz::tokenizer},
    {"chat_template", weft::fuzz::chat_template},
    {"dcp", weft::fuzz::dcp},
    {"flight", weft::fuzz::flight},
    {"job_messages", weft::fuzz::job_messages},
};

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto target = [] {
    const char* name = std::getenv("WEFT_FUZZ");
    const auto found = kTargets.find(name ? name : "");
    if (found != kTargets.end()) return found->second;
    std::fprintf(stderr, "fuzz: WEFT_FUZZ is %s, expected one of", name ? name : "not set");
    for (const auto& [known, run] : kTargets) std::fprintf(stderr, " %s", known.c_str());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }();
  try {
    target(std::string(reinterpret_cast<const char*>(data), size));
  } catch (const std::invalid_argument&) {
  }
  return 0;
}
