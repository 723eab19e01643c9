// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

/// Prints texts that grow at the same time one after the other: the first that has not ended as it
/// grows, the later ones when those before have ended. Each ends its line.
class OrderedTexts {
 public:
  /// `starts`: the start of each text.
  explicit OrderedTexts(std::vector<std::string> starts);
  void add(size_t text, std::string_view part);
  void end(size_t text);

 private:
  void print_first();

  std::vector<std::string> waiting_;
  std::vector<bool> ended_;
  /// The first text that has not ended.
  size_t first_ = 0;
};

}  // namespace weft::cli
