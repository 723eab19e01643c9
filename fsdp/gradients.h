// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "fsdp/buffers.h"
#include "fsdp/slot.h"
#include "weft/autograd.h"

namespace weft::fsdp {

/// One collective on the way from the gradients that backward writes to those the optimizer takes.
struct Reduction {
  AxisGroup group;
  bool scatters;
  /// Not in micro-steps before the last one.
  bool at_sync;
};

/// The gradients of a unit's trainable parameters. Backward writes the whole ones into a buffer, or
/// straight to where they rest if nothing is cut and nothing cast; then come the reductions.
class Gradients {
 public:
  /// `on_host`: they rest there, and pass through a place in the buffer on the way.
  Gradients(const Roles& roles, int64_t bucket_bytes, bool on_host);

  // Made in this order: all parameters, then the end.
  void add(Slot& slot);
  void close();
  /// Where the memory is made from now on; what there is of it is dropped.
  void set_device(Device device);

  const std::vector<Reduction>& reductions() const { return reductions_; }
  bool is_empty() const { return parts_.empty(); }
  /// Buckets are reduced one by one; 0 holds the last parameters.
  int buckets() const { return buckets_; }
  /// Backward writes where gradients rest: there is no buffer.
  bool is_direct() const { return direct_; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  /// They go there from the end of the buffer, which is needed until the last reduction.
  bool rest_on_host() const { return on_host_; }
  /// Of the memory in which gradients rest, and that was made.
  int64_t bytes() const { return static_cast<int64_t>(final_bytes_ + middle_bytes_); }
  int64_t measured_bytes() const;
  /// Received by reduction `step` of a bucket; copied.
  int64_t traffic(int bucket, size_t step) const;
  int64_t copied(size_t step) const;

  // What the schedule does.
  void take(BufferPool& pool);
  void give(BufferPool& pool);
  /// The bucket's backward is over: what no one contributed to is zero.
  void settle(int bucket, bool sync);
  void start(int bucket, size_t step);
  /// `last`: no reduction of this step follows.
  void wait(int bucket, bool last);
  bool is_under_way() const;
  /// Waits for what is under way; errors are dropped.
  void finish_quietly() noexcept;

  // What the tape does.
  void expect();
  GradientSink::Destination destination(size_t i);
  /// The gradient is complete, so far as the backward that says so knows: the bucket if it is so
  /// now, else -1.
  int complete(size_t i);
  /// A contribution comes, after all: the bucket if it was complete, else -1.
  int expect_more(size_t i);

 private:
  /// A parameter's gradient on its way.
  struct Part {
    Slot* slot;
    int bucket = 0;
    /// Whole, and between two scatters.
    Region whole, middle;
    /// Bytes from the start of the final memory.
    size_t offset = 0;
    /// No more is expected in this backward.
    bool complete = false;
    /// This backward has contributed; the buffer, the middle and the final memory hold sums of
    /// earlier ones; the final sum is that of all replicas.
    bool contributed = false, held = false, partial = false, final = false, reduced = false;
  };

  void leave_if_kept(Ref<Storage>& memory);
  void expect(Part& part);
  bool is_own(const Tensor& gradient) const;
  bool scatters_twice() const;
  void cut_into_buckets();
  void make_memory();
  /// A sum of all replicas counts on one of them.
  bool counts_here(const Part& part) const;
  bool holds_earlier(const Part& part) const;
  Tensor sum_of(const Part& part) const;
  char* sums() const;
  void fetch_sums(int bucket);
  void bring_home(int bucket);
  Tensor sum_in(const Ref<Storage>& memory, const Part& part, const Sharding& layout) const;
  void show(Part& part, bool sync) const;
  Piece scattered(Part& part, size_t step);
  void reduce_buffer(int bucket, std::vector<Piece>& pieces);
  void reduce_in_place(int bucket, std::vector<Piece>& pieces);

  /// A sum that is added to one of an earlier sync when it is there.
  struct Addition {
    const Part* part;
    Ref<Storage> sum;
  };

  Roles roles_;
  int64_t bucket_bytes_;
  std::vector<Reduction> reductions_;
  AxisGroup replicas_;
  std::vector<Part> parts_;
  bool direct_ = false;
  bool on_host_;
  /// Bytes from the start of the buffer to the sums on their way to the host.
  size_t landing_ = 0;
  /// By bucket: the sums there are newer than the host's.
  std::vector<bool> landed_;
  int buckets_ = 1;
  std::vector<int> incomplete_;
  /// By bucket.
  std::vector<std::vector<Addition>> additions_;
  size_t buffer_bytes_ = 0, middle_bytes_ = 0, final_bytes_ = 0;
  Ref<Storage> buffer_, middle_, final_;
  Device device_ = cpu;
  /// Counts of the pieces being posted.
  std::vector<int64_t> counts_;
  /// By bucket: what was not waited for. They end before the memory that they use.
  std::vector<bool> under_way_;
  std::vector<Work> works_;
};

}  // namespace weft::fsdp
