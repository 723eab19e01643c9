// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.h"

#include <utility>

#include "weft/error.h"

namespace weft {

/// The leaves under which files have a matrix of an expert.
static std::vector<std::string> leaves_of(const std::string& leaf) {
  static const std::pair<const char*, const char*> kMixtral[] = {
      {"gate_proj", "w1"}, {"up_proj", "w3"}, {"down_proj", "w2"}};
  std::vector<std::string> leaves = {leaf};
  for (const auto& [own, other] : kMixtral) {
    if (leaf == own) leaves.emplace_back(other);
  }
  return leaves;
}

static std::vector<std::string> slices_named(const std::string& stack, const std::string& leaf,
                                             int64_t count) {
  std::vector<std::string> names;
  for (int64_t slice = 0; slice < count; ++slice) {
    names.push_back(concat(stack, ".", slice, ".", leaf, ".weight"));
  }
  return names;
}

FileTensor slice_of(const std::string& parameter, const std::string& name, int64_t slice) {
  return {
      .names = {name}, .transposed = false, .parts = {{.parameter = parameter, .slice = slice}}};
}

std::vector<FileTensor> tensors_of(const std::string& name, const Shape& shape) {
  const size_t dot = name.rfind('.');
  const std::string stack = name.substr(0, dot == name.npos ? 0 : dot);
  const bool is_of_experts = stack == "experts" || stack.ends_with(".experts");
  if (!is_of_experts || shape.ndim() != 3) {
    const int64_t rows = shape.empty() ? 1 : shape[0];
    return {{{name}, false, {{name, rows, 0, rows, rows}}}};
  }
  std::vector<FileTensor> tensors;
  for (const std::string& slice : slices_named(stack, name.substr(dot + 1), shape[0])) {
    tensors.push_back(slice_of(name, slice, static_cast<int64_t>(tensors.size())));
  }
  return tensors;
}

std::vector<std::string> names_of_slices(const NamedParameter& named, const TensorFiles& files) {
  const std::string& name = named.name();
  const Shape& shape = named.parameter->shape();
  const size_t dot = name.rfind('.');
  if (dot == name.npos || shape.ndim() < 2) return {};
  for (const std::string& leaf : leaves_of(name.substr(dot + 1))) {
    std::vector<std::string> names = slices_named(name.substr(0, dot), leaf, shape[0]);
    if (!names.empty() && files.contains(names[0])) return names;
  }
  return {};
}

}  // namespace weft
