// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <tuple>

#include "weft/error.h"

namespace weft {

static size_t layout_number(Manifest& manifest, const Cuts& cuts) {
  std::vector<Cuts>& layouts = manifest.layouts;
  const auto found = std::find(layouts.begin(), layouts.end(), cuts);
  const auto number = static_cast<size_t>(found - layouts.begin());
  if (number == layouts.size()) layouts.push_back(cuts);
  return number;
}

static void check_can_be_saved(const std::string& name, const Tensor& tensor, int ranks) {
  if (!tensor) fail("save: there is no tensor ", in_quotes(name), " on this rank");
  if (tensor.device().kind == DeviceKind::meta) {
    fail("save: tensor ", in_quotes(name), " has no memory; call materialize first");
  }
  if (!tensor.is_sharded()) return;
  if (tensor.sharding().has_partial()) {
    fail("save: tensor ", in_quotes(name), " is ", tensor.sharding(),
         "; its terms are no values, redistribute it first");
  }
  if (const int size = tensor.sharding().mesh().size(); size != ranks) {
    fail("save: tensor ", in_quotes(name), " lies on ", size, " ranks but ", ranks,
         " save; every mesh must have all of them");
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
  for (const auto& [name, tensor] : state.tensors) {
    check_can_be_saved(name, tensor, ranks);
    const size_t layout = layout_number(manifest, cuts_of(tensor.sharding()));
    manifest.tensors.push_back({name, tensor.dtype(), tensor.shape(), layout});
  }
  std::stable_sort(manifest.tensors.begin(), manifest.tensors.end(),
                   [](const SavedTensor& a, const SavedTensor& b) {
                     return size_of(a.dtype) > size_of(b.dtype);
                   });
  return manifest;
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

}  // namespace weft
