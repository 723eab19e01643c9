// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <set>

#include "fsdp/param_group.h"
#include "fsdp/scheduler.h"
#include "weft/error.h"

namespace weft::fsdp {

void add_received(FullyShardBytes& sum, const std::string& axes, int64_t bytes) {
  if (bytes == 0) return;
  sum.received += bytes;
  auto found = std::ranges::find(sum.by_axes, axes, &AxisTraffic::axes);
  if (found == sum.by_axes.end()) found = sum.by_axes.insert(found, {axes, 0});
  found->bytes += bytes;
}

static bool is_of_backward(const StepEvent& event) {
  return event.kind >= StepEvent::Kind::pre_backward && event.kind < StepEvent::Kind::finalize;
}

static bool unshards(const StepEvent& event) {
  return event.kind == StepEvent::Kind::pre_forward || event.kind == StepEvent::Kind::pre_backward;
}

std::vector<size_t> buffer_sizes(const ParamGroups& groups) {
  std::vector<size_t> sizes;
  for (const auto& group : groups) {
    for (const Level& level : group->levels()) sizes.push_back(level.bytes());
    if (!group->gradients().is_direct()) sizes.push_back(group->gradients().buffer_bytes());
  }
  return sizes;
}

std::vector<ParamGroup*> prefetch_list(const StepEvent& event) {
  std::vector<ParamGroup*> groups;
  if (!unshards(event)) return groups;
  const bool backward = event.kind == StepEvent::Kind::pre_backward;
  const ParamGroup::Controls& controls = event.group->controls;
  for (const auto& held : backward ? controls.backward_prefetch : controls.forward_prefetch) {
    const auto group = held.lock();
    if (group && (!backward || group->controls.unshards_in_backward)) {
      groups.push_back(group.get());
    }
  }
  return groups;
}

std::vector<ParamGroup*> Recording::to_prefetch(size_t index) const {
  std::vector<ParamGroup*> groups = prefetch_list(events[index]);
  if (!unshards(events[index]) || !groups.empty()) return groups;
  const auto depth = static_cast<size_t>(events[index].group->options().prefetch);
  for (size_t i = index + 1; i < events.size() && groups.size() < depth; ++i) {
    if (!unshards(events[i])) continue;
    if (events[i].kind != events[index].kind) break;
    bool known = events[i].group == events[index].group ||
                 (events[i].kind == StepEvent::Kind::pre_backward &&
                  !events[i].group->controls.unshards_in_backward) ||
                 std::ranges::find(groups, events[i].group) != groups.end();
    if (!known) groups.push_back(events[i].group);
  }
  return groups;
}

static void expect_gradients(std::vector<StepEvent>& events, ParamGroup& group) {
  if (!group.has_gradients()) return;
  for (int bucket = 0; bucket < group.gradients().buckets(); ++bucket) {
    events.push_back({StepEvent::Kind::grads_complete, &group, bucket});
  }
}

Recording expected_step(const ParamGroups& groups, bool training) {
  ParamGroup* root = groups.back().get();
  std::vector<StepEvent> events{{StepEvent::Kind::pre_forward, root}};
  for (const auto& group : groups) {
    if (group.get() == root) continue;
    events.push_back({StepEvent::Kind::pre_forward, group.get()});
    events.push_back({StepEvent::Kind::post_forward, group.get()});
  }
  events.push_back({StepEvent::Kind::post_forward, root});
  if (training) {
    events.push_back({StepEvent::Kind::pre_backward, root});
    for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
      if (group->get() == root) continue;
      events.push_back({StepEvent::Kind::pre_backward, group->get()});
      expect_gradients(events, **group);
      if ((*group)->has_frozen())
        events.push_back({StepEvent::Kind::input_grads_complete, group->get()});
    }
    expect_gradients(events, *root);
  }
  events.push_back({StepEvent::Kind::finalize, root});
  return {.events = std::move(events), .complete = true};
}

namespace {

/// Lists the actions of a step instead of performing them.
class ScheduleWriter final : public Executor {
 public:
  ScheduleWriter(const Recording& recording, const ParamGroups& groups)
      : recording_(recording), groups_(groups), scheduler_(groups, *this) {
    pool_.set_device(meta);
    pool_.expect(this, buffer_sizes(groups));
    const DeviceMesh root = groups.back()->mesh().root();
    program_.is_exact = true;
    program_.rank = root.rank();
    for (int axis = 0; axis < root.ndim(); ++axis) {
      program_.mesh.emplace_back(root.axis_name(axis), root.axis_size(axis));
    }
  }

  void run(const StepKind& kind) {
    scheduler_.begin_step(kind.training);
    scheduler_.set_sync(kind.sync);
    for (const auto& group : groups_) {
      if (kind.updated) scheduler_.slices_changed(*group);
    }
    const auto& events = recording_.events;
    for (size_t i = 0; i < events.size(); ++i) {
      if (is_of_backward(events[i]) && !scheduler_.is_backward()) scheduler_.begin_backward();
      scheduler_.handle(events[i], recording_.to_prefetch(i));
    }
    syncs_ = kind.sync;
  }

  /// Drops the actions so far, but keeps the buffers.
  void clear() {
    program_.steps.clear();
    gathering_.clear();
    reading_.clear();
    copied_ = 0;
    for (ProgramSlot& slot : program_.slots) slot.held_before = false;
    for (const auto& [key, held] : held_) slot_of(held).held_before = true;
  }

  Schedule schedule() {
    // A module that was unsharded early, but not used, is waited for when it is.
    for (const auto& [group, work] : gathering_) wait_quietly(work);
    for (const auto& [group, read] : reading_) wait_quietly(read.first);
    for (const auto& [key, held] : held_)
      slot_of(held).kept_after = is_kept(*key.first, key.second);
    return {std::move(program_), copied_};
  }

  void unshard(ParamGroup& group, size_t level) override {
    const Level& gathered = group.levels()[level];
    copied_ += gathered.copied();
    if (level > 0) end_read(group);
    const int buffer = acquire(group, level, gathered.bytes());
    if (gathered.disk_bytes() > 0) {
      ProgramStep& read = add(Act::read, "read", group, buffer);
      read.bytes = gathered.disk_bytes();
      reading_[&group] = {start(read), level};
      return;
    }
    gather(group, level);
  }

  void wait_for_unshard(ParamGroup& group) override {
    end_read(group);
    const size_t levels = group.levels().size();
    if (levels == 0) return;
    const bool waits = gathering_.contains(&group);
    ProgramStep& step =
        add(waits ? Act::wait : Act::view, "wait", group, buffer_of(group, levels - 1));
    if (waits) step.work = gathering_.extract(&group).mapped();
  }

  void compute(ParamGroup& group) override {
    std::vector<int> used;
    for (const auto& [key, held] : held_) {
      const bool is_read = key.second == kGradients || key.second + 1 == group.levels().size();
      if (key.first == &group && is_read) used.push_back(numbers_.at(held.get()));
    }
    add(Act::compute, "compute", group, -1).uses = std::move(used);
  }

  void reshard(ParamGroup& group, size_t level) override {
    end_read(group);
    if (gathering_.contains(&group)) wait_quietly(gathering_.extract(&group).mapped());
    const int buffer = buffer_of(group, level);
    const bool frees = buffer >= 0 && !group.controls.keeps_storage;
    add(frees ? Act::release : Act::view, "reshard", group, buffer);
    if (frees) forget(group, level);
  }

  void allocate_grads(ParamGroup& group) override {
    const Gradients& gradients = group.gradients();
    if (!gradients.is_direct()) acquire(group, kGradients, gradients.buffer_bytes());
  }

  void release_grads(ParamGroup& group) override {
    const int buffer = buffer_of(group, kGradients);
    if (buffer < 0) return;
    program_.steps.push_back({.act = Act::release, .slot = buffer});
    forget(group, kGradients);
  }

  void close_bucket(ParamGroup&, int, size_t) override {}

  void reduce_grads(ParamGroup& group, int bucket, size_t reduction) override {
    const Gradients& gradients = group.gradients();
    const auto& [ranks, scatters, at_sync] = gradients.reductions()[reduction];
    copied_ += gradients.copied(reduction);
    const int buffer =
        reduction < gradients.buffer_reductions() ? buffer_of(group, kGradients) : -1;
    const int64_t on_disk = gradients.disk_bytes(bucket);
    if (on_disk > 0 && reduction == 0 && has_sums_.contains({&group, bucket})) {
      add(Act::read, "read sums of", group, buffer, bucket).bytes = on_disk;
    }
    ProgramStep& step =
        add(Act::reduce, scatters ? "reduce-scatter" : "all-reduce", group, buffer, bucket);
    receive(step, ranks.axes, gradients.traffic(bucket, reduction));
    reducing_[{&group, bucket}] = start(step);
  }

  void wait_for_reduce(ParamGroup& group, int bucket, size_t reduction, bool last) override {
    const Gradients& gradients = group.gradients();
    const bool reads = reduction < gradients.buffer_reductions();
    const int buffer = reads ? buffer_of(group, kGradients) : -1;
    add(Act::wait, "wait for sum of", group, buffer, bucket).work = reducing_.at({&group, bucket});
    if (!last || gradients.disk_bytes(bucket) == 0) return;
    add(Act::write, "write sums of", group, buffer, bucket).bytes = gradients.disk_bytes(bucket);
    has_sums_.insert({&group, bucket});
  }

 private:
  using Act = ProgramAct;

  ProgramStep& add(Act act, const char* verb, const ParamGroup& group, int buffer,
                   int bucket = -1) {
    std::string object = group.name().empty() ? "the root" : group.name();
    if (bucket >= 0 && group.gradients().buckets() > 1) object += concat("#", bucket);
    const int stream = act == Act::gather || act == Act::read    ? 1
                       : act == Act::reduce || act == Act::write ? 2
                                                                 : 0;
    program_.steps.push_back({.act = act,
                              .verb = verb,
                              .object = std::move(object),
                              .phase = scheduler_.is_backward() ? "backward" : "forward",
                              .slot = buffer,
                              .stream = stream});
    return program_.steps.back();
  }

  static void receive(ProgramStep& step, const std::string& axes, int64_t bytes) {
    step.axes = axes;
    step.bytes = bytes;
  }

  /// Gives the step a number by which a wait ends it.
  int start(ProgramStep& step) { return step.work = works_++; }
  void wait_quietly(int work) { program_.steps.push_back({.act = Act::wait, .work = work}); }

  /// Gathers in a level; each gather of a parameter's parts follows the one before.
  void gather(ParamGroup& group, size_t level) {
    for (const auto& [axes, bytes] : group.levels()[level].traffic()) {
      if (gathering_.contains(&group)) wait_quietly(gathering_.at(&group));
      ProgramStep& step = add(Act::gather, "unshard", group, buffer_of(group, level));
      if (level > 0) step.uses = {buffer_of(group, level - 1)};
      receive(step, axes, bytes);
      gathering_[&group] = start(step);
    }
  }

  /// The collective follows the read of the slices, when the group waits for it.
  void end_read(ParamGroup& group) {
    const auto found = reading_.find(&group);
    if (found == reading_.end()) return;
    const auto [work, level] = found->second;
    reading_.erase(found);
    wait_quietly(work);
    gather(group, level);
  }

  /// Stands for the gradients' buffer, next to the levels of a group.
  static constexpr size_t kGradients = SIZE_MAX;

  /// Returns whether memory stays for the next step.
  bool is_kept(const ParamGroup& group, size_t which) const {
    const ParamGroup::Controls& controls = group.controls;
    if (which == kGradients) {
      const bool is_reduced = controls.reduces && !group.gradients().reductions().empty();
      return !syncs_ || !is_reduced || !controls.all_reduces;
    }
    const bool is_users = std::ranges::any_of(
        recording_.events, [](const StepEvent& event) { return event.is_of_user(); });
    return is_users || controls.keeps_storage || !controls.reshards_after_backward ||
           !controls.reshards_after_forward.value_or(true) ||
           group.levels()[which].lifetime() == Lifetime::update;
  }

  ProgramSlot& slot_of(const Ref<Storage>& held) {
    return program_.slots[static_cast<size_t>(numbers_.at(held.get()))];
  }

  /// The number of a buffer that a group holds; -1 without one.
  int buffer_of(const ParamGroup& group, size_t which) const {
    const auto found = held_.find({&group, which});
    return found == held_.end() ? -1 : numbers_.at(found->second.get());
  }

  int acquire(const ParamGroup& group, size_t which, size_t bytes) {
    Ref<Storage>& held = held_[{&group, which}];
    if (held) return numbers_.at(held.get());
    held = pool_.acquire(bytes);
    const auto next = static_cast<int>(numbers_.size());
    const auto [found, is_new] = numbers_.try_emplace(held.get(), next);
    if (is_new) {
      program_.add_slot(
          {.name = concat("buffer ", next), .bytes = static_cast<int64_t>(held->bytes())});
    }
    program_.steps.push_back({.act = Act::acquire, .slot = found->second});
    return found->second;
  }

  void forget(const ParamGroup& group, size_t which) {
    pool_.release(std::move(held_.extract({&group, which}).mapped()));
  }

  const Recording& recording_;
  const ParamGroups& groups_;
  Program program_;
  int64_t copied_ = 0;
  Scheduler scheduler_;
  /// This pool has no memory.
  BufferPool pool_;
  std::map<std::pair<const ParamGroup*, size_t>, Ref<Storage>> held_;
  std::map<const Storage*, int> numbers_;
  int works_ = 0;
  bool syncs_ = true;
  /// The work of each group, or bucket, that is under way; buckets whose sums rest on disk.
  std::map<const ParamGroup*, int> gathering_;
  std::map<const ParamGroup*, std::pair<int, size_t>> reading_;
  std::map<std::pair<const ParamGroup*, int>, int> reducing_;
  std::set<std::pair<const ParamGroup*, int>> has_sums_;
};

}  // namespace

Schedule compiled(const Recording& recording, const ParamGroups& groups,
                  const std::vector<StepKind>& steps) {
  ScheduleWriter writer(recording, groups);
  // A step without an update starts with what an earlier step gathered and kept.
  if (!steps[0].updated) {
    writer.run({.training = steps[0].training});
    writer.clear();
  }
  for (const StepKind& kind : steps) writer.run(kind);
  return writer.schedule();
}

}  // namespace weft::fsdp
