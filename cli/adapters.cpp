// SPDX-License-Identifier: Apache-2.0
#include "cli/adapters.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "cli/commands.h"
#include "cli/numbers.h"
#include "weft/checkpoint.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/run_folder.h"
#include "weft/extend/saved_model.h"
#include "weft/fsdp.h"
#include "weft/hugging_face.h"
#include "weft/peft.h"
#include "weft/transformer.h"

namespace weft::cli {

namespace fs = std::filesystem;

static constexpr const char* kForm =
    "rank=N, alpha=X, dropout=P, rslora, all-linear or targets=NAME,NAME,...";

/// Sets the option that an item of --lora states; a name behind targets= is one more target.
static void set_option(AdapterOptions& options, const std::string& item,
                       std::optional<double>& alpha) {
  const size_t equals = item.find('=');
  const std::string name = item.substr(0, equals);
  const std::string value = equals == item.npos ? "" : item.substr(equals + 1);
  const auto refuse = [&] { fail("--lora: item is ", in_quotes(item), ", expected ", kForm); };
  if (equals == item.npos && !item.empty()) {
    if (item == "rslora") {
      options.rslora = true;
    } else if (item == "all-linear" || !options.targets.empty()) {
      options.targets.push_back(item);
    } else {
      refuse();
    }
  } else if (name == "targets" && !value.empty()) {
    options.targets.push_back(value);
  } else if (name == "rank" && number_in<int64_t>(value)) {
    options.rank = *number_in<int64_t>(value);
  } else if (name == "alpha" && number_in<double>(value)) {
    alpha = number_in<double>(value);
  } else if (name == "dropout" && number_in<double>(value)) {
    options.dropout = *number_in<double>(value);
  } else {
    refuse();
  }
}

void add_adapter_flags(CLI::App& command, AdapterFlags& flags) {
  const auto lora = [&flags](const std::string& text) {
    AdapterOptions options;
    options.targets.clear();
    std::optional<double> alpha;
    // The text is empty for the flag alone, which means the defaults.
    for (size_t begin = 0, end = 0; !text.empty() && end < text.size(); begin = end + 1) {
      end = std::min(text.find(',', begin), text.size());
      set_option(options, text.substr(begin, end - begin), alpha);
    }
    options.alpha = alpha.value_or(2 * static_cast<double>(options.rank));
    if (options.targets.empty()) options.targets = AdapterOptions().targets;
    flags.lora = options;
  };
  command
      .add_option_function<std::string>(
          "--lora", lora,
          "Train low-rank adapters of linear layers and freeze all other weights, e.g. "
          "rank=16,alpha=32,targets=q_proj,v_proj or rank=16,all-linear (all but the head); also "
          "dropout=P and rslora (default: rank=8, alpha twice the rank, q_proj and v_proj)")
      ->type_name("OPTION=VALUE,...")
      ->expected(0, 1);
  command
      .add_option_function<std::string>(
          "--qlora", [&flags](const std::string& codes) { flags.bits = codes == "int4" ? 4 : 8; },
          "Store the frozen weights of linear layers in int8 or int4, with a scale for each 64 "
          "elements; with --lora")
      ->check(CLI::IsMember({"int8", "int4"}));
}

void check_adapter_flags(const AdapterFlags& flags, bool float8, int async_tp) {
  if (flags.bits == 0) return;
  const char* codes = flags.bits == 4 ? "int4" : "int8";
  if (!flags.lora) fail("--qlora is ", codes, " without --lora, expected both");
  if (float8) fail("--qlora is given with --float8, expected one of them");
  if (async_tp > 1) fail("--qlora is given with --async-tp, expected one of them");
}

void apply(const AdapterFlags& flags, Module& model) {
  if (flags.lora) add_adapters(model, *flags.lora);
  if (flags.bits > 0) quantize_base(model, flags.bits);
}

void add_adapter_flag(CLI::App& command, std::string& adapter) {
  add_named(command, "--adapter", adapter, "DIR",
            "Adapters to merge into the model: of PEFT, or a run of weft train --lora");
}

static bool is_peft(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::path(path) / "adapter_config.json", ignored);
}

/// The checkpoint that a path means: the newest complete one of a run, or itself.
static std::string checkpoint_at(const std::string& path) {
  const std::string checkpoint = complete_checkpoint(path);
  if (!checkpoint.empty() && holds_adapters(checkpoint)) return checkpoint;
  fail("--adapter ", path,
       " has no adapters, expected adapter_config.json or a run of weft train --lora");
}

AdapterOptions adapters_at(const Module& model, const std::string& path) {
  check_directory("--adapter", path);
  if (is_peft(path)) return peft_options(model, path);
  return *saved_adapters(checkpoint_contents(checkpoint_at(path)), "model/");
}

/// The adapters of a model by their keys in a checkpoint.
static StateDict adapter_keys(const Module& model) {
  StateDict keys;
  for (const auto& [name, tensor] : adapter_state_dict(model).tensors) {
    keys.tensors.emplace(concat("model/", name), tensor);
  }
  return keys;
}

void load_adapters(Module& model, const std::string& path) {
  if (is_peft(path)) return load_peft(model, path);
  weft::load_weights(checkpoint_at(path), adapter_keys(model));
}

bool holds_adapters(const std::string& checkpoint) {
  return saved_adapters(checkpoint_contents(checkpoint), "model/").has_value();
}

void export_adapters(const std::string& checkpoint, const std::string& directory,
                     const std::string& base) {
  const CheckpointContents contents = checkpoint_contents(checkpoint);
  TransformerModel model(saved_config(contents.numbers, checkpoint));
  add_adapters(model, *saved_adapters(contents, "model/"));
  // The base has no memory.
  for (const AdaptedLinear& one : adapted_linears(model)) {
    one.a->materialize();
    one.b->materialize();
  }
  weft::load_weights(checkpoint, adapter_keys(model));
  save_peft(model, directory, {.base_model = base});
}

void export_merged(const std::string& path, const std::string& base, const std::string& directory,
                   const Communicator& world, int64_t file_bytes) {
  const std::string weights = weights_in("--base", base);
  const TransformerConfig config = config_of_weights(weights);
  const DeviceMesh mesh(world, {{"ranks", world.size()}});
  TransformerModel model(config);
  add_adapters(model, adapters_at(model, path));
  fully_shard(model, mesh);
  model.materialize();
  load_weights(model, weights);
  load_adapters(model, path);
  merge_adapters(model);
  const NoGrad no_grad;
  const CheckpointContents contents = is_hugging_face(weights)
                                          ? hugging_face_contents(weights, config)
                                          : checkpoint_contents(weights);
  const std::string prefix = is_hugging_face(weights) ? "" : "model/";
  StateDict state;
  for (const auto& [name, tensor] : state_dict(model).tensors) {
    const auto entry = contents.tensors.find(prefix + name);
    const DType dtype = entry == contents.tensors.end() ? tensor.dtype() : entry->second.dtype;
    state.tensors.emplace("model/" + name, tensor.dtype() == dtype ? tensor : tensor.to(dtype));
  }
  // The final files are written from a checkpoint.
  const fs::path merged = fs::path(directory) / ".merged";
  const std::string saved = CheckpointSaver(world, merged.string()).save(0, state);
  world.barrier();
  export_hugging_face(saved, directory, world,
                      {.config = config,
                       .files = is_hugging_face(weights) ? weights : kept_model_files(weights),
                       .file_bytes = file_bytes});
  world.barrier();
  if (world.rank() == 0) fs::remove_all(merged);
}

}  // namespace weft::cli
