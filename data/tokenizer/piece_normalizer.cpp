// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/piece_normalizer.h"

#include <cstring>
#include <utility>

#include "data/tokenizer/unicode.h"
#include "weft/error.h"

namespace weft::text {

static constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";  // U+2581

PieceNormalizer::PieceNormalizer(const std::string& what, PieceNormalization rules)
    : rules_(std::move(rules)) {
  const std::string& table = rules_.replacements;
  if (table.empty()) return;
  uint32_t size = 0;
  const bool has_size = table.size() > sizeof size;
  if (has_size) std::memcpy(&size, table.data(), sizeof size);
  if (!has_size || size < sizeof size || size > table.size() - sizeof size ||
      table.back() != '\0') {
    fail(what, ": the table of replacements has ", table.size(),
         " bytes, expected as many as it says");
  }
  units_ = size / sizeof size;
  texts_ = std::string_view(table).substr(sizeof size + size);
}

/// A unit of the double array; one that no text reaches beyond its end.
uint32_t PieceNormalizer::unit(size_t at) const {
  uint32_t value = 0;
  if (at < units_) std::memcpy(&value, rules_.replacements.data() + 4 * (at + 1), sizeof value);
  return value;
}

PieceNormalizer::Prefix PieceNormalizer::prefix_of(std::string_view text) const {
  if (const size_t kept = rules_.kept.longest(text)) return {text.substr(0, kept), kept};
  Prefix prefix{text.substr(0, code_point_at(text, 0).bytes), code_point_at(text, 0).bytes};
  if (units_ == 0) return prefix;
  const auto offset = [](uint32_t unit) -> size_t { return (unit >> 10) << ((unit & 0x200) >> 6); };
  size_t at = offset(unit(0));
  for (size_t i = 0; i < text.size(); ++i) {
    const auto label = static_cast<unsigned char>(text[i]);
    at ^= label;
    const uint32_t node = unit(at);
    if ((node & 0x800000FF) != label || at >= units_) break;
    at ^= offset(node);
    if ((node & 0x100) == 0) continue;
    const size_t begin = unit(at) & 0x7FFFFFFF;
    if (begin >= texts_.size()) break;
    prefix = {std::string_view(texts_.data() + begin), i + 1};
  }
  return prefix;
}

std::string PieceNormalizer::apply(std::string_view text) const {
  while (rules_.removes_spaces && !text.empty()) {
    const Prefix prefix = prefix_of(text);
    if (prefix.text != " ") break;
    text.remove_prefix(prefix.bytes);
  }
  std::string to;
  if (text.empty()) return to;
  to.reserve(text.size() + text.size() / 2);
  const std::string_view space = rules_.escapes_spaces ? kEscapedSpace : " ";
  if (rules_.adds_space && !rules_.space_is_suffix) to += space;
  bool after_space = rules_.removes_spaces;
  while (!text.empty()) {
    auto [part, bytes] = prefix_of(text);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    for (const char byte : part) {
      if (byte == ' ') {
        to += space;
      } else {
        to += byte;
      }
    }
    if (!part.empty()) after_space = part.ends_with(' ');
    if (!rules_.removes_spaces) after_space = false;
    text.remove_prefix(bytes);
  }
  while (rules_.removes_spaces && to.ends_with(space)) to.resize(to.size() - space.size());
  if (rules_.adds_space && rules_.space_is_suffix) to += space;
  return to;
}

}  // namespace weft::text
