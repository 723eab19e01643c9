// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "fsdp/quantized.h"
#include "weft/extend/disk_memory.h"
#include "weft/extend/tape.h"
#include "weft/fsdp_module.h"

namespace weft::fsdp {

/// The gradients of a param group's trainable parameters. Backward writes unsharded gradients into
/// a buffer, or directly into the final memory if nothing is sharded and nothing cast. The
/// reductions follow. Buckets are reduced one by one.
class Gradients {
 public:
  /// With offloaded gradients the final memory is on the host or on disk, and the last reduction
  /// writes to a landing area in the buffer, which is copied there. std::invalid_argument if
  /// quantized gradients would not be reduce-scattered.
  Gradients(const Roles& roles, const FullyShardOptions& options);

  /// Adds all parameters, then lays out the memories.
  void add(FsdpParam& param);
  void lay_out();
  /// Sets the device of new memory, and drops the present memory.
  void set_device(Device device);

  const std::vector<Reduction>& reductions() const { return reductions_; }
  bool is_empty() const { return grads_.empty(); }
  /// Bucket 0 holds the last parameters.
  int buckets() const { return static_cast<int>(buckets_.size()); }
  /// Backward writes into the final memory: there is no buffer.
  bool is_direct() const { return direct_; }
  size_t buffer_bytes() const { return buffer_bytes_; }
  /// A number for the parameters of a bucket, equal on all ranks.
  uint64_t subject(int bucket) const;
  /// Number of reductions that read the buffer: the first, or its stages.
  size_t buffer_reductions() const { return messages_.empty() ? 1 : messages_.size(); }
  /// The final memory is on the host or on disk; the last reduction needs the buffer too.
  bool rest_offloaded() const { return on_host_; }
  /// Bytes of a bucket's sums that this rank writes to disk.
  int64_t disk_bytes(int bucket) const;
  /// Bytes of the memory that holds gradients between micro-steps, as laid out and as allocated.
  int64_t bytes() const;
  int64_t measured_bytes() const;
  /// Bytes that a reduction of a bucket receives, and bytes that it copies.
  int64_t traffic(int bucket, size_t reduction) const;
  int64_t copied(size_t reduction) const;

  void allocate_buffer(BufferPool& pool);
  bool has_memory() const { return static_cast<bool>(direct_ ? final_ : buffer_); }
  void release_buffer(BufferPool& pool);
  /// Ends a bucket's part of backward, of which so many reductions follow: zeroes the gradients
  /// that backward did not write, and sets `grad()` of the parameters.
  void close_bucket(int bucket, size_t reductions);
  void reduce(int bucket, size_t reduction);
  /// `last`: no reduction of the bucket follows in this micro-step.
  void wait_for_reduce(int bucket, size_t reduction, bool last);
  bool is_under_way() const;
  /// Waits for the reductions under way, and drops their errors. Clears gradients of which further
  /// reductions are due.
  void wait_quietly() noexcept;

  /// Settings by the methods of FsdpModule.
  struct Settings {
    /// Changes reduced gradients before they are added to those of earlier steps.
    std::function<void(const Tensor&)> hook;
    double divide_factor = 1;
    CustomCollective collective;
  } settings;
  /// std::invalid_argument if the gradients are quantized.
  void set_collective(CustomCollective collective);

  /// A backward begins, in which all parameters are expected to get a gradient.
  void begin_backward();
  /// A bucket that was complete, and whose reductions have ended, gets further contributions.
  void reopen(int bucket);
  /// Makes gradients unreadable until `show`, because their reductions may be under way.
  void hide();
  void show();
  /// Clears all gradients, and forgets sums of earlier micro-steps.
  void clear();
  /// Returns a parameter that has a gradient, or null.
  const FsdpParam* find_kept() const;
  /// Returns the memory for the next contribution to gradient `i`.
  GradientSink::Destination destination(size_t i);
  /// Adds a recorded gradient, which no reduction takes, to the parameter's.
  void receive(size_t i, const Tensor& gradient);
  /// A contribution to gradient `i` follows. Returns its bucket if that was complete, else -1.
  int pre_accumulate_grad(size_t i);
  /// Gradient `i` is complete, as far as the calling backward knows. Returns its bucket if that is
  /// complete now, else -1.
  int post_accumulate_grad(size_t i);

 private:
  using Grad = ParamGrad;
  using Progress = ParamGrad::Progress;
  using Sum = ParamGrad::Sum;
  /// A sum that is added to the final one after the reduction.
  struct Addition {
    const Grad* grad;
    Ref<Storage> sum;
  };
  struct Bucket {
    int incomplete = 0;
    /// The reductions of this micro-step that have not ended.
    size_t pending = 0;
    /// The landing area holds newer sums than the host.
    bool landed = false;
    /// `work` was not waited for.
    bool under_way = false;
    std::vector<Addition> additions;
    /// The quantized gradients that are being received, by the messages of this number.
    std::vector<Arriving> arriving;
    size_t stage = 0;
    /// The sums over replicas are being exchanged as codes.
    bool replicating = false;
    /// Declared last, so that it ends before the memory is freed.
    Work work;
  };

  Bucket& bucket_at(int index) { return buckets_[static_cast<size_t>(index)]; }
  bool scatters_twice() const;
  bool sends_codes(size_t reduction) const { return reduction < messages_.size(); }
  /// The region from which a scatter reads a gradient.
  const Region& source(const Grad& grad, size_t reduction) const {
    return reduction == 0 ? grad.unsharded : sends_codes(reduction) ? grad.staged : grad.middle;
  }
  bool changes_sums() const { return settings.hook || settings.divide_factor != 1; }
  size_t residual_bytes() const;
  size_t codes_bytes() const { return replica_sums_ ? replica_sums_->bytes() : 0; }
  // gradients.cpp: layout, memory, progress
  void add_messages(const Quantization& quantization);
  void cut_into_buckets();
  void allocate_sums();
  void expect(Grad& grad);
  void replace_if_kept(Ref<Storage>& memory);
  bool holds_earlier(const Grad& grad) const;
  Tensor unsharded_of(const Grad& grad) const;
  Tensor sum_in(const Ref<Storage>& memory, const Grad& grad, const Sharding& layout) const;
  void set_param_grad(const Grad& grad, size_t reductions) const;
  void move_param_grads(const Ref<Storage>& from, const Ref<Storage>& to) const;
  // reductions.cpp: collectives
  void lay_out_messages();
  bool counts_here(const Grad& grad) const;
  std::vector<SumRun> runs_of(int bucket) const;
  const Ref<Storage>& sums() const { return on_host_ ? buffer_ : final_; }
  char* place_of(const Grad& grad) const;
  Tensor sum_of(const Grad& grad) const;
  Tensor final_of(const Grad& grad) const;
  void copy_sums(int bucket, bool to_host);
  void mark_sums(int bucket) const;
  Piece scattered(Grad& grad, size_t reduction);
  void reduce_buffer(int bucket, std::vector<Piece>& pieces);
  void reduce_in_place(int bucket, std::vector<Piece>& pieces);
  void expect_codes(size_t i, size_t stage);
  void receive(int bucket);
  // reductions.cpp: sums of earlier steps, hooks
  void forget_sums(Grad& grad);
  void set_aside(int bucket);
  void change_sums(int bucket);
  void add_sums(int bucket);
  // reductions.cpp: sums on disk
  void make_file();
  void read_sums_to_buffer();
  void wait_for_writes();

  Roles roles_;
  int64_t bucket_bytes_;
  std::vector<Reduction> reductions_;
  /// The ranks of the first reduction, in all its stages.
  AxisGroup first_;
  AxisGroup replicas_;
  std::vector<Grad> grads_;
  bool direct_ = false;
  Tier tier_;
  bool on_host_;
  /// The final sums are computed from byte `landing_` of `sums()` on: 0, or the landing area.
  size_t landing_ = 0, buffer_bytes_ = 0, middle_bytes_ = 0, final_bytes_ = 0;
  Ref<Storage> buffer_, middle_, final_, residual_, codes_;
  /// The file of the final sums, if they rest on disk, and what is being written there.
  std::shared_ptr<DiskMemory> disk_;
  std::vector<DiskMemory::Transfer> writes_;
  Device device_ = cpu;
  /// The messages of the first reductions, if these send codes: in one stage or two.
  std::vector<GradientMessages> messages_;
  /// Set if the all-reduce over replicas sends codes too, which then lie in `codes_`.
  std::optional<ReplicaSums> replica_sums_;
  /// Stands for the final memory while gradients are hidden.
  Ref<Storage> hidden_;
  /// Element counts of the pieces of the collective that is being started.
  std::vector<int64_t> counts_;
  std::vector<Bucket> buckets_ = std::vector<Bucket>(1);
};

}  // namespace weft::fsdp
