// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace weft {

/// Writes lines of several processes to one descriptor, without ever blocking on it.
class LineSink {
 public:
  explicit LineSink(int descriptor) : descriptor_(descriptor) {}

  void add(std::string_view text) {
    if (error_ == 0) waiting_ += text;
  }
  /// Writes what can be written at once.
  void write();
  int descriptor() const { return descriptor_; }
  bool is_empty() const { return written_ == waiting_.size(); }
  /// Whether callers should wait before they add more.
  bool is_full() const { return waiting_.size() - written_ >= kMost; }
  /// Why something that was added was dropped, as an errno; 0: nothing was.
  int error() const { return error_; }

 private:
  static constexpr size_t kMost = size_t{1} << 20;

  int descriptor_;
  std::string waiting_;
  size_t written_ = 0;
  int error_ = 0;
};

/// Cuts what one rank writes into lines, each of which goes to the sink at once.
class LineSplitter {
 public:
  /// A last line without an end gets one if `ends_last`.
  LineSplitter(LineSink& sink, std::string prefix, bool ends_last)
      : sink_(sink), prefix_(std::move(prefix)), ends_last_(ends_last) {}

  void add(std::string_view bytes);
  /// Nothing follows.
  void finish();

 private:
  static constexpr size_t kLongest = size_t{1} << 20;

  void cut_lines();
  void write_line(std::string_view line, std::string_view end);

  LineSink& sink_;
  std::string prefix_;
  bool ends_last_;
  std::string pending_;
  /// No line ends before that.
  size_t scanned_ = 0;
};

}  // namespace weft
