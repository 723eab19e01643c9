// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"

#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

#include "weft/warnings.h"

namespace weft {

void throw_invalid_argument(const std::string& what) { throw std::invalid_argument(escaped(what)); }

void throw_runtime_error(const std::string& what) { throw std::runtime_error(escaped(what)); }

namespace {

/// The first character of a text: its bytes, and its code point, -1 for a byte that is not UTF-8.
struct Character {
  size_t bytes = 1;
  int32_t code = -1;
};

}  // namespace

static Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const int lead = byte(0);
  if (lead < 0x80) return {1, lead};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  int32_t code = lead & (0x7f >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::array<int32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool is_surrogate = code >= 0xd800 && code < 0xe000;
  if (code < least[bytes] || code > 0x10ffff || is_surrogate) return {};
  return {bytes, code};
}

/// Whether a terminal acts on the character or shows nothing: controls, marks and overrides of the
/// direction of text, separators of lines, characters of no width, tags.
static bool is_hidden(int32_t code) {
  constexpr std::pair<int32_t, int32_t> ranges[] = {
      {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x34f, 0x34f},    {0x61c, 0x61c},
      {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f},  {0x2028, 0x202e},
      {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},  {0xffa0, 0xffa0},
      {0xfff0, 0xfffb}, {0xffff, 0xffff}, {0xe000, 0xf8ff}, {0xe0000, 0xe0fff}};
  for (const auto& [first, last] : ranges) {
    if (code >= first && code <= last) return true;
  }
  return false;
}

/// Appends the characters of `text` that begin before byte `longest`.
static void append_escaped(std::string& out, std::string_view text, size_t longest,
                           bool in_quotes) {
  for (size_t at = 0; at < std::min(text.size(), longest);) {
    const Character character = first_of(text.substr(at));
    if (character.code < 0 || (character.code < 0x80 && is_hidden(character.code))) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", static_cast<unsigned char>(text[at]));
      out += escape;
    } else if (is_hidden(character.code)) {
      char escape[16];
      std::snprintf(escape, sizeof escape, "\\u{%x}", static_cast<unsigned>(character.code));
      out += escape;
    } else {
      if (in_quotes && (text[at] == '"' || text[at] == '\\')) out += '\\';
      out += text.substr(at, character.bytes);
    }
    at += character.bytes;
  }
}

std::string in_quotes(std::string_view name) {
  constexpr size_t longest = 120;
  std::string text = "\"";
  append_escaped(text, name, longest, true);
  return text + (name.size() > longest ? "...\"" : "\"");
}

std::string escaped(std::string_view text) {
  std::string out;
  append_escaped(out, text, text.size(), false);
  return out;
}

std::string printable(std::string_view name) {
  std::string text = escaped(name);
  if (text == name && !name.empty()) return text;
  std::string quoted(1, '"');
  append_escaped(quoted, name, name.size(), true);
  return quoted + '"';
}

static std::mutex handler_mutex;
/// Never destroyed: threads may warn while the process exits.
static auto& warning_handler = *new std::shared_ptr<const WarningHandler>;

WarningHandler set_warning_handler(WarningHandler handler) {
  std::shared_ptr<const WarningHandler> next;
  if (handler) next = std::make_shared<const WarningHandler>(std::move(handler));
  const std::lock_guard lock(handler_mutex);
  const auto before = std::exchange(warning_handler, std::move(next));
  return before ? *before : WarningHandler();
}

void give_warning(const std::string& sentence) {
  std::shared_ptr<const WarningHandler> handler;
  {
    const std::lock_guard lock(handler_mutex);
    handler = warning_handler;
  }
  if (handler) (*handler)(sentence);
}

}  // namespace weft
