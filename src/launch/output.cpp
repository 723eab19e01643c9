// SPDX-License-Identifier: Apache-2.0
#include "src/launch/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace weft {

/// Bytes that a ready pipe accepts without blocking its writer.
static constexpr size_t kPipeRoom = 4096;

void LineSink::write() {
  while (!is_empty() && error_ == 0) {
    pollfd ready{descriptor_, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0) return;
    const size_t n = std::min(kPipeRoom, waiting_.size() - written_);
    const ssize_t done = ::write(descriptor_, waiting_.data() + written_, n);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) return;
    if (done < 0) error_ = errno;
    written_ += static_cast<size_t>(std::max<ssize_t>(done, 0));
    if (written_ < kMost) continue;
    waiting_.erase(0, written_);
    written_ = 0;
  }
  waiting_.clear();
  written_ = 0;
}

void LineSplitter::add(std::string_view bytes) {
  pending_ += bytes;
  cut_lines();
  if (pending_.size() < kLongest) return;
  write_line(pending_, "\n");
  pending_.clear();
  scanned_ = 0;
}

void LineSplitter::cut_lines() {
  size_t begin = 0;
  for (;;) {
    const size_t end = pending_.find_first_of("\n\r", scanned_);
    scanned_ = std::min(end, pending_.size());
    if (end == pending_.npos) break;
    const bool returns = pending_[end] == '\r';
    // The next byte shows whether this is \r or \r\n.
    if (returns && end + 1 == pending_.size()) break;
    const bool both = returns && pending_[end + 1] == '\n';
    const std::string_view line = std::string_view(pending_).substr(begin, end - begin);
    const std::string_view ends = std::string_view(pending_).substr(end, both ? 2 : 1);
    if (!returns || both || prefix_.empty()) {
      write_line(line, ends);
    } else if (!line.empty()) {
      // A line that its writer writes over: others write meanwhile, so that each state stands
      // alone.
      write_line(line, "\n");
    }
    begin = scanned_ = end + ends.size();
  }
  pending_.erase(0, begin);
  scanned_ -= begin;
}

void LineSplitter::write_line(std::string_view line, std::string_view end) {
  sink_.add(prefix_);
  sink_.add(line);
  sink_.add(end);
}

void LineSplitter::finish() {
  if (!prefix_.empty() && pending_.ends_with('\r')) pending_.pop_back();
  if (!pending_.empty()) write_line(pending_, ends_last_ ? "\n" : "");
  pending_.clear();
  scanned_ = 0;
}

}  // namespace weft
