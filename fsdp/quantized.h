// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "fsdp/buffers.h"
#include "weft/extend/quantize.h"

namespace weft::fsdp {

/// std::invalid_argument if the numbers of a Quantization are wrong, or contradict `precision`.
void check_quantization(const Quantization& quantization, const MixedPrecision& precision);

/// A parameter whose parts are sent as codes: two wires, the codes and their scales of the ranks in
/// this order, to which rank `rank` belongs. They lie in memory from byte `end` on, which moves
/// behind them.
Extended quantized_of(const Region& region, DType codes, int64_t block, std::vector<int> order,
                      int rank, size_t& end);
/// Writes the codes and scales of this rank's part where the gather expects them in `memory`.
void quantize_part(const Extended& extended, const Ref<Storage>& memory, const MemoryBlock& part,
                   const CodeRounding& rounding = {});
/// Adds the pieces of a gather among the `size` ranks next to this one in the order, from the
/// multiple of `size` before it on. Each sends the parts of `joined` ranks next to each other,
/// which a gather before has received if they are several. `counts` holds the sizes of the pieces.
void add_pieces(const Extended& extended, const Ref<Storage>& memory, int size, int joined,
                std::vector<Piece>& pieces, std::deque<std::vector<int64_t>>& counts);
/// Writes the parts of all ranks into the region in `to`, from the codes that were gathered.
void dequantize_parts(const Extended& extended, const Ref<Storage>& memory, const Region& region,
                      const Ref<Storage>& to);

/// Codes of an own part of a gradient that are being received, and where their sum will lie.
struct Arriving {
  size_t gradient, part;
  MemoryBlock out;
  bool accumulate;
};

/// Gradients sent as codes. Each rank sends each rank a message, with the codes and scales of its
/// parts of each gradient. Messages lie in a buffer: those to the ranks, then those from the ranks.
class GradientMessages {
 public:
  /// Part p of each gradient is sent to rank `to[p]`. Ranks draw their random numbers from
  /// different parts of a stream, by `number`.
  GradientMessages(const Quantization& quantization, AxisGroup ranks, std::vector<int> to,
                   int number)
      : quantization_(quantization),
        ranks_(std::move(ranks)),
        to_(std::move(to)),
        number_(number) {}

  const AxisGroup& ranks() const { return ranks_; }
  /// The parts that are sent to this rank.
  std::vector<size_t> own_parts() const;
  /// Adds the gradient that lies in `region`.
  void add(const Region& region) { regions_.push_back(region); }
  /// Lays out the messages from byte `end` of the buffer on, which moves behind them.
  void lay_out(size_t& end);
  /// Bytes that the exchange receives from other ranks.
  int64_t traffic() const { return received_[0] * (ranks_.size - 1); }
  /// Bytes of what codes missed: none without error feedback.
  size_t residual_bytes() const;

  /// Quantizes all gradients, which lie in `from`, and starts to exchange the messages. What codes
  /// miss lies from byte `missed` of `residual` on.
  Work exchange(const Ref<Storage>& from, const Ref<Storage>& buffer, const Ref<Storage>& residual,
                size_t missed = 0);
  /// Sums what was received of an own part of a gradient, or adds it.
  void add_up(const Arriving& arriving, const Ref<Storage>& buffer) const;

 private:
  /// Bytes from the start of a message to a part of a gradient, and elements before this part among
  /// the residuals.
  struct Place {
    size_t codes, scales;
    int64_t elements_before;
  };
  int64_t scales(const Region& region, size_t part) const;

  Quantization quantization_;
  AxisGroup ranks_;
  std::vector<int> to_;
  int number_;
  std::vector<Region> regions_;
  /// Indexed by gradient and part.
  std::vector<std::vector<Place>> places_;
  /// Bytes of the message to each rank, and of the message from each rank.
  std::vector<int64_t> bytes_, received_;
  size_t send_ = 0, recv_ = 0;
  int64_t elements_ = 0;
};

/// An all-reduce of gradients over replicas as codes: each replica sums a part of each gradient,
/// from messages, and sends all replicas the codes of the sum.
class ReplicaSums {
 public:
  ReplicaSums(const Quantization& quantization, AxisGroup ranks)
      : quantization_(quantization),
        ranks_(std::move(ranks)),
        messages_(quantization, ranks_, numbers_of(ranks_), ranks_.rank) {}

  /// Adds a gradient of so many elements, `offset` bytes from the start of its memory.
  void add(size_t offset, int64_t elements, DType dtype);
  void lay_out();
  /// Bytes of the memory for codes, and bytes that are received.
  size_t bytes() const { return bytes_; }
  int64_t traffic() const;

  /// Starts to exchange messages.
  Work start(const Ref<Storage>& sums, const Ref<Storage>& codes);
  /// Sums what was received, sends the sums, and waits for those of the other replicas.
  void finish(const Ref<Storage>& sums, const Ref<Storage>& codes) const;

 private:
  Quantization quantization_;
  AxisGroup ranks_;
  GradientMessages messages_;
  std::vector<Region> regions_;
  std::vector<Extended> gathered_;
  size_t bytes_ = 0;
};

/// The messages of a reduce-scatter over axes `first` to `last` (excluded) of `roles.sharded` that
/// sends codes, in one stage over joined axes or in two (`Stages`): each rank sums the parts of the
/// ranks of its place within, then sends the codes of these sums across.
std::vector<GradientMessages> messages_of(const Roles& roles, size_t first, size_t last,
                                          const Quantization& quantization);

}  // namespace weft::fsdp
