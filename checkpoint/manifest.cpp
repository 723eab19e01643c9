// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.h"

#include <cinttypes>
#include <cstdio>
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

}  // namespace weft
