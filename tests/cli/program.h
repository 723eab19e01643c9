// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/command.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft::tests {

namespace fs = std::filesystem;

/// Runs the program with those arguments, errors and output together. `variables` are set for it:
/// "NAME=1 ".
inline Outcome run_weft(const std::string& arguments, const std::string& variables = "") {
  return run_command(concat(variables, WEFT_PROGRAM, ' ', arguments, " 2>&1"));
}

/// Expects the same of the program with those arguments.
inline void expect(int code, const std::string& arguments, const std::string& words = "") {
  SCOPED_TRACE(arguments);
  expect(run_weft(arguments), code, words);
}

/// "line 0 of a text that repeats itself" and so on.
inline std::string repeating_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += concat("line ", i, " of a text that repeats itself\n");
  return text;
}

/// The lines of a file that --metrics names, one a step.
inline std::vector<nlohmann::json> metrics_in(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// The elements and numbers of a checkpoint, whole.
inline StateDict state_in(const std::string& checkpoint) {
  StateDict state;
  const CheckpointContents contents = checkpoint_contents(checkpoint);
  for (const auto& [name, tensor] : contents.tensors) {
    state.tensors.emplace(name, empty(tensor.shape, {.dtype = tensor.dtype}));
  }
  state.numbers = contents.numbers;
  load(checkpoint, state);
  return state;
}

/// The config.json of a small Llama whose tokens are bytes.
inline constexpr const char* kSmallLlama =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":16,)"
    R"("intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":64,)"
    R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
    R"("tie_word_embeddings":false})";

}  // namespace weft::tests
