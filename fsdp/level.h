// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "fsdp/buffers.h"
#include "weft/extend/disk_memory.h"
#include "weft/fsdp_module.h"
#include "weft/stream.h"

namespace weft::fsdp {

/// The time for which a level keeps what it gathered: for one use in forward or backward, until the
/// group's last gradient is complete, or until the parameters change.
enum class Lifetime : uint8_t { use, step, update };

/// The parameters of a param group gathered over one group of ranks, from the slices or from the
/// level below.
class Level {
 public:
  /// `stages`: all parameters are sent as codes, which are gathered across first, then within.
  Level(AxisGroup ranks, Lifetime lifetime, std::optional<Stages> stages)
      : ranks_(std::move(ranks)), lifetime_(lifetime), stages_(std::move(stages)) {}

  /// The elements of a parameter that the ranks share, by default in equal chunks.
  struct Array {
    Shape shape;
    DType dtype;
    std::vector<int64_t> lengths = {};
    /// If not null, the wire's format.
    std::shared_ptr<AllGatherExtension> extension = {};
  };
  /// `block`: number of elements with one scale, if the parameter is sent as codes.
  void add(const FsdpParam& param, const Array& array, int64_t block);
  /// All parameters were added, and their slices rest on disk.
  void close_on_disk() {
    on_disk_ = true;
    staging_ = std::exchange(bytes_, bytes_ + read_bytes_);
  }

  /// This rank's part of a parameter: dense elements in a memory.
  struct Source {
    Ref<Storage> memory;
    size_t offset = 0;
    DType dtype = DType::f32;
  };
  /// Casts this rank's parts to the wire's dtype, copies them from the host if they rest there, and
  /// starts the all-gather, into the memory that the level has or into a buffer of the pool.
  void unshard(const std::vector<Source>& sources, BufferPool& pool,
               const CustomCollective& collective);
  void wait_for_unshard();
  /// Lets the current stream wait for what another one has waited for.
  void wait_for_other_stream() const;
  /// Releases the memory to the pool, unless it is kept for the next unshard.
  void reshard(BufferPool& pool, bool keeps);
  /// Frees the memory for good.
  void drop();
  /// True between `unshard` and `wait_for_unshard`.
  bool is_under_way() const { return under_way_; }

  const AxisGroup& ranks() const { return ranks_; }
  Lifetime lifetime() const { return lifetime_; }
  const Ref<Storage>& memory() const { return memory_; }
  const Region& region(size_t parameter) const { return regions_[parameter]; }
  Source source(size_t parameter) const;
  size_t bytes() const { return bytes_; }
  /// Bytes of this rank's slices that an unshard reads from disk.
  int64_t disk_bytes() const { return on_disk_ ? slice_bytes_ : 0; }
  /// Bytes that the gathers of an unshard receive, in order, and bytes that it copies.
  std::vector<AxisTraffic> traffic() const;
  int64_t copied() const;

 private:
  /// The memory to which a slice that rests on disk is read.
  struct Staged {
    Source part;
    /// Declared last, so that it ends before the memory is freed.
    DiskMemory::Transfer read;
  };
  void start(const std::vector<Source>& sources);
  void read_slices(const std::vector<Source>& sources);
  void start_read();
  Work gathered(const AxisGroup& ranks, std::span<const Piece> pieces) const;
  void gather_within();
  void send_part(const Region& region, const Source& source, std::vector<Piece>& pieces);
  void send_extended(size_t parameter, const Source& source, std::vector<Piece>& pieces,
                     std::deque<std::vector<int64_t>>& counts);
  void receive_extended(size_t parameter) const;

  AxisGroup ranks_;
  Lifetime lifetime_;
  std::optional<Stages> stages_;
  /// The codes were gathered across, or are being, but not within.
  bool across_only_ = false;
  std::vector<Region> regions_;
  /// Indexed by parameter; empty for one that is sent as it is.
  std::vector<Extended> extended_;
  /// Reads of slices on disk that are under way: the collective follows them.
  std::vector<Staged> staged_;
  /// The stream for which the memory was acquired, and on which the collective follows.
  Stream stream_;
  /// Bytes from the start of the memory to that in which slices wait to be cast or sent, if they
  /// are on disk and the CPU computes; and bytes of that memory.
  size_t staging_ = 0, read_bytes_ = 0;
  int64_t slice_bytes_ = 0;
  bool on_disk_ = false;
  CustomCollective collective_;
  size_t bytes_ = 0;
  Ref<Storage> memory_;
  bool under_way_ = false;
  Work work_;
  /// Follows the casts and copies of this rank's parts, if there is no collective.
  Event cast_;
  /// The stream that waited for the unshard, and the point from which others may read.
  Stream reader_;
  Event ready_;
};

}  // namespace weft::fsdp
