// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fsdp/gradients.h"
#include "fsdp/level.h"
#include "weft/end_on_thread.h"

namespace weft::fsdp {

class Runtime;

/// Parameters that are gathered and reduced together: those of one module that was given to
/// fully_shard.
class Unit : public ModuleAttachment, public std::enable_shared_from_this<Unit> {
 public:
  /// One whose calls are under way is ended by their thread: let go of by another one (Python
  /// collects garbage on any), it waits for that one's `end_departed`, or end.
  static std::shared_ptr<Unit> make(Module& module, Roles roles, const FullyShardOptions& options);
  static void end_departed();
  /// The calling thread makes its calls from now on.
  void runs_here() { home_ = EndOnThread<Unit>::of_thread(); }
  ~Unit() override;

  bool owns(const Parameter& parameter) const;
  /// Takes a parameter that is shared with another unit away, before `build`.
  void disown(const Parameter& parameter);
  void adopt(NamedParameter parameter);
  /// std::invalid_argument when it cannot be cut as the options say.
  void check(const NamedParameter& parameter) const;
  /// std::invalid_argument when a parameter was frozen or thawed since it was adopted.
  void check_frozen() const;
  /// A parameter of the module that stays whole.
  void ignore(ParameterPtr parameter) { ignored_.push_back(std::move(parameter)); }
  bool ignores(const Parameter& parameter) const;

  /// Which parameters belong here is settled: makes their slots, and their slices if they are made.
  void build();
  bool is_built() const { return built_; }
  /// Memory for the slices of declared parameters.
  void materialize(Device device);

  // What the schedule does.
  /// From the slices up; without any level the slices are whole.
  std::vector<Level>& levels() { return levels_; }
  const std::vector<Level>& levels() const { return levels_; }
  void gather(size_t level, BufferPool& pool);
  /// Whole parameters are there and bound.
  void wait();
  void free(size_t level, BufferPool& pool);
  Gradients& gradients() { return gradients_; }
  const Gradients& gradients() const { return gradients_; }
  /// Copies what was put in the place of its slices into them.
  void take_set_values();
  /// True when the slices changed since this was asked before; first of all.
  bool slices_changed();
  /// Ends what is under way, whatever comes of it.
  void finish_quietly() noexcept;

  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  const FullyShardOptions& options() const { return options_; }
  Module& module() const { return module_; }
  bool has_gradients() const { return !gradients_.is_empty(); }
  /// Its whole parameters may be needed after the last gradient is complete.
  bool has_frozen() const { return frozen_ > 0; }
  /// One rank speaks for all.
  bool is_first_rank() const;
  /// Its parameters or gradients rest on the host.
  bool offloads() const { return options_.offload.parameters || options_.offload.gradients; }

  int64_t slice_bytes() const { return static_cast<int64_t>(slice_bytes_); }
  int64_t measured_slice_bytes() const {
    return slices_ ? static_cast<int64_t>(slices_->bytes()) : 0;
  }

  /// Who runs this unit among others; std::invalid_argument when the outermost module is gone.
  Runtime& runtime() const;
  bool is_attached() const { return runtime_; }
  void attach(Runtime* runtime, size_t number) {
    runtime_ = runtime;
    index = number;
  }
  void detach(const Runtime* runtime) {
    if (runtime_ == runtime) runtime_ = nullptr;
  }
  /// The unit, for what is on the tape; std::invalid_argument when its model is gone.
  static std::shared_ptr<Unit> living(const std::weak_ptr<Unit>& unit);

  /// This unit's number there.
  size_t index = 0;

 private:
  Unit(Module& module, Roles roles, const FullyShardOptions& options);
  class Sink;
  class Refusal;
  struct Adopted {
    NamedParameter named;
    bool trainable;
  };

  bool is_under_way() const;
  std::string path_of(const NamedParameter& named) const;
  int dim_of(const NamedParameter& named) const;
  void forget_slots();
  void make_levels();
  void set_device(Device device);
  /// New memory for the slices.
  Ref<Storage> memory_at_rest() const;
  void add_slot(const NamedParameter& named);
  void check_layout(const std::string& name, const Tensor& value, int dim) const;
  void make_whole(Slot& slot, Device device);
  void keep_given(Slot& slot);
  void take_value(Slot& slot);
  void copy_given(Slot& slot);
  void rest(Slot& slot);
  Tensor slice_in(const Ref<Storage>& memory, const Slot& slot) const;

  Module& module_;
  Roles roles_;
  FullyShardOptions options_;
  std::string name_;
  std::vector<Adopted> parameters_;
  std::vector<ParameterPtr> ignored_;
  std::vector<std::unique_ptr<Slot>> slots_;
  Runtime* runtime_ = nullptr;
  bool built_ = false;
  size_t slice_bytes_ = 0;
  int frozen_ = 0;

  /// Of the thread that made its last call.
  std::shared_ptr<EndOnThread<Unit>> home_;
  /// What forward and backward compute on.
  Device device_ = cpu;
  Ref<Storage> slices_;
  Ref<Storage> seen_slices_;
  uint64_t seen_version_ = 0;
  std::vector<Level> levels_;
  Gradients gradients_;
  bool bound_ = false;
  /// The slices changed since whole parameters were bound.
  bool stale_ = false;
};

}  // namespace weft::fsdp
