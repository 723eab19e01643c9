// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "fsdp/fsdp_param.h"
#include "weft/fsdp.h"

namespace weft::fsdp {

/// A parameter whose parts an AllGatherExtension sends: several wires, tensors of which each rank
/// sends one.
struct Extended {
  struct Wire {
    DType dtype = DType::f32;
    /// Shape and number of elements of each rank's tensor; none for a rank whose part is empty.
    std::vector<Shape> shapes = {};
    std::vector<int64_t> counts = {};
    /// Bytes from the start of the memory.
    size_t offset = 0;

    int64_t elements_before(int rank) const;
    /// Bytes from the start of the memory to a rank's part.
    size_t at(int rank) const {
      return offset + static_cast<size_t>(elements_before(rank)) * size_of(dtype);
    }
    int64_t elements() const { return elements_before(static_cast<int>(counts.size())); }
    /// Bytes that come from other ranks; and of those, from the `size` ranks next to this one, from
    /// the multiple of `size` before it on.
    int64_t received(int rank) const { return received_of(rank, static_cast<int>(counts.size())); }
    int64_t received_of(int rank, int size) const {
      const int first = rank / size * size;
      return (elements_before(first + size) - elements_before(first) -
              counts[static_cast<size_t>(rank)]) *
             static_cast<int64_t>(size_of(dtype));
    }
  };
  std::shared_ptr<AllGatherExtension> extension;
  /// Without an extension: elements with one scale, if the wires are codes and scales. These are
  /// then of the ranks in `order`; those of this rank are at `own`.
  int64_t block = 0;
  std::vector<int> order = {};
  int own = 0;
  std::vector<Wire> wires;

  bool is_quantized() const { return block > 0; }
  /// The gather does not send the part as it is.
  explicit operator bool() const { return extension || is_quantized(); }
};

/// Asks the extension what it sends for each part of the region, of dtype `slice`. The wires lie in
/// memory from byte `end` on, which moves behind them.
Extended extended_of(const Region& region, DType slice,
                     std::shared_ptr<AllGatherExtension> extension, size_t& end);

/// Calls the extension for this rank's part, and checks that it sends what it said.
Tensors sent_of(const Extended& extended, const Tensor& part, int rank);

/// The part of `whole` that the rank shares.
Tensor part_of(const Region& region, const Tensor& whole, int rank);

}  // namespace weft::fsdp
