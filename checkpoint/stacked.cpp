// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/stacked.h"

#include <utility>

#include "weft/error.h"
#include "weft/ops/factories.h"
#include "weft/ops/shapes.h"

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

std::vector<std::string> names_by_expert(const std::string& name, const Shape& shape) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos || shape.ndim() != 3) return {};
  const std::string stack = name.substr(0, dot), leaf = name.substr(dot + 1);
  const bool is_of_experts = stack == "experts" || stack.ends_with(".experts");
  return is_of_experts ? slices_named(stack, leaf, shape[0]) : std::vector<std::string>();
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

void fill_slices(const Parameter& parameter, const TensorFiles& files,
                 const std::vector<std::string>& names) {
  const Tensor value = parameter.value().local();
  const Box box = parameter.value().box();
  Box inner = box;
  inner.offset.erase(0), inner.shape.erase(0);
  for (int64_t i = 0; i < box.shape[0] && inner.shape.product() > 0; ++i) {
    const std::string& name = names[static_cast<size_t>(box.offset[0] + i)];
    const Tensor part = empty(inner.shape, {.dtype = files.entry(name).dtype});
    files.read_box(name, inner, part.block().data);
    copy_(value[i], part);
  }
}

}  // namespace weft
