// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "weft/llama.h"

namespace weft {

/// How a test lays out a Llama and what it reads; both do nothing unless given.
struct LlamaSetup {
  /// Called once, before the model has memory.
  std::function<void(Llama& model)> shard = {};
  /// A batch [rows, sequence], whole on each rank, as the model takes it.
  std::function<Tensor(const Tensor& whole)> batch = {};
  Device device = cpu;
};

/// Expects of the Llama in tests/reference/<name> (heads, grouped, grouped_tied), loaded from its
/// files, what transformers computed: logits, loss and every gradient to 1e-5 of the largest value
/// of each, and the losses of its AdamW steps to 1e-4. Call it on all ranks alike.
void expect_as_transformers(const std::string& name, const LlamaSetup& setup = {});

}  // namespace weft
