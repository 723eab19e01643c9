// SPDX-License-Identifier: Apache-2.0
#include "cli/ordered_texts.h"

#include <cstdio>
#include <utility>

namespace weft::cli {

OrderedTexts::OrderedTexts(std::vector<std::string> starts)
    : waiting_(std::move(starts)), ended_(waiting_.size()) {
  print_first();
}

void OrderedTexts::print_first() {
  if (first_ == waiting_.size()) return;
  const std::string text = std::exchange(waiting_[first_], {});
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void OrderedTexts::add(size_t text, std::string_view part) {
  waiting_[text] += part;
  if (text == first_) print_first();
}

void OrderedTexts::end(size_t text) {
  waiting_[text] += '\n';
  ended_[text] = true;
  while (first_ < waiting_.size()) {
    print_first();
    if (!ended_[first_]) return;
    ++first_;
  }
}

}  // namespace weft::cli
