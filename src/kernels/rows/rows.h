// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>

#include "src/device/kernel/elements.h"
#include "src/kernels/iteration/iteration.h"
#include "weft/block.h"

namespace weft {

/// A block viewed as rows along one dim, numbered in row-major order of the other dims. Kernels
/// take it as it is.
class Rows {
 public:
  /// Rows without data, for an operand that is absent.
  Rows() = default;
  /// With `dim` = ndim each element is a row of size 1.
  Rows(const MemoryBlock& block, int dim);
  /// Views `block` as one value per row of `rows`: it has their dims, without the rows' own or with
  /// size 1 there, or is one element for all rows.
  static Rows values(const char* what, const MemoryBlock& block, const Rows& rows);

  WEFT_FN void* data() const { return data_; }
  WEFT_FN DType dtype() const { return dtype_; }
  WEFT_FN int64_t count() const { return count_; }
  WEFT_FN int64_t size() const { return size_; }
  /// Stride between the elements of a row.
  WEFT_FN int64_t stride() const { return stride_; }
  /// Returns the offset of element `i` of a row, in elements.
  WEFT_FN int64_t at(int64_t row, int64_t i = 0) const {
    int64_t offset = i * stride_;
    for (int d = ndim_ - 1; d > 0; --d) {
      const int64_t next = row / sizes_[d];
      offset += (row - next * sizes_[d]) * strides_[d];
      row = next;
    }
    return offset + row * strides_[0];
  }
  Line line(int64_t row) const { return {dtype_, element_at(data_, at(row), dtype_), stride_}; }
  /// Returns how many rows from `row` on, before `end`, are adjacent (each starts one element after
  /// the last); 1 when the next row is not.
  int64_t side_by_side(int64_t row, int64_t end) const {
    if (strides_[ndim_ - 1] != 1 || stride_ == 1) return 1;
    return std::min(end - row, sizes_[ndim_ - 1] - row % sizes_[ndim_ - 1]);
  }
  /// Returns whether every row starts at a multiple of `elements`.
  bool starts_at_multiples_of(int64_t elements) const {
    return std::all_of(strides_, strides_ + ndim_,
                       [&](int64_t stride) { return stride % elements == 0; });
  }

 private:
  char* data_ = nullptr;
  DType dtype_ = DType::f32;
  int ndim_ = 1;
  int64_t count_ = 1, size_ = 1, stride_ = 1;
  int64_t sizes_[kMaxDims] = {1}, strides_[kMaxDims] = {};
};

inline Rows last_rows(const MemoryBlock& block) { return Rows(block, block.shape.ndim() - 1); }

/// The operands of a kernel over rows. `rows` are all that are rows; the first sets the dtype.
/// `vectors` are read along with each row. `held` rows go to shared memory: every
/// `held_reader(rows, i)` has an i below it, unless it is 0; and `sums` rows of computed elements.
/// Operands without data are skipped.
struct RowOperands {
  std::initializer_list<const Rows*> rows, vectors = {};
  int held = 0, sums = 0;
};

/// Throws std::invalid_argument for a GPU: the kernel was compiled for the CPU alone.
void check_runs_on_cpu(const char* what, Device device);

/// Throws std::invalid_argument unless both have equally many rows of equal size.
void check_rows(const char* what, const Rows& a, const Rows& b);

inline namespace WEFT_COMPILER {

/// Element `i` of a row, by default of a row of one value.
template <class C> WEFT_FN C value_of(const Rows& rows, int64_t row, int64_t i = 0) {
  return load_element<C>(rows.data(), rows.dtype(), rows.at(row, i));
}
template <class C> WEFT_FN void set_value(const Rows& rows, int64_t row, C value) {
  store_element(rows.data(), rows.dtype(), rows.at(row), value);
}
template <class C> WEFT_FN void set_value(const Rows& rows, int64_t row, int64_t i, C value) {
  store_element(rows.data(), rows.dtype(), rows.at(row, i), value);
}

/// Dense memory for several rows, spaced so that they do not share cache sets.
template <class C> class RowBuffer {
 public:
  explicit RowBuffer(const Rows& rows) : size_(rows.size()) {}
  int64_t pitch() const { return size_ + 64 / static_cast<int64_t>(sizeof(C)); }
  C* row(int64_t index) {
    if (!memory_) {
      const int64_t elements = kept_rows() * pitch();
      memory_ = std::make_unique_for_overwrite<C[]>(static_cast<size_t>(elements));
    }
    return memory_.get() + index * pitch();
  }
  /// The number of rows that fit: fewer when they are very long.
  int64_t kept_rows() const {
    return std::clamp<int64_t>((int64_t{1} << 22) / std::max<int64_t>(size_, 1), 1, kSideBySide);
  }

 private:
  int64_t size_;
  std::unique_ptr<C[]> memory_;
};

/// Reads rows before `end` as dense C: in place when they are dense C, else through a buffer.
template <class C> class RowReader {
 public:
  RowReader(const Rows& rows, int64_t end) : rows_(rows), buffer_(rows), range_end_(end) {}
  const C* operator()(int64_t row) {
    if (row >= begin_ && row < end_) return buffer_.row(row - begin_);
    const Line line = rows_.line(row);
    if (line.dtype == dtype_of<C> && line.stride == 1) return static_cast<const C*>(line.data);
    begin_ = row;
    end_ = row + rows_.side_by_side(row, std::min(range_end_, row + buffer_.kept_rows()));
    C* first = buffer_.row(0);
    if (end_ == row + 1) {
      load_line(first, line, rows_.size());
    } else {
      load_side_by_side(first, buffer_.pitch(), line, end_ - begin_, rows_.size());
    }
    return first;
  }

 private:
  const Rows& rows_;
  RowBuffer<C> buffer_;
  int64_t range_end_, begin_ = 0, end_ = 0;
};

/// Writes rows before `end`, one after the other, from dense C: `begin` returns where to write,
/// `end` converts if needed, several rows at once when they are adjacent.
template <class C> class RowWriter {
 public:
  RowWriter(const Rows& rows, int64_t end) : rows_(rows), buffer_(rows), range_end_(end) {}
  C* begin(int64_t row) {
    row_ = row;
    if (row < end_) return buffer_.row(row - begin_);
    line_ = rows_.line(row);
    direct_ = line_.dtype == dtype_of<C> && line_.stride == 1;
    if (direct_) return static_cast<C*>(line_.data);
    begin_ = row;
    end_ = row + rows_.side_by_side(row, std::min(range_end_, row + buffer_.kept_rows()));
    return buffer_.row(0);
  }
  void end() {
    if (direct_ || row_ + 1 < end_) return;
    if (end_ == begin_ + 1) {
      store_line(line_, buffer_.row(0), rows_.size());
    } else {
      store_side_by_side(line_, buffer_.row(0), buffer_.pitch(), end_ - begin_, rows_.size());
    }
  }

 private:
  const Rows& rows_;
  RowBuffer<C> buffer_;
  int64_t range_end_, begin_ = 0, end_ = 0, row_ = 0;
  Line line_{};
  bool direct_ = false;
};

}  // namespace WEFT_COMPILER
}  // namespace weft
