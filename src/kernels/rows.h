// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "src/kernels/lines.h"
#include "weft/block.h"

namespace weft {

/// A block seen as rows along one dim, counted in row-major order of the other dims.
class Rows {
 public:
  Rows(const Block& block, int dim);
  /// One value for each of `rows`: `block` has their dims, without the rows' own or with a 1 there,
  /// or one element for all rows.
  static Rows values(const char* what, const Block& block, const Rows& rows);

  DType dtype() const { return dtype_; }
  int64_t count() const { return count_; }
  int64_t size() const { return size_; }
  Line line(int64_t row) const {
    int64_t offset = 0;
    for (int i = ndim_ - 1; i > 0; --i) {
      const int64_t next = row / sizes_[static_cast<size_t>(i)];
      offset += (row - next * sizes_[static_cast<size_t>(i)]) * strides_[static_cast<size_t>(i)];
      row = next;
    }
    offset += row * strides_[0];
    return {dtype_, data_ + offset * static_cast<int64_t>(size_of(dtype_)), stride_};
  }

 private:
  char* data_;
  DType dtype_;
  int ndim_ = 1;
  int64_t count_ = 1, size_ = 1, stride_ = 1;
  std::array<int64_t, kMaxDims> sizes_{1}, strides_{0};
};

/// std::invalid_argument unless the two have as many rows, of equal size.
void check_rows(const char* what, const Rows& a, const Rows& b);

inline namespace WEFT_COMPILER {

/// One value a row, as C.
template <class C>
class RowValues {
 public:
  explicit RowValues(const Rows& rows) : rows_(rows) {}
  C operator[](int64_t row) const { return load_element<C>(rows_.dtype(), rows_.line(row).data); }
  void set(int64_t row, C value) const {
    store_element<C>(rows_.dtype(), rows_.line(row).data, value);
  }

 private:
  const Rows& rows_;
};

/// Reads rows as dense C: in place where they are that, else through a buffer.
template <class C>
class RowReader {
 public:
  explicit RowReader(const Rows& rows) : rows_(rows) {}
  const C* operator()(int64_t row) {
    const Line line = rows_.line(row);
    if (line.dtype == dtype_of<C> && line.stride == 1) return static_cast<const C*>(line.data);
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<C[]>(static_cast<size_t>(rows_.size()));
    load_line(buffer_.get(), line, rows_.size());
    return buffer_.get();
  }

 private:
  const Rows& rows_;
  std::unique_ptr<C[]> buffer_;
};

/// Writes rows from dense C: `begin` says where to, `end` converts if need be.
template <class C>
class RowWriter {
 public:
  explicit RowWriter(const Rows& rows) : rows_(rows) {}
  C* begin(int64_t row) {
    line_ = rows_.line(row);
    if (line_.dtype == dtype_of<C> && line_.stride == 1) return static_cast<C*>(line_.data);
    if (!buffer_) buffer_ = std::make_unique_for_overwrite<C[]>(static_cast<size_t>(rows_.size()));
    return buffer_.get();
  }
  void end() {
    const bool direct = line_.dtype == dtype_of<C> && line_.stride == 1;
    if (!direct) store_line(line_, buffer_.get(), rows_.size());
  }

 private:
  const Rows& rows_;
  Line line_{};
  std::unique_ptr<C[]> buffer_;
};

/// Lanes of a sum: enough that additions do not wait for each other.
template <class C>
inline constexpr int kLanes = 128 / static_cast<int>(sizeof(C));

/// The combination of reducer elements f(in[i]...), in fixed lanes.
template <class R, class C, class F, class... In>
C reduce_row(int64_t n, const F& f, const In*... in) {
  constexpr int kN = kLanes<C>;
  C lanes[kN];
  for (int l = 0; l < kN; ++l) lanes[l] = R::template identity<C>();
  int64_t i = 0;
  for (; i + kN <= n; i += kN) {
    for (int l = 0; l < kN; ++l) lanes[l] = R::combine(lanes[l], R::element(f(in[i + l]...)));
  }
  for (int l = 0; i < n; ++i, ++l) lanes[l] = R::combine(lanes[l], R::element(f(in[i]...)));
  for (int width = kN / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lanes[l] = R::combine(lanes[l], lanes[l + width]);
  }
  return lanes[0];
}

struct AsItIs {
  template <class T>
  WEFT_FN T operator()(T x) const {
    return x;
  }
};

/// out[i] = f(in[i]...).
template <class F, class C, class... In>
void map_row(int64_t n, const F& f, C* out, const In*... in) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = f(in[i]...);
}

}  // namespace WEFT_COMPILER
}  // namespace weft
