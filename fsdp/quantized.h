// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <vector>

#include "fsdp/extended.h"
#include "fsdp/fsdp_param.h"
#include "weft/extend/quantize.h"
#include "weft/quantization.h"

namespace weft::fsdp {

/// std::invalid_argument if the numbers of a Quantization are wrong, or contradict `precision`.
void check_quantization(const Quantization& quantization, const MixedPrecision& precision);

/// The elements that a rank shares of a region's array, as a matrix whose rows are dense.
MemoryBlock part_block(const Region& region, const Ref<Storage>& memory, int rank);

/// A parameter whose parts are sent as codes: two wires, the codes and their scales. They lie in
/// memory from byte `end` on, which moves behind them.
Extended quantized_of(const Region& region, DType codes, int64_t block, size_t& end);
/// Writes the codes and scales of this rank's part, [n], where the gather expects them.
void quantize_part(const Extended& extended, const Ref<Storage>& memory, const Tensor& part,
                   int rank);
/// Writes the parts of all ranks, from the codes that were gathered.
void dequantize_parts(const Extended& extended, const Region& region, const Ref<Storage>& memory);

/// A reduce-scatter of gradients as codes. Each rank sends each rank a message, with the codes and
/// scales of its part of each gradient. Messages lie in the gradients' buffer: those to the ranks,
/// then those from the ranks.
class GradientMessages {
 public:
  explicit GradientMessages(const Quantization& quantization) : quantization_(quantization) {}

  /// Adds the gradient that lies in `region`.
  void add(const Region& region);
  /// Lays out the messages from byte `end` of the buffer on, which moves behind them.
  void close(const AxisGroup& ranks, size_t& end);
  /// Bytes that the exchange receives from other ranks.
  int64_t traffic() const;
  /// Bytes of what codes missed: none without error feedback.
  size_t residual_bytes() const;

  /// Quantizes all gradients, and starts to exchange the messages.
  Work exchange(const Ref<Storage>& buffer, const Ref<Storage>& residual);
  /// Sums the parts of gradient `i` that were received into `out`, or adds them to it.
  void add_up(size_t i, const Ref<Storage>& buffer, const MemoryBlock& out, bool accumulate) const;

 private:
  /// Bytes from the start of the message to a rank to its part of a gradient, and elements before
  /// this part among the residuals.
  struct Place {
    size_t codes, scales;
    int64_t before;
  };
  int64_t scales(const Region& region, int rank) const;

  Quantization quantization_;
  AxisGroup ranks_;
  std::vector<Region> regions_;
  /// By gradient and rank.
  std::vector<std::vector<Place>> places_;
  /// Bytes of the message to each rank, and of the message from each rank.
  std::vector<int64_t> bytes_, received_;
  size_t send_ = 0, recv_ = 0;
  int64_t elements_ = 0;
};

}  // namespace weft::fsdp
