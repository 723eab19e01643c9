// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/read_box.h"

#include <cstring>
#include <range/v3/numeric/inner_product.hpp>
#include <vector>

namespace weft {

// A gap shorter than a page comes from the disk anyway; a read through it saves a system call.
static constexpr int64_t kLargestGap = 4096;
static constexpr int64_t kLargestWindow = int64_t{1} << 18;

/// Gathers runs of equal length, in the order of the file, into reads of a window.
class RunReader {
 public:
  RunReader(const File& file, int64_t run_bytes, std::byte* into)
      : file_(file), run_bytes_(run_bytes), into_(into) {}

  void add(int64_t offset) {
    const bool joins = !starts_.empty() && offset - window_end() < kLargestGap &&
                       offset + run_bytes_ - starts_.front() <= kLargestWindow;
    if (!joins) flush();
    starts_.push_back(offset);
  }

  void flush() {
    if (starts_.empty()) return;
    const int64_t begin = starts_.front();
    const auto runs = static_cast<int64_t>(starts_.size());
    if (window_end() - begin == runs * run_bytes_) {
      file_.read(begin, {into_, static_cast<size_t>(runs * run_bytes_)});
      into_ += runs * run_bytes_;
    } else {
      window_.resize(static_cast<size_t>(window_end() - begin));
      file_.read(begin, window_);
      for (const int64_t start : starts_) {
        std::memcpy(into_, window_.data() + (start - begin), static_cast<size_t>(run_bytes_));
        into_ += run_bytes_;
      }
    }
    starts_.clear();
  }

 private:
  int64_t window_end() const { return starts_.back() + run_bytes_; }

  const File& file_;
  int64_t run_bytes_;
  std::byte* into_;
  std::vector<int64_t> starts_;
  std::vector<std::byte> window_;
};

void read_box_of_file(const File& file, const SafetensorsEntry& entry, const Box& box,
                      std::byte* into) {
  if (box.shape.product() == 0) return;
  const auto element = static_cast<int64_t>(size_of(entry.dtype));
  const Strides strides = dense_strides(entry.shape);
  // Dims from `outer` on make one run: all but the first of them are whole.
  int outer = entry.shape.ndim();
  int64_t run = 1;
  while (outer > 0 && run == strides[outer - 1]) {
    --outer;
    run *= box.shape[outer];
  }
  const int64_t start = ranges::inner_product(box.offset, strides, int64_t{0});
  RunReader reader(file, run * element, into);
  Dims index = Dims::filled(outer, 0);
  while (true) {
    int64_t at = start;
    for (int dim = 0; dim < outer; ++dim) at += index[dim] * strides[dim];
    reader.add(entry.offset + at * element);
    int dim = outer - 1;
    while (dim >= 0 && ++index[dim] == box.shape[dim]) index[dim--] = 0;
    if (dim < 0) break;
  }
  reader.flush();
}

}  // namespace weft
