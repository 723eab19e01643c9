// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/subject.h"

#include <algorithm>
#include <array>

#include "src/comm/transport.h"
#include "weft/extend/hash.h"

namespace weft {

WEFT_STATIC_TLS static constinit thread_local const SubjectScope* innermost = nullptr;

SubjectScope::SubjectScope(uint64_t number, std::string_view words, bool is_module) noexcept
    : outer_(innermost), number_(number), words_(words), is_module_(is_module) {
  innermost = this;
}

SubjectScope::SubjectScope(uint64_t number, std::string_view words) noexcept
    : SubjectScope(number, words, false) {}

SubjectScope SubjectScope::of_module(uint64_t number, std::string_view name) noexcept {
  if (!innermost) return {0, {}, true};
  return {mixed(innermost->number_, number), name, true};
}

SubjectScope::~SubjectScope() { innermost = outer_; }

uint64_t SubjectScope::current() noexcept { return innermost ? innermost->number_ : 0; }

void SubjectScope::write_words(char* text, size_t size) noexcept {
  size_t length = 0;
  const auto add = [&](std::string_view part) {
    const size_t count = std::min(part.size(), size - 1 - length);
    std::copy_n(part.begin(), count, text + length);
    length += count;
  };
  if (innermost && !innermost->is_module_) add(innermost->words_);
  std::array<std::string_view, 16> path;
  size_t depth = 0;
  for (const SubjectScope* at = innermost; at && at->is_module_ && depth < path.size();
       at = at->outer_) {
    if (!at->words_.empty()) path[depth++] = at->words_;
  }
  for (size_t i = depth; i-- > 0;) {
    add(i + 1 == depth ? "module \"" : ".");
    add(path[i]);
  }
  if (depth > 0) add("\"");
  text[length] = '\0';
}

uint64_t next_of_kind(const Communicator& ranks, uint64_t kind) {
  return ranks.transport()->next_of_kind(kind);
}

}  // namespace weft
