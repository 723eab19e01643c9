// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/piece_decoder.h"

#include "data/tokenizer/unicode.h"

namespace weft::text {

void PieceDecoder::append(std::string_view text, std::string& to) {
  while (removed_ < texts_->spaces_removed && !text.empty()) {
    if (text[0] != ' ') {
      removed_ = texts_->spaces_removed;
      break;
    }
    text.remove_prefix(1);
    ++removed_;
  }
  to += text;
}

void PieceDecoder::flush(bool is_end, std::string& to) {
  using Broken = PieceTexts::Broken;
  std::string_view held = held_;
  while (!held.empty()) {
    // First: to look through a run at each of its tokens takes quadratic time.
    if (texts_->broken == Broken::run && !is_end && !streams_) break;
    const size_t valid = valid_prefix(held);
    if (texts_->broken == Broken::run && is_end && valid < held.size()) {
      for (size_t i = 0; i < held.size(); ++i) append(kReplacement, to);
      held = {};
      break;
    }
    append(held.substr(0, valid), to);
    held.remove_prefix(valid);
    if (held.empty()) break;
    const Utf8Start start = utf8_start(held);
    if (start.kind == Utf8Start::Kind::incomplete && !is_end) break;
    if (texts_->broken == Broken::run && !is_end) break;
    append(kReplacement, to);
    held.remove_prefix(texts_->broken == Broken::prefix ? start.bytes : 1);
  }
  held_.erase(0, held_.size() - held.size());
}

void PieceDecoder::push(int64_t id, std::string& to) {
  const auto index = static_cast<size_t>(id);
  const bool all_bytes = texts_->is_byte.empty();
  const bool is_byte = all_bytes || texts_->is_byte[index];
  if (!is_byte && !held_.empty()) flush(true, to);
  const std::string& text =
      is_first_ && !texts_->first.empty() ? texts_->first[index] : texts_->following[index];
  is_first_ = false;
  if (id == texts_->unstripped) removed_ = texts_->spaces_removed;
  if (!is_byte) return append(text, to);
  held_ += text;
  flush(false, to);
}

void PieceDecoder::finish(std::string& to) { flush(true, to); }

}  // namespace weft::text
