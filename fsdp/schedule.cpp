// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <sstream>

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
  }

  /// Drops the actions so far, but keeps the buffers.
  void clear() { schedule_ = {}; }

  Schedule schedule() {
    schedule_.bytes.buffers = pool_.bytes();
    return std::move(schedule_);
  }

  void unshard(ParamGroup& group, size_t level) override {
    const Level& gathered = group.levels()[level];
    schedule_.bytes.copied += gathered.copied();
    for (const auto& [axes, bytes] : gathered.traffic()) {
      add(Kind::unshard, group, acquire(group, level, gathered.bytes()));
      receive(axes, bytes);
    }
  }

  void wait_for_unshard(ParamGroup& group) override {
    const size_t levels = group.levels().size();
    if (levels > 0) add(Kind::wait, group, buffer_of(group, levels - 1));
  }

  void compute(ParamGroup& group) override { add(Kind::compute, group, -1); }

  void reshard(ParamGroup& group, size_t level) override {
    const bool keeps = group.controls.keeps_storage;
    add(Kind::reshard, group, keeps ? buffer_of(group, level) : release(group, level));
  }

  void allocate_grads(ParamGroup& group) override {
    const Gradients& gradients = group.gradients();
    if (!gradients.is_direct()) acquire(group, kGradients, gradients.buffer_bytes());
  }

  void release_grads(ParamGroup& group) override { release(group, kGradients); }

  void close_bucket(ParamGroup&, int, size_t) override {}

  void reduce_grads(ParamGroup& group, int bucket, size_t reduction) override {
    const Gradients& gradients = group.gradients();
    const auto& [ranks, scatters, at_sync] = gradients.reductions()[reduction];
    schedule_.bytes.copied += gradients.copied(reduction);
    add(scatters ? Kind::scatter : Kind::all_reduce, group,
        reduction < gradients.buffer_reductions() ? buffer_of(group, kGradients) : -1, bucket);
    receive(ranks.axes, gradients.traffic(bucket, reduction));
  }

  void wait_for_reduce(ParamGroup& group, int bucket, size_t reduction, bool) override {
    const bool reads = reduction < group.gradients().buffer_reductions();
    add(Kind::wait_reduced, group, reads ? buffer_of(group, kGradients) : -1, bucket);
  }

 private:
  using Kind = ScheduledAction::Kind;

  void add(Kind kind, const ParamGroup& group, int buffer, int bucket = -1) {
    std::string module = group.name();
    if (bucket >= 0 && group.gradients().buckets() > 1) module += concat("#", bucket);
    schedule_.actions.push_back({kind, scheduler_.is_backward(), std::move(module), "", 0, buffer});
  }

  /// The last action receives so many bytes.
  void receive(const std::string& axes, int64_t bytes) {
    schedule_.actions.back().axes = axes;
    schedule_.actions.back().bytes = bytes;
    add_received(schedule_.bytes, axes, bytes);
  }

  /// Stands for the gradients' buffer, next to the levels of a group.
  static constexpr size_t kGradients = SIZE_MAX;

  /// The number of a buffer that a group holds; -1 without one.
  int buffer_of(const ParamGroup& group, size_t which) const {
    const auto found = held_.find({&group, which});
    return found == held_.end() ? -1 : numbers_.at(found->second.get());
  }

  int acquire(const ParamGroup& group, size_t which, size_t bytes) {
    Ref<Storage>& held = held_[{&group, which}];
    if (!held) held = pool_.acquire(bytes);
    return numbers_.try_emplace(held.get(), static_cast<int>(numbers_.size())).first->second;
  }

  int release(const ParamGroup& group, size_t which) {
    const int number = buffer_of(group, which);
    if (number >= 0) pool_.release(std::move(held_.extract({&group, which}).mapped()));
    return number;
  }

  const Recording& recording_;
  const ParamGroups& groups_;
  Schedule schedule_;
  Scheduler scheduler_;
  /// This pool has no memory.
  BufferPool pool_;
  std::map<std::pair<const ParamGroup*, size_t>, Ref<Storage>> held_;
  std::map<const Storage*, int> numbers_;
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

std::string Schedule::text() const {
  static constexpr const char* kVerbs[] = {
      "unshard", "wait", "compute", "reshard", "reduce-scatter", "all-reduce", "wait for sum of"};
  std::ostringstream out;
  for (const ScheduledAction& action : actions) {
    const std::string& module = action.module;
    const bool of_root = module.empty() || module[0] == '#';
    out << (action.backward ? "backward  " : "forward   ") << kVerbs[static_cast<int>(action.kind)]
        << ' ' << (of_root ? "the root" : "") << module;
    if (!action.axes.empty()) out << " over " << action.axes;
    if (action.buffer >= 0) out << ", buffer " << action.buffer;
    if (action.bytes > 0) out << ", " << action.bytes << " bytes";
    out << '\n';
  }
  out << "buffers: " << bytes.buffers << " bytes; received: " << bytes.received << " bytes";
  for (const AxisTraffic& part : bytes.by_axes) {
    if (bytes.by_axes.size() > 1) out << ", over " << part.axes << ' ' << part.bytes;
  }
  out << '\n';
  return out.str();
}

}  // namespace weft::fsdp
