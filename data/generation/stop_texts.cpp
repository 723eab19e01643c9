// SPDX-License-Identifier: Apache-2.0
#include "data/generation/stop_texts.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weft/error.h"

namespace weft {

StopTexts::StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {
  for (const std::string& stop : stops_) {
    if (stop.empty()) fail("generate: a stop text is empty, expected at least 1 character");
  }
}

/// The length of the longest end of `text` that begins `stop`.
static size_t begun(std::string_view text, std::string_view stop) {
  size_t size = std::min(text.size(), stop.size() - 1);
  while (size > 0 && !stop.starts_with(text.substr(text.size() - size))) --size;
  return size;
}

std::string StopTexts::push(const std::string& text) {
  if (has_stopped_) return {};
  held_ += text;
  size_t first = held_.npos, waiting = 0;
  for (const std::string& stop : stops_) {
    first = std::min(first, held_.find(stop));
    waiting = std::max(waiting, begun(held_, stop));
  }
  has_stopped_ = first != held_.npos;
  const size_t certain = has_stopped_ ? first : held_.size() - waiting;
  std::string part = held_.substr(0, certain);
  held_.erase(0, has_stopped_ ? held_.size() : certain);
  return part;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace weft
