// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/communicator.h"
#include "weft/export.h"
#include "weft/extend/pattern.h"
#include "weft/storage.h"

namespace weft {

/// Bytes for each part of a dim, or from each, next to each other.
class WEFT_API Parcels {
 public:
  /// `bytes[i]` bytes for part i, uninitialised.
  explicit Parcels(std::vector<int64_t> bytes);

  int64_t bytes(int part) const { return bytes_[static_cast<size_t>(part)]; }
  std::span<const int64_t> all_bytes() const { return bytes_; }
  std::byte* data() const { return static_cast<std::byte*>(memory_->data()); }
  std::byte* at(int part) const { return data() + offsets_[static_cast<size_t>(part)]; }

 private:
  std::vector<int64_t> bytes_, offsets_;
  Ref<Storage> memory_;
};

/// The parts into which ranks cut a dim, in the order of its elements, as one rank sees them:
/// `OpSpec::across` exchanges data between them in host memory. All parts make the same calls.
class WEFT_API Parts {
 public:
  /// `chunks[i]` are the elements of rank i of the group.
  Parts(Communicator group, std::vector<Chunk> chunks);

  int count() const { return static_cast<int>(chunks_.size()); }
  /// The number of this rank's part.
  int index() const { return group_.rank(); }
  const Chunk& chunk(int part) const { return chunks_[static_cast<size_t>(part)]; }
  const Chunk& own() const { return chunk(index()); }
  /// The size of the dim.
  int64_t size() const { return chunks_.back().offset + chunks_.back().length; }

  /// Replaces each number by its sum over the parts.
  void sum(std::span<int64_t> numbers) const;
  /// Returns the numbers of all parts, equally many from each, in order.
  std::vector<int64_t> gather(std::span<const int64_t> numbers) const;
  /// Sends the only parcel of `own` to all parts and returns those of all.
  Parcels gather(const Parcels& own) const;
  /// Sends a parcel to each part and returns those that the parts sent to this one: one exchange of
  /// sizes, one of bytes.
  Parcels exchange(const Parcels& sent) const;
  /// Bytes received from other parts so far.
  int64_t received() const;

 private:
  Communicator group_;
  std::vector<Chunk> chunks_;
  int64_t received_before_;
};

}  // namespace weft
