// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "weft/transformer.h"

namespace weft {

/// Hooks to shard a Llama and its input; both do nothing by default.
struct LlamaSetup {
  /// Called once, before the model has memory.
  std::function<void(TransformerModel& model)> shard = {};
  /// Converts a batch [rows, sequence], replicated on each rank, to what the model takes.
  std::function<Tensor(const Tensor& whole)> batch = {};
  Device device = cpu;
};

/// Compares the Llama in tests/reference/<name> (heads, grouped, grouped_tied), loaded from its
/// files, with the results of transformers: logits, loss and every gradient to 1e-5 of the largest
/// value of each, and the losses of its AdamW steps to 1e-4. All ranks call it.
void expect_as_transformers(const std::string& name, const LlamaSetup& setup = {});

}  // namespace weft
