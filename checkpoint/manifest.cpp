// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include "weft/error.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/transform.hpp>

namespace weft {

std::vector<int> SavedSharding::sizes() const {
  return axes | ranges::views::transform(&MeshAxis::size) | ranges::to<std::vector>();
}

std::string file_name_of(int rank, int ranks) {
  char name[64];
  std::snprintf(name, sizeof name, "rank-%05d-of-%05d.safetensors", rank, ranks);
  return name;
}

std::string directory_name_of(int64_t step, const std::string& generation) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%08" PRId64 "-%s", step, generation.c_str());
  return name;
}

bool parse_file_name(const std::string& name, int& rank, int& ranks) {
  if (name.size() > 60 || std::sscanf(name.c_str(), "rank-%9d-of-%9d", &rank, &ranks) != 2) {
    return false;
  }
  return rank >= 0 && rank < ranks && name == file_name_of(rank, ranks);
}

bool parse_directory_name(const std::string& name, int64_t& step, std::string& generation) {
  char digits[17] = {};
  if (name.size() > 60 ||
      std::sscanf(name.c_str(), "step-%18" SCNd64 "-%16[0-9a-f]", &step, digits) != 2) {
    return false;
  }
  generation = digits;
  return step >= 0 && generation.size() == 16 && name == directory_name_of(step, generation);
}

static size_t layout_number(Manifest& manifest, const Sharding& sharding) {
  SavedSharding saved;
  if (sharding) saved.pattern = sharding.pattern();
  const DeviceMesh mesh = sharding.mesh();
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    saved.axes.push_back({mesh.axis_name(axis), mesh.axis_size(axis)});
  }
  std::vector<SavedSharding>& layouts = manifest.layouts;
  const auto found = std::find(layouts.begin(), layouts.end(), saved);
  const auto number = static_cast<size_t>(found - layouts.begin());
  if (saved.pattern.has_sizes()) manifest.format = Manifest::kFormatOfParts;
  if (number == layouts.size()) layouts.push_back(std::move(saved));
  return number;
}

/// Whether a JSON string can hold the text.
static bool is_utf8(const std::string& text) {
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

static void check_can_be_saved(const std::string& name, const Tensor& tensor, int ranks) {
  if (name == "__metadata__" || !is_utf8(name)) {
    fail("save: key of a tensor is ", in_quotes(name),
         ", expected UTF-8 other than \"__metadata__\"");
  }
  if (!tensor) fail("save: tensor ", in_quotes(name), " is undefined, expected a tensor");
  if (tensor.device().kind == DeviceKind::meta) {
    fail("save: tensor ", in_quotes(name), " has no memory, expected some; call materialize first");
  }
  if (!tensor.is_sharded()) return;
  if (tensor.sharding().has_partial()) {
    fail("save: tensor ", in_quotes(name), " is laid out as ", tensor.sharding(),
         ", expected no Partial; redistribute it first");
  }
  if (const int size = tensor.sharding().mesh().size(); size != ranks) {
    fail("save: tensor ", in_quotes(name), " is laid out over ", size, " ranks, expected ", ranks,
         ", all that save");
  }
}

Manifest manifest_of(const StateDict& state, int ranks, int64_t step,
                     const std::string& generation) {
  Manifest manifest{.ranks = ranks,
                    .step = step,
                    .generation = generation,
                    .layouts = {},
                    .tensors = {},
                    .numbers = state.numbers};
  for (const auto& [key, number] : state.numbers) {
    if (!is_utf8(key)) fail("save: key of a number is ", in_quotes(key), ", expected UTF-8");
  }
  for (const auto& [name, tensor] : state.tensors) {
    check_can_be_saved(name, tensor, ranks);
    const size_t layout = layout_number(manifest, tensor.sharding());
    manifest.tensors.push_back({name, tensor.dtype(), tensor.shape(), layout});
  }
  std::stable_sort(manifest.tensors.begin(), manifest.tensors.end(),
                   [](const SavedTensor& a, const SavedTensor& b) {
                     return size_of(a.dtype) > size_of(b.dtype);
                   });
  return manifest;
}

}  // namespace weft
