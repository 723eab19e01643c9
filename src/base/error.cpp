// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>

namespace weft {

void throw_invalid_argument(const std::string& what) { throw std::invalid_argument(escaped(what)); }

void throw_runtime_error(const std::string& what) { throw std::runtime_error(escaped(what)); }

std::string formatted(const char* format, ...) {
  char text[512];
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

/// True when a terminal acts on the character or shows nothing: controls, marks and overrides of
/// the direction of text, separators of lines, characters of no width, tags.
static bool is_hidden(int32_t code) {
  constexpr std::pair<int32_t, int32_t> ranges[] = {
      {0x00, 0x1f},     {0x7f, 0x9f},     {0xad, 0xad},     {0x34f, 0x34f},    {0x61c, 0x61c},
      {0x115f, 0x1160}, {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x200b, 0x200f},  {0x2028, 0x202e},
      {0x2060, 0x206f}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xfeff, 0xfeff},  {0xffa0, 0xffa0},
      {0xfff0, 0xfffb}, {0xffff, 0xffff}, {0xe000, 0xf8ff}, {0xe0000, 0xe0fff}};
  return std::ranges::any_of(
      ranges, [&](const auto& range) { return code >= range.first && code <= range.second; });
}

/// Appends the characters of `text` that begin before byte `longest`.
static void append_escaped(std::string& out, std::string_view text, size_t longest,
                           bool in_quotes) {
  for (size_t at = 0; at < std::min(text.size(), longest);) {
    const std::string_view rest = text.substr(at);
    utf8proc_int32_t code = -1;  // stays -1 for a byte that is not UTF-8
    const auto bytes = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(rest.data()),
                                        static_cast<utf8proc_ssize_t>(rest.size()), &code);
    if (code < 0 || (code < 0x80 && is_hidden(code))) {
      out += formatted("\\x%02x", static_cast<unsigned char>(text[at]));
    } else if (is_hidden(code)) {
      out += formatted("\\u{%x}", static_cast<unsigned>(code));
    } else {
      if (in_quotes && (text[at] == '"' || text[at] == '\\')) out += '\\';
      out += rest.substr(0, static_cast<size_t>(bytes));
    }
    at += static_cast<size_t>(std::max<utf8proc_ssize_t>(bytes, 1));
  }
}

static std::string quoted(std::string_view name, size_t longest) {
  std::string text = "\"";
  append_escaped(text, name, longest, true);
  return text + (name.size() > longest ? "...\"" : "\"");
}

std::string in_quotes(std::string_view name) { return quoted(name, 120); }

std::string escaped(std::string_view text) {
  std::string out;
  append_escaped(out, text, text.size(), false);
  return out;
}

std::string printable(std::string_view name) {
  std::string text = escaped(name);
  return text == name && !name.empty() ? text : quoted(name, name.size());
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
