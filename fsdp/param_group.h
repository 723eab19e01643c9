// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/controls.h"
#include "fsdp/gradients.h"
#include "fsdp/level.h"
#include "weft/error.h"
#include "weft/extend/disk_memory.h"
#include "weft/extend/end_on_thread.h"
#include "weft/extend/hash.h"
#include "weft/extend/subject.h"

namespace weft::fsdp {

/// Parameters that are unsharded, and whose gradients are reduced, together: those of one call of
/// fully_shard with the same mesh and strategy. A group does not know the model that it is part of.
class ParamGroup {
 public:
  /// The last handle deletes the group on the thread that started its collectives if some are under
  /// way: Python collects garbage on any thread. That thread deletes it in `end_departed`.
  static std::shared_ptr<ParamGroup> make(Roles roles, const FullyShardOptions& options);
  static void end_departed() { EndOnThread<ParamGroup>::of_thread()->reap(); }
  ~ParamGroup() { unbind_all(); }

  bool owns(const Parameter& parameter) const;
  /// Adds a parameter of module `member` of the group, and removes one that another group shares,
  /// if it has it, before `build`.
  void adopt(NamedParameter parameter, size_t member);
  bool disown(const Parameter& parameter);
  /// std::invalid_argument if the parameter cannot be sharded as the options say.
  void check(const NamedParameter& parameter, size_t member) const;
  /// True if a parameter was frozen or unfrozen. std::invalid_argument if there are gradients then.
  bool trainable_changed() const;
  /// Lays out the gradients of the parameters that are trainable now.
  void update_trainable();

  /// Layouts over the axes that FSDP does not use, of parameters that are sharded already.
  using Layouts = std::map<const Parameter*, Sharding>;
  void add_layouts(Layouts& layouts) const;
  /// Forgets all parameters, which are adopted again with the layouts that they had.
  void begin_readopting(const Layouts& layouts);
  /// Restores parameters that the group no longer has. Returns true if the parameters differ from
  /// those before: the next `build` makes the group again.
  bool end_readopting();
  /// Fails if the parameters differ from those before and one has a gradient, which would be lost.
  void check_readopting() const;
  /// Restores the parameters before `begin_readopting`.
  void cancel_readopting() { parameters_ = std::move(previous_); }
  void ignore(ParameterPtr parameter) { ignored_.push_back(std::move(parameter)); }
  bool ignores(const Parameter& parameter) const;

  /// Makes the sink of trainable parameter `i`'s gradient.
  using SinkMaker = std::function<std::shared_ptr<GradientSink>(size_t i)>;
  void set_sink_maker(SinkMaker maker) { sink_maker_ = std::move(maker); }
  void set_gatherer(std::function<void()> gather) { gatherer_ = std::move(gather); }
  /// Forgets what `build` made. Groups that take over one another's parameters all do so before the
  /// first of them is built again.
  void drop_params();
  /// Lays out the parameters and their slices, the first time. Returns true if that gave the slices
  /// memory, which is so if all parameters have values.
  bool build();
  bool is_built() const { return built_; }
  /// Allocates the slices of declared parameters, once.
  void materialize(Device device);
  /// The same, and sets the initial values of parameters that have none.
  void materialize_all(Device device);
  bool awaits_memory() const { return !has_slices() && !params_.empty(); }
  Device device() const { return device_; }

  /// The gathers that unshard the group, from the slices up. Without a level the slices are the
  /// unsharded parameters.
  const std::vector<Level>& levels() const { return levels_; }
  /// Starts to gather one level.
  void unshard(size_t level, BufferPool& pool);
  /// Waits for all levels, and lets the parameters' tensors use the gathered memory.
  void wait_for_unshard();
  /// Releases the memory of one level.
  void reshard(size_t level, BufferPool& pool);
  /// Starts a reduction of a bucket of gradients.
  void reduce_grads(int bucket, size_t reduction);
  Gradients& gradients() { return gradients_; }
  const Gradients& gradients() const { return gradients_; }
  void run_post_accumulate_hooks() const;
  /// Copies values that the user set in place of slices into the slices.
  void copy_set_values();
  /// Returns true the first time, and if the slices changed since the last call.
  bool take_slices_changed();
  /// Waits for all collectives under way, and drops their errors.
  void wait_quietly() noexcept;

  /// The paths of the group's modules, joined by "+".
  const std::string& name() const { return name_; }
  const std::vector<std::string>& names() const { return names_; }
  void set_names(std::vector<std::string> names);
  /// The group is part of model number `number` of those with equal parameters on these ranks.
  void set_model(uint64_t model, uint64_t number);
  /// Returns a number for the names and shapes of the parameters.
  uint64_t content() const;
  /// Say what the collectives of the scope move: the parameters of a level, or gradients.
  SubjectScope gathering(size_t level) const { return {mixed(subject_, level), words_[0]}; }
  SubjectScope reducing(int bucket, size_t reduction) const;
  std::string title() const;
  const DeviceMesh& mesh() const { return roles_.mesh; }
  const FullyShardOptions& options() const { return options_; }
  /// True if parameters of the group are trained.
  bool has_gradients() const { return !gradients_.is_empty(); }
  /// Backward may read frozen parameters after the last gradient of the group is complete.
  bool has_frozen() const { return frozen_ > 0; }
  /// True on one rank, which prints for all.
  bool is_first_rank() const { return roles_.mesh.root().rank() == 0; }
  /// Parameters or gradients rest on the host or on disk.
  bool offloads() const;
  /// Memory of the slices, as laid out and as allocated.
  int64_t slice_bytes() const { return rests_on_disk() ? 0 : static_cast<int64_t>(slice_bytes_); }
  int64_t measured_slice_bytes() const;

  /// Position among the groups of the model.
  size_t index = 0;
  using Controls = GroupControls;
  Controls controls;

 private:
  ParamGroup(Roles roles, const FullyShardOptions& options);
  struct Adopted {
    NamedParameter named;
    size_t member;
    bool trainable;
    bool is(const Parameter& other) const { return named.parameter.get() == &other; }
  };
  /// The memory that the slices had, and the number of its changes.
  struct Version {
    Ref<Storage> slices;
    uint64_t number = 0;
    bool operator==(const Version&) const = default;
  };

  bool is_under_way() const;
  void runs_here() { home_ = EndOnThread<ParamGroup>::of_thread(); }
  std::string path_of(const NamedParameter& named, size_t member) const;
  int dim_of(const NamedParameter& named) const;
  bool was_readopted() const;
  void identify();
  void unbind_all();
  void make_levels();
  Level::Array array_of(const FsdpParam& param, const Level& level, const AxisGroup& use) const;
  void set_device(Device device);
  bool rests_on_disk() const { return options_.offload.parameters.is_disk(); }
  bool has_slices() const { return slices_->is_bound() || disk_; }
  void allocate_slices();
  void add_param(const Adopted& adopted);
  void add_gradients();
  void check_layout(const std::string& name, const Tensor& value, int dim) const;
  void make_unsharded(FsdpParam& param);
  void keep_value(FsdpParam& param);
  void copy_value(FsdpParam& param);
  void show_slice(FsdpParam& param);
  void show(FsdpParam& param);
  Tensor slice_of(const FsdpParam& param) const;

  Roles roles_;
  FullyShardOptions options_;
  SinkMaker sink_maker_;
  std::function<void()> gatherer_;
  std::string name_;
  std::vector<std::string> names_{""};
  /// Identify the model and the group alike on all ranks, and name the group in errors of gathers
  /// and of reductions.
  uint64_t model_ = 0, number_ = 0, subject_ = 0;
  std::array<std::string, 2> words_;
  std::vector<Adopted> parameters_;
  /// The parameters before, while they are adopted again.
  std::vector<Adopted> previous_;
  Layouts layouts_;
  std::vector<ParameterPtr> ignored_;
  std::vector<std::unique_ptr<FsdpParam>> params_;
  bool built_ = false;
  size_t slice_bytes_ = 0;
  int frozen_ = 0;

  /// The thread that started the last collective.
  std::shared_ptr<EndOnThread<ParamGroup>> home_;
  /// Device on which forward and backward compute.
  Device device_ = cpu;
  Ref<Storage> slices_;
  /// The file of the slices, if they rest on disk.
  std::shared_ptr<DiskMemory> disk_;
  /// The version that `take_slices_changed` saw last, and the one that was unsharded last.
  Version seen_, unsharded_;
  std::vector<Level> levels_;
  Gradients gradients_;
};

}  // namespace weft::fsdp
