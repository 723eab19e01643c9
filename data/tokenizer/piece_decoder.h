// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/text_model.h"
#include "data/unicode/unicode.h"

namespace weft::text {

/// Makes text from tokens one at a time; text whose last character is incomplete is held back.
class PieceDecoder {
 public:
  /// `texts` outlives the decoder. `streams`: whether the characters of a run of byte tokens are
  /// returned before the run ends.
  PieceDecoder(const PieceTexts& texts, bool streams) : texts_(&texts), streams_(streams) {}

  /// Appends the text that the token completes to `to`.
  void push(int64_t id, std::string& to) {
    const auto index = static_cast<size_t>(id);
    const bool all_bytes = texts_->is_byte.empty();
    const bool is_byte = all_bytes || texts_->is_byte[index];
    if (!is_byte && !held_.empty()) flush(true, to);
    if (!texts_->last.empty()) return push_open(index, to);
    run_is_first_ = run_is_first_ && is_byte;
    const std::string& text =
        is_first_ && !texts_->first.empty() ? texts_->first[index] : texts_->following[index];
    is_first_ = false;
    if (id == texts_->unstripped) removed_ = texts_->spaces_removed;
    if (!is_byte) return append(text, to);
    held_ += text;
    flush(false, to);
  }
  /// Appends what is held back.
  void finish(std::string& to) {
    if (open_) append(std::string_view(texts_->last[*open_]).substr(open_bytes_), to);
    open_.reset();
    flush(true, to);
  }

 private:
  /// Appends what is left of the token before, and of this one what it has as the last one, too.
  void push_open(size_t index, std::string& to) {
    if (open_) append(std::string_view(texts_->following[*open_]).substr(open_bytes_), to);
    const std::string_view text = texts_->following[index], last = texts_->last[index];
    open_ = index;
    open_bytes_ = text.starts_with(last) ? last.size() : 0;
    append(text.substr(0, open_bytes_), to);
  }

  /// Appends text of a run of byte tokens.
  void append_run(std::string_view text, std::string& to) {
    if (!texts_->changes_run) return append(text, to);
    std::string changed(text);
    texts_->changes_run(changed, run_is_first_);
    append(changed, to);
  }

  void append(std::string_view text, std::string& to) {
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

  /// Appends what the held bytes are so far, or all of them at the end.
  void flush(bool is_end, std::string& to) {
    using Broken = PieceTexts::Broken;
    std::string_view held = held_;
    while (!held.empty()) {
      // First: to look through a run at each of its tokens takes quadratic time.
      if (texts_->broken == Broken::run && !is_end && !streams_) break;
      const size_t valid = valid_prefix(held);
      if (texts_->broken == Broken::run && is_end && valid < held.size()) {
        for (size_t i = 0; i < held.size(); ++i) append_run(kReplacement, to);
        held = {};
        break;
      }
      append_run(held.substr(0, valid), to);
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

  const PieceTexts* texts_;
  bool streams_;
  bool is_first_ = true, run_is_first_ = true;
  /// The last token, and how many bytes of its text are appended.
  std::optional<size_t> open_ = {};
  size_t open_bytes_ = 0;
  int64_t removed_ = 0;
  std::string held_;
};

}  // namespace weft::text
