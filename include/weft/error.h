// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// A collective that could not end: a rank threw, died, never came or called something else.
class WEFT_API CommError : public std::runtime_error {
 public:
  CommError(const std::string& what, int rank, std::string operation, uint64_t sequence)
      : std::runtime_error(what),
        rank_(rank),
        operation_(std::move(operation)),
        sequence_(sequence) {}

  /// The rank at fault, or -1 when it is not known.
  int rank() const { return rank_; }
  const std::string& operation() const { return operation_; }
  uint64_t sequence() const { return sequence_; }

 private:
  int rank_;
  std::string operation_;
  uint64_t sequence_;
};

[[noreturn]] WEFT_API void throw_invalid_argument(const std::string& what);
[[noreturn]] WEFT_API void throw_runtime_error(const std::string& what);

/// A name that came from outside, for a message: in quotes, escaped, at most about 120 bytes of it.
/// Different names of that length have different texts.
WEFT_API std::string in_quotes(std::string_view name);
/// A name or path as it is, and in quotes, escaped and whole, when something in it needs an escape.
WEFT_API std::string printable(std::string_view name);
/// The text as one harmless line of UTF-8: control characters and bytes that are not UTF-8 as \x1b,
/// others that steer a terminal or are invisible as \u{202e}. The messages of `fail` and
/// `fail_call` are escaped.
WEFT_API std::string escaped(std::string_view text);

/// All parts, printed one after the other.
template <class... Parts> [[gnu::cold]] std::string concat(const Parts&... parts) {
  std::ostringstream out;
  out << std::boolalpha;
  (out << ... << parts);
  return out.str();
}

/// A text as std::printf writes it, of at most 511 bytes.
[[gnu::format(printf, 1, 2)]] WEFT_API std::string formatted(const char* format, ...);

/// A list as text: what `part` returns for each element, by default the element itself, separated
/// by `between`.
template <class List, class Part = std::identity>
[[gnu::cold]] std::string listed(const List& list, const Part& part = {},
                                 const char* between = ", ") {
  std::string text;
  for (const auto& element : list) text += concat(text.empty() ? "" : between, part(element));
  return text;
}

/// The caller's mistake: throws std::invalid_argument with all parts as one sentence.
template <class... Parts> [[noreturn, gnu::cold, gnu::noinline]] void fail(const Parts&... parts) {
  throw_invalid_argument(concat(parts...));
}

/// A library or system call that failed: throws std::runtime_error "<call>: <parts>".
template <class... Parts>
[[noreturn, gnu::cold, gnu::noinline]] void fail_call(const char* call, const Parts&... parts) {
  throw_runtime_error(concat(call, ": ", parts...));
}

/// Receives a warning: one sentence without a full stop.
using WarningHandler = std::function<void(const std::string& sentence)>;

/// Sets the receiver of all warnings of this process and returns the one before; ranks call it on
/// their threads. Without one, warnings are dropped; the program `weft` prints them to stderr, and
/// Python passes them to `warnings.warn`.
WEFT_API WarningHandler set_warning_handler(WarningHandler handler);

/// Passes a sentence to the handler.
WEFT_API void give_warning(const std::string& sentence);

/// Passes all parts to the handler as one sentence.
template <class... Parts> [[gnu::cold]] void warn(const Parts&... parts) {
  give_warning(concat(parts...));
}

}  // namespace weft
