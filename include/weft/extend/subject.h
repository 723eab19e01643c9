// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "weft/export.h"

namespace weft {

class Communicator;

/// Says what the collectives that start in this scope move: by a number that is equal on all ranks,
/// and in words for errors. Ranks compare the number before a collective runs, so that two ranks
/// that move different things of one size fail and do not mix them. The innermost scope counts.
class WEFT_API SubjectScope {
 public:
  /// `words` must outlive the scope: "module "layers.0"".
  SubjectScope(uint64_t number, std::string_view words) noexcept;
  /// A module of that name, called by the one whose scope is around this. The outermost one has
  /// number 0: a program may call it directly, or as a part of another module.
  static SubjectScope of_module(uint64_t number, std::string_view name) noexcept;
  ~SubjectScope();
  SubjectScope(const SubjectScope&) = delete;
  SubjectScope& operator=(const SubjectScope&) = delete;

  /// The number of the innermost scope; 0 outside all of them.
  static uint64_t current() noexcept;
  /// Writes the words of the innermost scope into `text`: at most `size` - 1 characters, and a 0.
  static void write_words(char* text, size_t size) noexcept;

 private:
  SubjectScope(uint64_t number, std::string_view words, bool is_module) noexcept;

  const SubjectScope* outer_;
  uint64_t number_;
  std::string_view words_;
  bool is_module_;
};

/// Returns how often this rank has asked before, for the group and the `kind`: equal on all ranks
/// that make the same calls.
WEFT_API uint64_t next_of_kind(const Communicator& ranks, uint64_t kind);

}  // namespace weft
