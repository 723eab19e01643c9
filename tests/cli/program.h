// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/command.h"
#include "weft/error.h"

namespace weft::tests {

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

/// The config.json of a small Llama whose tokens are bytes.
inline constexpr const char* kSmallLlama =
    R"({"model_type":"llama","architectures":["LlamaForCausalLM"],"hidden_size":16,)"
    R"("intermediate_size":24,"num_hidden_layers":2,"num_attention_heads":4,)"
    R"("num_key_value_heads":2,"vocab_size":256,"max_position_embeddings":64,)"
    R"("rms_norm_eps":1e-5,"rope_theta":10000.0,"hidden_act":"silu",)"
    R"("tie_word_embeddings":false})";

}  // namespace weft::tests
