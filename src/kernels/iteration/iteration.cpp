// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/iteration/iteration.h"

#include <utility>

#include "weft/error.h"

namespace weft {

Iteration::Iteration(const char* what, const Shape& shape, const MemoryBlock* const* blocks,
                     int count) {
  for (int i = 0; i < shape.ndim(); ++i) {
    if (shape[i] != 1) shape_[static_cast<size_t>(ndim_++)] = shape[i];
  }
  for (int i = 0; i < count; ++i) add(what, shape, *blocks[i]);
  if (ndim_ > 1) {
    sort();
    merge();
  }
  if (ndim_ == 0) {
    shape_[0] = ndim_ = 1;
    for (int i = 0; i < count_; ++i) blocks_[static_cast<size_t>(i)].strides[0] = 1;
  }
  for (int i = 0; i + 1 < ndim_; ++i) outer_ *= size(i);
}

void Iteration::add(const char* what, const Shape& shape, const MemoryBlock& block) {
  Strided& strided = blocks_[static_cast<size_t>(count_++)];
  strided.block = &block;
  const int missing = shape.ndim() - block.shape.ndim();
  bool fits = missing >= 0;
  for (int i = 0, dim = 0; i < shape.ndim() && fits; ++i) {
    const bool here = i >= missing && block.shape[i - missing] != 1;
    fits = !here || block.shape[i - missing] == shape[i];
    if (shape[i] == 1) continue;
    strided.strides[static_cast<size_t>(dim++)] = here ? block.strides[i - missing] : 0;
  }
  if (!fits)
    fail(what, ": an operand is ", block.shape, ", expected one that broadcasts to ", shape);
}

void Iteration::sort() {
  for (int i = 1; i < ndim_; ++i) {
    for (int j = i; j > 0 && stride(0, j - 1) < stride(0, j); --j) {
      const auto a = static_cast<size_t>(j), b = a - 1;
      std::swap(shape_[a], shape_[b]);
      for (int k = 0; k < count_; ++k) {
        auto& strides = blocks_[static_cast<size_t>(k)].strides;
        std::swap(strides[a], strides[b]);
      }
    }
  }
}

void Iteration::merge() {
  int last = 0;
  for (int i = 1; i < ndim_; ++i) {
    bool one_run = true;
    for (int k = 0; k < count_; ++k) one_run &= stride(k, last) == stride(k, i) * size(i);
    const auto from = static_cast<size_t>(i);
    const auto to = static_cast<size_t>(one_run ? last : ++last);
    shape_[to] = one_run ? shape_[to] * shape_[from] : shape_[from];
    for (int k = 0; k < count_; ++k) {
      auto& strides = blocks_[static_cast<size_t>(k)].strides;
      strides[to] = strides[from];
    }
  }
  ndim_ = last + 1;
}

bool Iteration::is_dense(int block) const {
  int64_t expected = 1;
  for (int i = ndim_ - 1; i >= 0; --i) {
    if (stride(block, i) != expected) return false;
    expected *= size(i);
  }
  return true;
}

Line Iteration::line(int block, int64_t outer, int64_t inner) const {
  int64_t offset = inner * inner_stride(block);
  for (int i = ndim_ - 2; i > 0; --i) {
    const int64_t size_i = size(i), next = outer / size_i;
    offset += (outer - next * size_i) * stride(block, i);
    outer = next;
  }
  if (ndim_ > 1) offset += outer * stride(block, 0);
  const MemoryBlock& whole = *blocks_[static_cast<size_t>(block)].block;
  auto* data = static_cast<char*>(whole.data) + offset * static_cast<int64_t>(size_of(whole.dtype));
  return {whole.dtype, data, inner_stride(block)};
}

LineWalk::LineWalk(const Iteration& loops, int64_t outer, int64_t inner) : loops_(loops) {
  for (int k = 0; k < loops.count(); ++k) {
    lines_[static_cast<size_t>(k)] = loops.line(k, outer, inner);
  }
  for (int i = loops.ndim() - 2; i >= 0; --i) {
    index_[static_cast<size_t>(i)] = outer % loops.size(i);
    outer /= loops.size(i);
  }
}

void LineWalk::move(int dim, int64_t steps) {
  for (int k = 0; k < loops_.count(); ++k) {
    Line& line = lines_[static_cast<size_t>(k)];
    const int64_t elements = steps * loops_.stride(k, dim);
    line.data =
        static_cast<char*>(line.data) + elements * static_cast<int64_t>(size_of(line.dtype));
  }
}

void LineWalk::next() {
  for (int i = loops_.ndim() - 2; i >= 0; --i) {
    auto& index = index_[static_cast<size_t>(i)];
    move(i, 1);
    if (++index < loops_.size(i)) return;
    move(i, -index);
    index = 0;
  }
}

}  // namespace weft
