// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <new>

#include "ops/route.h"
#include "weft/op.h"

namespace weft {

/// Up to N objects made one after the other in place; makes and destroys only those in use.
template <class T, int N>
class InlineList {
 public:
  InlineList() = default;
  InlineList(const InlineList&) = delete;
  InlineList& operator=(const InlineList&) = delete;
  ~InlineList() {
    for (int i = 0; i < size_; ++i) (*this)[i].~T();
  }
  T& add(T value) { return *new (memory_ + sizeof(T) * size_++) T(std::move(value)); }
  T& operator[](int i) { return *std::launder(reinterpret_cast<T*>(memory_ + sizeof(T) * i)); }
  const T& operator[](int i) const {
    return *std::launder(reinterpret_cast<const T*>(memory_ + sizeof(T) * i));
  }
  int size() const { return size_; }

 private:
  alignas(T) std::byte memory_[sizeof(T) * N];
  int size_ = 0;
};

/// Operands as an op computes on them: moved, or as given.
using UsedOperands = InlineList<const Tensor*, kMaxOperands>;

/// What a Call looks at.
struct CallBody {
  const Route& route;
  const Attributes& attributes;
  InlineList<Block, kMaxOperands> ins;
  InlineList<Block, kMaxResults> outs;
  InlineList<Block, kMaxResults> stages;
  std::array<bool, kMaxResults> accumulate = {};
};

}  // namespace weft
