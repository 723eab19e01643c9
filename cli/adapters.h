// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "weft/adapters.h"
#include "weft/communicator.h"

namespace CLI {
class App;
}

namespace weft::cli {

/// The values of --lora and --qlora: adapters of linear layers, and the bits of base weights.
struct AdapterFlags {
  std::optional<AdapterOptions> lora = {};
  /// 0: weights are not quantized.
  int bits = 0;
};

void add_adapter_flags(CLI::App& command, AdapterFlags& flags);
/// std::invalid_argument when the flags contradict each other or `float8` or `async_tp`.
void check_adapter_flags(const AdapterFlags& flags, bool float8, int async_tp);
/// Adds the adapters to a model, before it is sharded, and quantizes its weights.
void apply(const AdapterFlags& flags, Module& model);

/// Adds --adapter, the place of adapters that `load_adapters` takes.
void add_adapter_flag(CLI::App& command, std::string& adapter);
/// The options of adapters at `path`: PEFT's files, a checkpoint of `weft train --lora`, or the
/// newest complete one of a run. std::invalid_argument when there are none.
AdapterOptions adapters_at(const Module& model, const std::string& path);
/// Fills the adapters of a model, which has those of `adapters_at`.
void load_adapters(Module& model, const std::string& path);

/// Returns whether a checkpoint has adapters and no other weights.
bool holds_adapters(const std::string& checkpoint);
/// Writes the adapters of such a checkpoint as PEFT's files.
void export_adapters(const std::string& checkpoint, const std::string& directory,
                     const std::string& base);
/// Writes the model of the directory `base` with the adapters at `path` merged, as a Hugging Face
/// model whose tensors have the dtypes of `base`. Collective over `world`.
void export_merged(const std::string& path, const std::string& base, const std::string& directory,
                   const Communicator& world, int64_t file_bytes);

}  // namespace weft::cli
