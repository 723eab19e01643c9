// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/syntax.h"

namespace weft::jinja {

/// A chat template: the part of Jinja2 that transformers' templates use, with its settings.
class Template {
 public:
  /// Reads a template. std::invalid_argument names the line and what is wrong or unknown.
  explicit Template(std::string_view source);
  /// The text for the variables, which are found before Jinja's own names. std::invalid_argument
  /// names the line of an error, or has the template's sentence when it refuses the values. Work
  /// and memory are bounded.
  std::string render(Named variables, const Clock& clock = {}) const;
  /// The same; also adds the bytes [begin, end) that blocks of the tag generation wrote.
  std::string render(Named variables, std::vector<std::pair<size_t, size_t>>& generated) const;

 private:
  std::shared_ptr<const Body> body_;
};

}  // namespace weft::jinja
