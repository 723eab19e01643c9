// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fsdp/buffers.h"
#include "fsdp/slot.h"

namespace weft::fsdp {

/// How long what a level has gathered is kept.
enum class Lifetime : uint8_t { use, step, update };

/// A unit's parameters gathered over one group of ranks, from its slices or the level below.
class Level {
 public:
  Level(AxisGroup group, Lifetime lifetime) : group_(std::move(group)), lifetime_(lifetime) {}

  /// The next parameter: an array of this level, cut along `dim` by the group.
  void add(const Shape& shape, int dim, DType dtype, DType wire);

  /// A parameter's part that is gathered: dense elements in a memory.
  struct Source {
    Ref<Storage> memory;
    size_t offset = 0;
    DType dtype = DType::f32;
  };
  /// Casts the own parts to the wire's dtype, brings them from the host if they rest there, and
  /// begins to gather, into new or the present memory.
  void start(const std::vector<Source>& sources, BufferPool& pool);
  void wait();
  void free(BufferPool& pool);
  /// Its memory is not used again.
  void drop();
  /// It was started and not waited for.
  bool is_under_way() const { return waiting_; }
  bool has_memory() const { return static_cast<bool>(memory_); }

  const AxisGroup& group() const { return group_; }
  Lifetime lifetime() const { return lifetime_; }
  const Ref<Storage>& memory() const { return memory_; }
  const Region& region(size_t parameter) const { return regions_[parameter]; }
  Source source(size_t parameter) const;
  size_t bytes() const { return bytes_; }
  /// Received by a gather; copied by it.
  int64_t traffic() const;
  int64_t copied() const;

 private:
  AxisGroup group_;
  Lifetime lifetime_;
  std::vector<Region> regions_;
  size_t bytes_ = 0;
  Ref<Storage> memory_;
  bool waiting_ = false;
  Work work_;
  /// The casts and copies of the own parts, where that is all.
  Event cast_;
};

}  // namespace weft::fsdp
