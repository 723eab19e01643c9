// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/kernels/map/cuda_kernel.h"
#include "src/kernels/rows/rows.h"

namespace weft::cuda {

// A row as the threads of a block read and write it: chunk by chunk, in the compute type.

inline namespace WEFT_COMPILER {

/// A row of dense S.
template <class S> class DenseLine {
 public:
  using C = Compute<S>;
  static constexpr int kN = Vector<S>::kElements;
  using Values = Chunk<C, kN>;
  /// A chunk as shared memory holds it.
  using Held = Vector<S>;

  WEFT_DEVICE DenseLine(const Rows& rows, int64_t row)
      : data_(reinterpret_cast<Vector<S>*>(static_cast<S*>(rows.data()) + rows.at(row))) {}
  WEFT_DEVICE Held load(int64_t chunk) const { return data_[chunk]; }
  WEFT_DEVICE static Values computed(const Held& vector) {
    Values values;
    for (int i = 0; i < kN; ++i) values.element[i] = static_cast<C>(vector.element[i]);
    return values;
  }
  WEFT_DEVICE Values read(int64_t chunk) const { return computed(load(chunk)); }
  WEFT_DEVICE void write(int64_t chunk, const Values& values) const {
    Vector<S> vector;
    for (int i = 0; i < kN; ++i) vector.element[i] = static_cast<S>(values.element[i]);
    data_[chunk] = vector;
  }

 private:
  Vector<S>* data_;
};

/// A row of any dtype and stride.
template <class T> class AnyLine {
 public:
  using C = T;
  static constexpr int kN = 1;
  using Values = Chunk<C, 1>;
  using Held = Values;

  WEFT_DEVICE AnyLine(const Rows& rows, int64_t row) : rows_(rows), base_(rows.at(row)) {}
  WEFT_DEVICE Held load(int64_t chunk) const {
    return {load_element<C>(rows_.data(), rows_.dtype(), base_ + chunk * rows_.stride())};
  }
  WEFT_DEVICE static Values computed(const Held& values) { return values; }
  WEFT_DEVICE Values read(int64_t chunk) const { return load(chunk); }
  WEFT_DEVICE void write(int64_t chunk, const Values& values) const {
    store_element(rows_.data(), rows_.dtype(), base_ + chunk * rows_.stride(), values.element[0]);
  }

 private:
  const Rows& rows_;
  int64_t base_;
};

/// A row that several passes read; from global memory only once when it fits in shared memory.
template <class Line> class HeldLine {
 public:
  using Values = typename Line::Values;
  using Held = typename Line::Held;

  /// `held` is null when the row does not fit.
  WEFT_DEVICE HeldLine(const Rows& rows, int64_t row, Held* held) : line_(rows, row), held_(held) {}
  WEFT_DEVICE Values read(int64_t chunk) const {
    if (kept_) return Line::computed(held_[chunk]);
    const Held values = line_.load(chunk);
    if (held_) held_[chunk] = values;
    return Line::computed(values);
  }
  /// Reads kBatch chunks, `step` apart, with all loads in flight.
  template <int kBatch>
  WEFT_DEVICE void read(int64_t first, int64_t step, Values (&values)[kBatch]) const {
    Held loaded[kBatch];
    for (int b = 0; b < kBatch; ++b) {
      loaded[b] = kept_ ? held_[first + b * step] : line_.load(first + b * step);
    }
    for (int b = 0; b < kBatch; ++b) {
      if (held_ && !kept_) held_[first + b * step] = loaded[b];
      values[b] = Line::computed(loaded[b]);
    }
  }
  /// Marks the row as read completely, so that later passes read the shared memory.
  WEFT_DEVICE void keep() { kept_ = held_ != nullptr; }

 private:
  Line line_;
  Held* held_;
  bool kept_ = false;
};

template <class Run, class Values> WEFT_DEVICE Values read_run(const void* data, int64_t chunk) {
  const Run run = static_cast<const Run*>(data)[chunk];
  Values values;
  for (size_t i = 0; i < std::size(run.element); ++i) {
    values.element[i] = static_cast<float>(run.element[i]);
  }
  return values;
}

/// A vector read along with every row; a constant when it has no data.
template <class Line> class VectorLine {
 public:
  using C = typename Line::C;
  using Values = typename Line::Values;

  WEFT_DEVICE VectorLine(const Rows& rows, C absent) : rows_(rows), absent_(absent) {}
  WEFT_DEVICE Values read(int64_t chunk) const {
    Values values;
    if (!rows_.data()) {
      for (int i = 0; i < Line::kN; ++i) values.element[i] = absent_;
    } else if constexpr (Line::kN == 1) {
      values.element[0] = load_element<C>(rows_.data(), rows_.dtype(), chunk * rows_.stride());
    } else if (rows_.dtype() == DType::f32) {
      values = read_run<Chunk<float, Line::kN>, Values>(rows_.data(), chunk);
    } else if (rows_.dtype() == DType::f16) {
      values = read_run<Chunk<float16, Line::kN>, Values>(rows_.data(), chunk);
    } else {
      values = read_run<Chunk<bfloat16, Line::kN>, Values>(rows_.data(), chunk);
    }
    return values;
  }
  WEFT_DEVICE void keep() const {}

 private:
  const Rows& rows_;
  C absent_;
};

}  // namespace WEFT_COMPILER
}  // namespace weft::cuda
