// SPDX-License-Identifier: Apache-2.0
#include "cli/step_reference.h"

#include <algorithm>
#include <cmath>

#include "weft/error.h"
#include "weft/ops.h"

namespace weft::cli {

std::vector<double> in_file_form(const FileTensor& tensor,
                                 const std::map<std::string, Tensor>& gradients) {
  int64_t rows = 0, width = 1;
  for (const FilePart& part : tensor.parts) {
    const Tensor& gradient = gradients.at(part.parameter);
    const int64_t slices = part.slice >= 0 ? gradient.size(0) : 1;
    const int64_t own = part.slice >= 0 ? gradient.size(1) : gradient.size(0);
    rows += own;
    width = gradient.numel() / slices / std::max<int64_t>(own, 1);
  }
  std::vector<double> made(static_cast<size_t>(rows * width));
  for (const FilePart& part : tensor.parts) {
    Tensor own = gradients.at(part.parameter);
    if (part.slice >= 0) own = slice(own, 0, part.slice, part.slice + 1);
    const std::vector<double> values = own.full_tensor().to(Device(cpu)).to_vector<double>();
    const int64_t count = static_cast<int64_t>(values.size()) / width;
    for (int64_t r = 0; r < count; ++r) {
      const bool is_whole = part.slice >= 0 || part.block == 0;
      const int64_t row =
          is_whole ? r : part.offset + r / part.block * part.stride + r % part.block;
      for (int64_t c = 0; c < width; ++c) {
        const int64_t at = tensor.transposed ? c * rows + row : row * width + c;
        made[static_cast<size_t>(at)] = values[static_cast<size_t>(r * width + c)];
      }
    }
  }
  return made;
}

/// The path without its last `count` parts.
static std::string above(std::string path, int count) {
  for (; count > 0 && !path.empty(); --count) {
    const size_t dot = path.rfind('.');
    path = dot == path.npos ? "" : path.substr(0, dot);
  }
  return path;
}

std::map<std::string, std::string> module_names(const TransformerConfig& config) {
  std::map<std::string, std::set<std::string>> found;
  for (const FileTensor& tensor : file_tensors(config)) {
    for (const FilePart& part : tensor.parts) {
      if (part.slice >= 0) continue;
      const bool is_joined = tensor.parts.size() > 1;
      // The module, and the module around it.
      for (const int count : {1, 2}) {
        const std::string ours = above(part.parameter, count);
        if (!ours.empty()) {
          found[ours].insert(is_joined && count == 1 ? "" : above(tensor.names[0], count));
        }
      }
    }
  }
  std::map<std::string, std::string> names;
  for (const auto& [ours, theirs] : found) {
    if (theirs.size() == 1 && !theirs.begin()->empty()) names[ours] = *theirs.begin();
  }
  // A module of transformers that adds to its input, or scales, where weft's does not.
  for (const char* other : {"model.embed_positions", "model.embed_types", "model"}) {
    names.erase(other);
  }
  if (config.embedding_scale != 1) names.erase("model.embed_tokens");
  // Others order heads before tokens, and routers return other tensors.
  std::erase_if(names, [](const auto& named) {
    const auto& ours = named.first;
    return ours.ends_with("q_norm") || ours.ends_with("k_norm") || ours.ends_with("mlp.gate");
  });
  return names;
}

/// "output.model.layers.*.mlp" of layer 3.
static std::string kind_of(const std::string& name) {
  std::string kind;
  for (size_t at = 0; at < name.size(); ++at) {
    const bool begins = at == 0 || name[at - 1] == '.';
    const size_t end = std::min(name.find('.', at), name.size());
    const bool is_number =
        begins && name.substr(at, end - at).find_first_not_of("0123456789") == name.npos;
    if (is_number && end > at) {
      kind += '*';
      at = end - 1;
    } else {
      kind += name[at];
    }
  }
  return kind;
}

StepReference::StepReference(const std::string& path, double tolerance)
    : file_(path), tolerance_(tolerance) {
  for (const SafetensorsEntry& entry : file_.entries()) kinds_.insert(kind_of(entry.name));
  if (!has("loss")) {
    fail("--against: ", path,
         " lacks the tensor \"loss\", expected a file of "
         "examples/check_step_reference.py");
  }
}

bool StepReference::has_kind(const std::string& name) const {
  return kinds_.contains(kind_of(name));
}

std::string StepReference::unused() const {
  const auto begins = [](const std::string& name, const char* kind) {
    return name.starts_with(kind);
  };
  for (const char* kind : {"input.", "output."}) {
    const bool is_some =
        std::ranges::any_of(used_, [&](const std::string& name) { return begins(name, kind); });
    for (const SafetensorsEntry& entry : file_.entries()) {
      if (is_some || !begins(entry.name, kind)) continue;
      return concat(in_quotes(entry.name), " and the other tensors of ", kind,
                    "* have no module here");
    }
  }
  for (const SafetensorsEntry& entry : file_.entries()) {
    const std::string& name = entry.name;
    if (used_.contains(name) || begins(name, "input.") || begins(name, "output.")) continue;
    return concat(in_quotes(name),
                  begins(name, "grad.") ? " is of no parameter here" : " is of an unknown kind");
  }
  return {};
}

void StepReference::miss(const std::string& words) {
  if (difference_.empty()) difference_ = concat(words, " is missing in the reference");
}

void raise(double& most, double value) {
  if (!std::isnan(most) && !(value <= most)) most = value;
}

void StepReference::compare(const std::string& name, const std::string& words,
                            const std::vector<double>& ours, double floor) {
  used_.insert(name);
  if (!difference_.empty()) return;
  const SafetensorsEntry& entry = file_.entry(name);
  Tensor read = empty(entry.shape, {.dtype = entry.dtype});
  file_.read_box(entry, read.box(), read.block().data);
  const std::vector<double> theirs = read.to_vector<double>();
  if (theirs.size() != ours.size()) {
    difference_ = concat(words, " has ", ours.size(), " elements, ", theirs.size(), ' ',
                         entry.shape, " in the reference");
    return;
  }
  double most = 0, largest = 0, ours_largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    raise(most, std::abs(ours[i] - theirs[i]));
    raise(largest, std::abs(theirs[i]));
    raise(ours_largest, std::abs(ours[i]));
  }
  const double relative = most == 0 ? 0 : most / std::max(largest, floor);
  ++compared_;
  if (relative <= tolerance_) {
    largest_ = std::max(largest_, relative);
    return;
  }
  if (largest == 0) {
    difference_ = concat(words, " is 0 in the reference, expected one whose largest element is ",
                         formatted("%.6g", ours_largest));
    return;
  }
  difference_ =
      concat(words, " differs by ", formatted("%.2g", relative), " of its largest element (",
             formatted("%.6g", ours_largest), ", in the reference ", formatted("%.6g", largest),
             "), expected at most ", formatted("%.2g", tolerance_));
}

std::vector<double> values_of(const Tensor& tensor) {
  return tensor.detach().full_tensor().to(Device(cpu)).to_vector<double>();
}

std::vector<HookHandle> compare_activations(TransformerModel& model, StepReference& reference) {
  std::vector<HookHandle> hooks;
  const auto names = module_names(model.config());
  for (const auto& [path, module] : model.named_modules()) {
    const auto found = names.find(path);
    if (found == names.end()) continue;
    const auto check = [&reference, name = found->second](const char* side,
                                                          const Tensors& tensors) {
      const std::string key = concat(side, '.', name);
      const std::string words = concat(side, " of ", name);
      if (tensors.empty() || !tensors[0] || !is_floating(tensors[0].dtype())) return;
      if (!reference.has(key)) {
        const bool is_output = std::string_view(side) == "output";
        if (is_output && reference.has_kind(key)) reference.miss(words);
        return;
      }
      reference.compare(key, words, values_of(tensors[0]));
    };
    hooks.push_back(module->add_hooks({.before =
                                           [check](const Tensors& inputs) {
                                             check("input", inputs);
                                             return inputs;
                                           },
                                       .after =
                                           [check](const Tensors&, const Tensors& outputs) {
                                             check("output", outputs);
                                             return outputs;
                                           }}));
  }
  return hooks;
}

}  // namespace weft::cli
