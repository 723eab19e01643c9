// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "fsdp/strategy.h"
#include "weft/export.h"
#include "weft/storage.h"
#include "weft/stream.h"

namespace weft::fsdp {

/// An array in a buffer, dense from byte `offset` on, and how the ranks of a group share it: one
/// part a rank along `dim`. If the parts are not contiguous or have another dtype on the wire, they
/// also lie packed, in rank order, from byte `packed` on.
struct Region {
  Shape shape;
  int dim = 0;
  DType dtype = DType::f32;
  /// Dtype of the packed parts.
  DType wire = DType::f32;
  bool packs = false;
  size_t offset = 0;
  size_t packed = 0;
  /// Length along `dim` and number of elements of each rank's part.
  std::vector<int64_t> lengths;
  std::vector<int64_t> counts;

  int64_t elements() const { return shape.product(); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(size_of(dtype)); }
  int64_t count_of(int rank) const { return counts[static_cast<size_t>(rank)]; }
  Shape shape_of(int rank) const;
  /// First byte of the parts that a collective reads or writes, and of a rank's part.
  size_t start() const { return packs ? packed : offset; }
  size_t at(int rank) const;
};

/// The sum of the first numbers.
int64_t sum_before(std::span<const int64_t> numbers, int count);

/// Rounds up to whole cache lines, on which every region starts.
size_t padded(size_t bytes);

/// The place of an array, in memory or on disk, behind byte `end`, which moves behind it.
size_t place_of_array(int64_t elements, DType dtype, bool on_disk, size_t& end);

/// Returns the lengths of the parts of `n` elements sharded over axes of these sizes, the first
/// axis outermost.
std::vector<int64_t> parts_of(int64_t n, std::span<const int> sizes);

/// Makes the region of an array that the ranks of `group` share, by default in equal chunks. Its
/// bytes start at `end`, which moves behind them. `may_pack`: parts that are not contiguous, or
/// have another dtype on the wire, are packed.
Region region_of(const Shape& shape, int dim, DType dtype, DType wire, const AxisGroup& group,
                 size_t& end, const std::vector<int64_t>& lengths = {}, bool may_pack = true);

/// Copies the array to its packed parts, and back.
void pack(const Region& region, const Ref<Storage>& memory);
void unpack(const Region& region, const Ref<Storage>& memory);

/// Returns the elements of `memory` from byte `offset` on as a tensor, by default of one device.
Tensor local_in(const Ref<Storage>& memory, size_t offset, const Shape& shape, DType dtype,
                const Sharding& layout = {});

/// The gradient of one parameter: where it lies, and how far it is.
struct ParamGrad {
  /// The progress of this backward with a gradient. `missing`: complete without a contribution.
  enum class Progress : uint8_t { expected, written, complete, missing };
  /// The sum in the final memory. `own`: still to be summed over replicas, if there are any.
  /// `of_replicas`: that sum.
  enum class Sum : uint8_t { none, own, of_replicas };

  FsdpParam* param;
  int bucket = 0;
  /// The places in the buffer; there between two stages of codes, in f32; and in the middle memory
  /// between two scatters.
  Region unsharded, staged, middle;
  /// Bytes from the start of the final memory.
  size_t offset = 0;
  Progress progress = Progress::expected;
  Sum sum = Sum::none;
  /// Sums of earlier micro-steps wait for a reduction, in the buffer or in the middle memory.
  bool in_buffer = false;
  bool in_middle = false;
  /// The sum in the buffer was read from the file, which still holds it.
  bool from_file = false;

  bool is_over() const { return progress >= Progress::complete; }
};

/// Final sums that lie one after the other.
struct SumRun {
  size_t offset;
  int64_t elements;
  DType dtype;
};

inline auto is_in(int bucket) {
  return [bucket](const ParamGrad& grad) { return grad.bucket == bucket; };
}

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

    int64_t elements_before(int rank) const { return sum_before(counts, rank); }
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
  /// Position of this rank's tensors among those of all ranks.
  int own = 0;
  /// If there is no extension, elements with one scale, if the wires are codes and scales. These
  /// are then of the ranks in `order`.
  int64_t block = 0;
  std::vector<int> order = {};
  std::vector<Wire> wires;

  bool is_quantized() const { return block > 0; }
  /// Lays the wires out from byte `end` on, which moves behind them.
  void lay_out(size_t& end);
  /// The gather does not send the part as it is.
  explicit operator bool() const { return extension || is_quantized(); }
};

/// Asks the extension what each rank sends for its part of the region, of dtype `slice`; this rank
/// is number `own`. The wires lie in memory from byte `end` on, which moves behind them.
Extended extended_of(const Region& region, DType slice,
                     std::shared_ptr<AllGatherExtension> extension, int own, size_t& end);

/// Writes what the extension sends of this rank's part where the gather expects it in `memory`, and
/// checks that it is what the extension said.
void encode_part(const Extended& extended, const Ref<Storage>& memory, const Tensor& part);

/// The part of `whole` that the rank shares.
Tensor part_of(const Region& region, const Tensor& whole, int rank);

/// Reuses buffers for unsharded parameters and gradients: only the first two steps allocate memory
/// (prefetch starts with the second). On a GPU each released buffer keeps an event of its last
/// user's stream, and the stream of the next user waits for this event. Expected sizes that differ
/// by at most a fifth get buffers of one size, the largest of them: the embedding, the head and the
/// blocks of a model share their buffers.
class BufferPool : NotCopied {
 public:
  BufferPool() = default;
  ~BufferPool() { clear(); }

  /// The sizes of the buffers that `user` will ask for.
  void expect(const void* user, std::vector<size_t> sizes);
  /// Returns a free buffer of the size for so many bytes, or a new one, for the current stream.
  Ref<Storage> acquire(size_t bytes);
  /// Makes the buffer available after the work that is queued on the current stream.
  void release(Ref<Storage> buffer);
  /// Sets the device of new buffers. Frees the buffers of another device.
  void set_device(Device device);
  Device device() const { return device_; }
  /// Bytes of all buffers allocated on this device.
  int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    Ref<Storage> buffer;
    Event used;
  };
  void clear();
  size_t size_for(size_t bytes) const;

  std::vector<Free> free_;
  std::map<const void*, std::vector<size_t>> expected_;
  /// All that are expected, in descending order.
  std::vector<size_t> sizes_;
  Device device_ = cpu;
  int64_t bytes_ = 0;
};

}  // namespace weft::fsdp
