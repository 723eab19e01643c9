// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <span>
#include <utility>

#include "ops/engine/route.h"
#include "weft/export.h"
#include "weft/extend/op.h"

namespace weft {

/// Up to N objects stored in place; constructs and destroys only those in use.
template <class T, int N> class InlineList : NotCopied {
 public:
  // Not defaulted: `InlineList()` would zero all its memory.
  InlineList() {}
  ~InlineList() { clear(); }

  T& add(T value) { return *new (at(size_++)) T(std::move(value)); }
  /// Adds the object that make() returns, constructed in place.
  template <class Make> T& add_made(const Make& make) { return *new (at(size_++)) T(make()); }
  void clear() {
    for (int i = 0; i < size_; ++i) (*this)[i].~T();
    size_ = 0;
  }

  T& operator[](int i) { return *std::launder(reinterpret_cast<T*>(at(i))); }
  const T& operator[](int i) const {
    return *std::launder(reinterpret_cast<const T*>(memory_ + sizeof(T) * i));
  }
  int size() const { return size_; }
  std::span<const T> all() const {
    return {reinterpret_cast<const T*>(memory_), static_cast<size_t>(size_)};
  }

 private:
  std::byte* at(int i) { return memory_ + sizeof(T) * i; }

  alignas(T) std::byte memory_[sizeof(T) * N];
  int size_ = 0;
};

/// Operands as an op uses them: redistributed, or as given.
using UsedOperands = InlineList<const Tensor*, kMaxOperands>;

/// Returns the device of an op's operands, which must be one; cpu without operands.
Device device_of(const OpBody& op, std::span<const Tensor> operands);

/// The data behind a Call.
struct CallBody {
  // An aggregate would be zeroed, 4 KiB per call.
  CallBody(const Route& way, const Attributes& given) : route(way), attributes(given) {}

  const Route& route;
  const Attributes& attributes;
  InlineList<MemoryBlock, kMaxOperands> ins;
  InlineList<MemoryBlock, kMaxResults> outs;
  InlineList<MemoryBlock, kMaxResults> stages;
  std::array<bool, kMaxResults> accumulate = {};
};

/// Runs an op's `across`, on copies in host memory for blocks on a GPU.
void run_across(const OpBody& op, const Route& route, const CallBody& call);

}  // namespace weft
