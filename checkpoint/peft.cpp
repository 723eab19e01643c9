// SPDX-License-Identifier: Apache-2.0
#include "weft/peft.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "checkpoint/file_writer.h"
#include "checkpoint/source.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/safetensors.h"
#include "weft/transformer.h"

namespace weft {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

static constexpr const char* kConfigFile = "adapter_config.json";
static constexpr const char* kTensorFile = "adapter_model.safetensors";
static constexpr const char* kPrefix = "base_model.model.";

namespace {

/// The paths of Linear modules in Hugging Face's model.
class PeftPaths {
 public:
  PeftPaths(const char* what, const Module& model) : what_(what) {
    const auto* transformer = dynamic_cast<const TransformerModel*>(&model);
    if (!transformer) return;
    family_ = transformer->config().family;
    for (const FileTensor& tensor : file_tensors(transformer->config())) add(tensor);
  }

  /// The path there of the module at `path` of the model.
  std::string there(const std::string& path) const {
    if (family_.empty()) return path;
    const auto found = there_.find(path);
    if (found != there_.end()) return found->second;
    const auto fused = fused_.find(path);
    if (fused == fused_.end()) return path;
    fail(what_, ": module ", in_quotes(path), " is a part of ", in_quotes(fused->second),
         " in a model of family ", family_, ", expected a module that is a whole matrix there");
  }
  /// Returns whether the module is only a part of one there.
  bool is_fused(const std::string& path) const { return fused_.contains(path); }
  /// Returns whether weights of the family are transposed, as those of GPT-2.
  bool is_transposed(const std::string& path) const { return transposed_.contains(path); }

 private:
  void add(const FileTensor& tensor) {
    static const std::string kWeight = ".weight";
    for (const FilePart& part : tensor.parts) {
      if (!part.parameter.ends_with(kWeight) || !tensor.names[0].ends_with(kWeight)) continue;
      const auto without = [](std::string name) {
        return name.erase(name.size() - kWeight.size());
      };
      const std::string path = without(part.parameter), other = without(tensor.names[0]);
      (tensor.parts.size() > 1 ? fused_ : there_).emplace(path, other);
      if (tensor.transposed) transposed_.insert(path);
    }
  }

  const char* what_;
  std::string family_;
  std::map<std::string, std::string> there_, fused_;
  std::set<std::string> transposed_;
};

}  // namespace

/// The adapters of a model; std::invalid_argument when it has none.
static std::vector<AdaptedLinear> adapted_in(const char* what, Module& model) {
  std::vector<AdaptedLinear> adapted = adapted_linears(model);
  if (adapted.empty()) fail(what, ": number of adapters is 0, expected at least 1");
  return adapted;
}

static const Tensor& value_of(const Module& linear) {
  return linear.own_parameters()[0].second->value();
}

/// Calls visit(name of the tensor in the file, value of the parameter) for each matrix.
template <class Visit>
static void visit_matrices(const std::vector<AdaptedLinear>& adapted, const PeftPaths& paths,
                           const Visit& visit) {
  for (const AdaptedLinear& one : adapted) {
    const std::string path = kPrefix + paths.there(one.path);
    visit(path + ".lora_A.weight", value_of(*one.a));
    visit(path + ".lora_B.weight", value_of(*one.b));
  }
}

static std::string last_name(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// Last parts of paths where these name no other Linear, else whole paths.
static std::set<std::string> target_modules(Module& model, const std::vector<AdaptedLinear>& all,
                                            const PeftPaths& paths) {
  std::set<std::string> adapted, others, targets;
  for (const AdaptedLinear& one : all) adapted.insert(one.path);
  for (const auto& [path, module] : model.named_modules()) {
    const bool is_part = path.ends_with(".lora_A") || path.ends_with(".lora_B");
    if (is_part || adapted.contains(path)) continue;
    if (dynamic_cast<const Linear*>(module)) {
      others.insert(last_name(path));
      if (!paths.is_fused(path)) others.insert(last_name(paths.there(path)));
    }
    // Hugging Face's models may have a Linear for each expert.
    for (const auto& [name, parameter] : module->own_parameters()) others.insert(name);
  }
  for (const AdaptedLinear& one : all) {
    const std::string there = paths.there(one.path);
    const bool is_shared =
        others.contains(last_name(one.path)) || others.contains(last_name(there));
    targets.insert(is_shared ? there : last_name(there));
  }
  return targets;
}

static std::string config_text(Module& model, const std::vector<AdaptedLinear>& adapted,
                               const PeftPaths& paths, const PeftOptions& more) {
  const AdapterOptions& options = adapted[0].a->options();
  ordered_json alpha = options.alpha;
  const bool is_whole = options.alpha == std::floor(options.alpha);
  if (is_whole && std::abs(options.alpha) < 0x1p53) alpha = static_cast<int64_t>(options.alpha);
  ordered_json base;
  if (!more.base_model.empty()) base = more.base_model;
  const ordered_json config{{"peft_type", "LORA"},
                            {"task_type", more.task},
                            {"base_model_name_or_path", base},
                            {"r", options.rank},
                            {"lora_alpha", alpha},
                            {"lora_dropout", options.dropout},
                            {"use_rslora", options.rslora},
                            {"target_modules", target_modules(model, adapted, paths)},
                            {"fan_in_fan_out", paths.is_transposed(adapted[0].path)},
                            {"bias", "none"},
                            {"modules_to_save", nullptr},
                            {"rank_pattern", ordered_json::object()},
                            {"alpha_pattern", ordered_json::object()},
                            {"use_dora", false},
                            {"init_lora_weights", true},
                            {"inference_mode", true}};
  return config.dump(2) + "\n";
}

static std::string_view elements_of(const Tensor& tensor) {
  const MemoryBlock& block = tensor.block();
  return {static_cast<const char*>(block.data),
          static_cast<size_t>(block.numel()) * size_of(block.dtype)};
}

/// Returns the header of a safetensors file of these tensors, in their order.
static std::string header_of(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  size_t at = 0;
  for (const auto& [name, tensor] : tensors) {
    const size_t end = at + elements_of(tensor).size();
    const Shape& shape = tensor.shape();
    header[name] = ordered_json{{"dtype", safetensors_name_of(tensor.dtype())},
                                {"shape", std::vector<int64_t>(shape.begin(), shape.end())},
                                {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const auto length = static_cast<uint64_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

/// Writes a file under another name first: an interruption leaves no part of it.
template <class Write> static void write_file(const fs::path& to, const Write& write) {
  const fs::path unfinished = to.parent_path() / concat('.', to.filename().string(), ".tmp");
  OutputFile out("save_peft", unfinished.string(), OutputFile::Mode::replace);
  write(out);
  out.close();
  fs::rename(unfinished, to);
}

/// The whole matrix in dense memory of the host.
static Tensor gathered(const Tensor& value) {
  const Tensor dense = empty(value.shape(), {.dtype = value.dtype()});
  copy_(dense, value.detach().full_tensor().to(cpu));
  return dense;
}

static void write_peft(const std::string& directory, const std::string& config,
                       const std::vector<std::pair<std::string, Tensor>>& tensors) {
  std::error_code ignored;
  for (const char* name : {kTensorFile, kConfigFile}) {
    if (!fs::exists(fs::path(directory) / name, ignored)) continue;
    fail("save_peft: ", directory, " has ", name, " already, expected a directory without");
  }
  make_directories(directory);
  write_file(fs::path(directory) / kTensorFile, [&](OutputFile& out) {
    out.write(header_of(tensors));
    for (const auto& [name, tensor] : tensors) out.write(elements_of(tensor));
  });
  write_file(fs::path(directory) / kConfigFile, [&](OutputFile& out) { out.write(config); });
}

void check_peft(Module& model) {
  const PeftPaths paths("save_peft", model);
  for (const AdaptedLinear& one : adapted_linears(model)) (void)paths.there(one.path);
}

void save_peft(Module& model, const std::string& directory, const PeftOptions& options) {
  const std::vector<AdaptedLinear> adapted = adapted_in("save_peft", model);
  const PeftPaths paths("save_peft", model);
  const std::string config = config_text(model, adapted, paths, options);
  const NoGrad no_grad;
  std::vector<std::pair<std::string, Tensor>> tensors;
  visit_matrices(adapted, paths, [&](const std::string& name, const Tensor& value) {
    tensors.emplace_back(name, gathered(value));
  });
  const Sharding sharding = value_of(*adapted[0].a).sharding();
  if (!sharding && !options.world) return write_peft(directory, config, tensors);
  const Communicator& ranks = sharding ? sharding.mesh().root().communicator() : *options.world;
  std::string mistake;  // of the first rank, which alone looks and writes
  try {
    if (ranks.rank() == 0) write_peft(directory, config, tensors);
  } catch (const std::exception& error) {
    mistake = error.what();
  }
  fail_on_all_ranks(ranks, mistake);
}

namespace {

/// The text of adapter_config.json, checked.
class PeftConfig {
 public:
  explicit PeftConfig(const std::string& directory)
      : path_((fs::path(directory) / kConfigFile).string()),
        json_(ordered_json::parse(read_json("load_peft", path_))) {
    expect("peft_type", "LORA", {"LORA"});
    expect("use_rslora", false, {true, false, nullptr});
    expect("bias", "none", {"none"});
    for (const char* name :
         {"use_dora", "lora_bias", "megatron_config", "modules_to_save", "rank_pattern",
          "alpha_pattern", "target_parameters", "trainable_token_indices",
          "alora_invocation_tokens", "layer_replication", "use_bdlora", "use_qalora",
          "arrow_config", "kasa_config", "velora_config", "monteclora_config"}) {
      expect_none(name);
    }
    // Other methods change the base weights too.
    expect("init_lora_weights", true, {true, false, nullptr, "gaussian", "orthogonal", "eva"});
  }

  AdapterOptions options() const {
    AdapterOptions options;
    options.rank = whole("r");
    options.alpha = number("lora_alpha", 8);
    options.dropout = number("lora_dropout", 0);
    options.rslora = json_.value("use_rslora", ordered_json(false)) == true;
    return options;
  }

 private:
  template <class Value> [[noreturn]] void fail_at(const char* name, const Value& expected) const {
    fail("load_peft: ", path_, ": ", name, " is ", json_.value(name, ordered_json()).dump(),
         ", expected ", expected);
  }
  void expect(const char* name, const ordered_json& otherwise,
              const std::vector<ordered_json>& values) const {
    const ordered_json value = json_.value(name, otherwise);
    if (std::ranges::count(values, value) > 0) return;
    fail_at(name, listed(
                      values, [](const ordered_json& one) { return one.dump(); }, " or "));
  }
  /// Throws unless the setting is null, false or empty.
  void expect_none(const char* name) const {
    const ordered_json value = json_.value(name, ordered_json());
    if (value.empty() || value == false) return;
    fail_at(name, "null; weft does not compute it");
  }
  int64_t whole(const char* name) const {
    const ordered_json value = json_.value(name, ordered_json());
    if (!value.is_number_integer() || value < 1 || value > (int64_t{1} << 31)) {
      fail_at(name, "a whole number of at least 1");
    }
    return value.get<int64_t>();
  }
  double number(const char* name, double otherwise) const {
    const ordered_json value = json_.value(name, ordered_json(otherwise));
    if (!value.is_number()) fail_at(name, "a number");
    return value.get<double>();
  }

  std::string path_;
  ordered_json json_;
};

/// The files of one adapter.
class PeftFiles {
 public:
  PeftFiles(const Module& model, const std::string& directory)
      : options_(PeftConfig(directory).options()),
        file_((fs::path(directory) / kTensorFile).string()),
        paths_("load_peft", model) {
    std::map<std::string, std::string> linears;
    for (const auto& [path, module] : const_cast<Module&>(model).named_modules()) {
      if (!dynamic_cast<const Linear*>(module) || path.ends_with(".lora_A")) continue;
      if (!paths_.is_fused(path)) linears.emplace(kPrefix + paths_.there(path), path);
    }
    std::set<std::string> targets;
    for (const SafetensorsEntry& entry : file_.entries()) {
      const size_t end = std::max<size_t>(entry.name.size(), 14) - 14;
      const auto linear = linears.find(entry.name.substr(0, end));
      if (!is_adapter_parameter(entry.name) || linear == linears.end()) {
        fail("load_peft: ", file_.path(), ": tensor ", in_quotes(entry.name),
             " belongs to no Linear of the model, expected lora_A and lora_B of such modules only");
      }
      targets.insert(linear->second);
    }
    options_.targets.assign(targets.begin(), targets.end());
    if (targets.empty()) fail("load_peft: ", file_.path(), " has no tensor, expected adapters");
  }

  const AdapterOptions& options() const { return options_; }

  /// Fills the adapters of a model, after all are found to fit.
  void fill(Module& model) const {
    const std::vector<AdaptedLinear> adapted = adapted_linears(model);
    for (const AdaptedLinear& one : adapted) check_options(one);
    size_t found = 0;
    visit_matrices(adapted, paths_, [&](const std::string& name, const Tensor& value) {
      check(name, value.shape());
      ++found;
    });
    if (found != file_.entries().size()) {
      fail("load_peft: ", file_.path(), " has ", file_.entries().size(), " tensors, expected ",
           found, ", those of the adapters of the model");
    }
    const NoGrad no_grad;
    visit_matrices(adapted, paths_, [&](const std::string& name, const Tensor& value) {
      const SafetensorsEntry& entry = file_.entry(name);
      const TensorFill fill(value, entry.dtype);
      file_.read_box(entry, value.box(), fill.memory());
      fill.finish();
    });
  }

  /// Checks the tensors of a module that has no adapter yet.
  void check_shapes(Module& model) const {
    for (const std::string& path : options_.targets) {
      const std::string there = kPrefix + paths_.there(path);
      const auto& linear = dynamic_cast<const Linear&>(model.module(path));
      check(there + ".lora_A.weight", {options_.rank, in_features(linear)});
      check(there + ".lora_B.weight", {value_of(linear).size(0), options_.rank});
    }
  }

 private:
  void check_options(const AdaptedLinear& one) const {
    const AdapterOptions& own = one.a->options();
    if (own.rank == options_.rank && own.scale() == options_.scale()) return;
    fail("load_peft: ", file_.path(), ": rank and scale are ", options_.rank, " and ",
         options_.scale(), ", expected ", own.rank, " and ", own.scale(), ", those of ",
         in_quotes(one.path));
  }
  void check(const std::string& name, const Shape& shape) const {
    const SafetensorsEntry* entry = file_.find(name);
    if (!entry) fail("load_peft: ", file_.path(), ": tensor ", in_quotes(name), " is missing");
    if (entry->shape == shape && is_floating(entry->dtype) && size_of(entry->dtype) > 1) return;
    fail("load_peft: ", file_.path(), ": tensor ", in_quotes(name), " is ", entry->dtype, ' ',
         entry->shape, ", expected ", shape, " of a floating dtype");
  }

  AdapterOptions options_;
  SafetensorsFile file_;
  PeftPaths paths_;
};

}  // namespace

AdapterOptions peft_options(const Module& model, const std::string& directory) {
  return PeftFiles(model, directory).options();
}

void load_peft(Module& model, const std::string& directory) {
  const PeftFiles files(model, directory);
  if (adapted_linears(model).empty()) {
    files.check_shapes(model);
    add_adapters(model, files.options());
  }
  model.materialize();
  files.fill(model);
}

}  // namespace weft
