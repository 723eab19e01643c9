// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fsdp/buffers.h"
#include "weft/autograd.h"
#include "weft/communicator.h"
#include "weft/fsdp.h"

namespace weft::fsdp {

class Runtime;

/// Parameters that are gathered and reduced together: those of one module that was given to
/// fully_shard.
class Unit : public ModuleAttachment, public std::enable_shared_from_this<Unit> {
 public:
  Unit(Module& module, const DeviceMesh& mesh, const FullyShardOptions& options);

  /// Which parameters belong here is settled: makes their slots, and their slices if they are made.
  void build();
  bool is_built() const { return built_; }
  /// Memory for the slices of declared parameters.
  void materialize(Device device);

  bool owns(const Parameter& parameter) const;
  /// Takes a parameter that is shared with another unit away, before `build`.
  void disown(const Parameter& parameter);
  void adopt(NamedParameter parameter);
  /// A parameter of the module that stays whole.
  void ignore(ParameterPtr parameter) { ignored_.push_back(std::move(parameter)); }
  bool ignores(const Parameter& parameter) const;

  // What the schedule does.
  void start_gather(BufferPool& pool);
  void wait_gathered();
  void free_gathered(BufferPool& pool);
  bool is_gathered() const { return state_ == State::gathered; }
  bool is_held() const { return state_ != State::sharded; }
  /// Reduces this rank's part of the gradients into the slices' gradients; parameters without one
  /// join with zeros.
  void start_scatter(BufferPool& pool);
  void wait_scattered(BufferPool& pool);
  bool is_scattering() const { return scattering_; }
  /// Gives everything back after a step that did not end.
  void abandon(BufferPool& pool);
  /// Parameters whose gradients are not complete in this backward.
  int incomplete() const { return incomplete_; }
  void expect_gradients();
  /// Memory for this backward's whole gradients.
  void take_gradient_buffer(BufferPool& pool);

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  const FullyShardOptions& options() const { return options_; }
  Module& module() const { return module_; }
  bool has_gradients() const { return trainable_ > 0; }
  /// Its whole parameters may be needed after the last gradient is complete.
  bool has_frozen() const { return frozen_ > 0; }
  int ranks() const { return ranks_.size(); }
  /// One rank speaks for all.
  bool is_first_rank() const { return ranks_.rank() == 0; }

  // Bytes, of this rank.
  size_t buffer_bytes() const { return buffer_bytes_; }
  int64_t slice_bytes() const { return static_cast<int64_t>(slice_bytes_); }
  int64_t gradient_bytes() const;
  int64_t measured_slice_bytes() const {
    return slices_ ? static_cast<int64_t>(slices_->bytes()) : 0;
  }
  int64_t measured_gradient_bytes() const {
    return gradients_ ? static_cast<int64_t>(gradients_->bytes()) : 0;
  }
  int64_t gather_traffic() const;
  int64_t scatter_traffic() const;

  /// Who is told when all gradients are complete.
  Runtime* runtime = nullptr;

 private:
  class Sink;
  enum class State { sharded, gathering, gathered };

  /// A parameter's place: N * ceil(rows / N) rows in the unit's buffer, this rank's slice in its
  /// own.
  struct Slot {
    std::string name;
    ParameterPtr parameter;
    Shape shape;
    DType dtype;
    bool trainable;
    /// Elements each rank holds.
    std::vector<int64_t> counts;
    /// Bytes from the start of the buffer, and of the slices' memory.
    size_t buffer_offset;
    size_t slice_offset;
    Tensor whole;
    /// A contribution of this backward is there.
    bool contributed = false;

    int64_t slice_elements(int rank) const { return counts[static_cast<size_t>(rank)]; }
    int64_t elements() const { return shape.product(); }
  };

  void add_slot(const NamedParameter& named);
  void take_value(Slot& slot);
  GradientSink::Destination destination(Slot& slot);
  void complete(Slot& slot);
  void make_gradient_memory();
  Tensor gradient_slice(const Slot& slot) const;
  char* slice(const Slot& slot) const;

  Module& module_;
  DeviceMesh mesh_;
  Communicator ranks_;
  FullyShardOptions options_;
  std::string name_;
  std::vector<NamedParameter> parameters_;
  std::vector<ParameterPtr> ignored_;
  std::vector<std::unique_ptr<Slot>> slots_;
  bool built_ = false;
  size_t buffer_bytes_ = 0;
  size_t slice_bytes_ = 0;
  int trainable_ = 0;
  int frozen_ = 0;
  int incomplete_ = 0;

  Ref<Storage> slices_;
  Ref<Storage> gradients_;
  State state_ = State::sharded;
  Ref<Storage> gather_buffer_;
  Work gather_;
  Ref<Storage> gradient_buffer_;
  bool scattering_ = false;
  Work scatter_;
};

}  // namespace weft::fsdp
