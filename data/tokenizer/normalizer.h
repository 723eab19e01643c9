// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::text {

/// The most bytes of a token's text, however its steps change it.
inline constexpr size_t kLongestText = size_t{1} << 16;

/// Normalizes text by steps in order.
class Normalizer {
 public:
  struct Step {
    /// The changed text; std::invalid_argument when replacements make it longer than `most` bytes.
    std::function<std::string(std::string_view text, size_t most)> apply;
    /// Whether the step leaves the text as it is. Null: it may change any text.
    bool (*keeps)(std::string_view text) = nullptr;
  };

  void add(Step step) { steps_.push_back(std::move(step)); }
  size_t steps() const { return steps_.size(); }
  /// The normalized text: `text` itself or what `scratch` holds afterwards. `text` is valid UTF-8.
  /// std::invalid_argument when replacements make it more than 64 times as long.
  std::string_view apply(std::string_view text, std::string& scratch) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace weft::text
