// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit.h"

#include <algorithm>
#include <utility>

#include "fsdp/runtime.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

/// Leads a parameter's gradients into the unit's memory.
class Unit::Sink final : public GradientSink {
 public:
  Sink(std::weak_ptr<Unit> unit, size_t number) : unit_(std::move(unit)), number_(number) {}
  Destination destination() override {
    const auto unit = living(unit_);
    unit->runtime().need_gradient_memory(*unit, number_);
    return unit->gradients_.destination(number_);
  }
  void complete() override {
    const auto unit = living(unit_);
    unit->runtime().gradient_complete(*unit, number_);
  }

 private:
  std::weak_ptr<Unit> unit_;
  size_t number_;
};

/// A slice takes its gradient from the unit alone: what came to it from a tape would be lost.
class Unit::Refusal final : public GradientSink {
 public:
  explicit Refusal(std::string name) : name_(std::move(name)) {}
  Destination destination() override { refuse(); }
  void complete() override { refuse(); }

 private:
  [[noreturn]] void refuse() const {
    fail("fully_shard: a gradient comes to value() of parameter ", name_,
         ", which is a slice at rest; compute with tensor()");
  }
  std::string name_;
};

Unit::Unit(Module& module, Roles roles, const FullyShardOptions& options)
    : module_(module),
      roles_(std::move(roles)),
      options_(options),
      gradients_(roles_, options.bucket_bytes, options.offload.gradients) {}

std::shared_ptr<Unit> Unit::make(Module& module, Roles roles, const FullyShardOptions& options) {
  return {new Unit(module, std::move(roles), options), [](Unit* gone) {
            const auto home = gone->home_;
            gone->is_under_way() ? home->take(gone) : delete gone;
          }};
}

bool Unit::is_under_way() const {
  return gradients_.is_under_way() ||
         std::any_of(levels_.begin(), levels_.end(),
                     [](const Level& level) { return level.is_under_way(); });
}

void Unit::end_departed() { EndOnThread<Unit>::of_thread()->reap(); }

Unit::~Unit() {
  if (!bound_) return;
  for (auto& slot : slots_) {
    if (slot->whole.device().kind != DeviceKind::meta) slot->whole.storage()->unbind();
  }
}

static constexpr const char* kGone =
    "fully_shard: the model is gone; keep it until the backward of its loss has ended";

std::shared_ptr<Unit> Unit::living(const std::weak_ptr<Unit>& unit) {
  auto found = unit.lock();
  if (!found) fail(kGone);
  return found;
}

Runtime& Unit::runtime() const {
  if (!runtime_) fail(kGone);
  return *runtime_;
}

bool Unit::is_first_rank() const { return roles_.mesh.root().rank() == 0; }

bool Unit::owns(const Parameter& parameter) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [&](const Adopted& adopted) {
    return adopted.named.parameter.get() == &parameter;
  });
}

bool Unit::ignores(const Parameter& parameter) const {
  return std::any_of(ignored_.begin(), ignored_.end(),
                     [&](const ParameterPtr& ignored) { return ignored.get() == &parameter; });
}

void Unit::disown(const Parameter& parameter) {
  std::erase_if(parameters_, [&](const Adopted& adopted) {
    return adopted.named.parameter.get() == &parameter;
  });
}

void Unit::adopt(NamedParameter parameter) {
  const bool trainable = parameter.parameter->is_trainable();
  parameter.parameter->set_settler([held = weak_from_this()] {
    const auto unit = held.lock();
    if (unit && unit->is_attached()) unit->runtime().build();
  });
  parameters_.push_back({std::move(parameter), trainable});
}

void Unit::check_frozen() const {
  for (const auto& [named, trainable] : parameters_) {
    if (named.parameter->is_trainable() == trainable) continue;
    fail("fully_shard: parameter ", path_of(named), " was ", trainable ? "frozen" : "thawed",
         " after it was sharded; do so before");
  }
}

std::string Unit::path_of(const NamedParameter& named) const {
  return name_.empty() ? named.name() : concat(name_, ".", named.name());
}

/// What a build that threw has left.
void Unit::forget_slots() {
  for (const auto& slot : slots_) slot->parameter->set_used({});
  slots_.clear();
  levels_.clear();
  gradients_ = Gradients(roles_, options_.bucket_bytes, options_.offload.gradients);
  slice_bytes_ = 0;
  frozen_ = 0;
}

void Unit::build() {
  if (built_) return;
  check_frozen();
  forget_slots();
  for (const Adopted& adopted : parameters_) {
    check(adopted.named);
    if (!adopted.named.parameter->has_used()) continue;
    fail("fully_shard: parameter ", path_of(adopted.named),
         " is another module's already; shard the modules below before those above them, and all "
         "before the first forward");
  }
  // Trainable ones lie together, so that they are updated by one call.
  std::stable_partition(parameters_.begin(), parameters_.end(),
                        [](const Adopted& adopted) { return adopted.trainable; });
  for (const Adopted& adopted : parameters_) add_slot(adopted.named);
  gradients_.close();
  make_levels();
  bool declared = std::any_of(slots_.begin(), slots_.end(),
                              [](const auto& slot) { return !slot->parameter->is_materialized(); });
  if (declared) {
    slices_ = Storage::unbound(slice_bytes_, cpu, concat("slices of ", name_));
  } else {
    if (!slots_.empty()) set_device(slots_[0]->parameter->value().device());
    slices_ = memory_at_rest();
  }
  for (auto& slot : slots_) take_value(*slot);
  built_ = true;
}

void Unit::set_device(Device device) {
  device_ = device;
  gradients_.set_device(device);
  if (runtime_) runtime_->set_device(device);
}

Ref<Storage> Unit::memory_at_rest() const {
  PurposeScope purpose(Purpose::parameters);
  const bool pinned = options_.offload.parameters && device_.kind == DeviceKind::cuda;
  return pinned ? Storage::allocate_pinned(slice_bytes_) : Storage::allocate(slice_bytes_, device_);
}

/// What is gathered once an update or step, and at each use. Ranks that hold all there is need no
/// level, or one that casts, or one that brings it from the host.
void Unit::make_levels() {
  if (slots_.empty()) return;
  AxisGroup before = roles_.group(roles_.at_use, roles_.cut.size());
  AxisGroup use = roles_.group(0, roles_.at_use);
  bool casts = std::any_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot->types.storage != slot->types.compute;
  });
  const bool offloads = options_.offload.parameters;
  if (before.size > 1 || (use.size == 1 && casts && !offloads)) {
    levels_.emplace_back(
        before, roles_.keeps_gathered || before.size == 1 ? Lifetime::update : Lifetime::step);
  }
  if (use.size > 1 || (offloads && levels_.empty())) levels_.emplace_back(use, Lifetime::use);
  for (size_t i = 0; i < levels_.size(); ++i) {
    const bool top = i + 1 == levels_.size();
    for (const auto& slot : slots_) {
      Shape shape = slot->part;
      if (!top)
        shape[slot->dim] = parts_of(shape[slot->dim], use.sizes)[static_cast<size_t>(use.rank)];
      const SlotTypes& types = slot->types;
      levels_[i].add(shape, slot->dim, top ? types.compute : types.gather, types.gather);
    }
  }
}

void Unit::check_layout(const std::string& name, const Tensor& value, int dim) const {
  const bool cuts = !roles_.cut.empty();
  if (cuts && value.ndim() == 0) fail("fully_shard: parameter ", name, " has no dims to shard");
  if (dim < 0 || (cuts && dim >= value.ndim())) {
    fail("fully_shard: parameter ", name, " ", value.shape(), " has no dim ", dim, " to shard");
  }
  if (!value.is_sharded()) return;
  const Sharding sharding = value.sharding();
  const DeviceMesh root = roles_.mesh.root();
  if (sharding.mesh() != root) {
    fail("fully_shard: parameter ", name, " is laid out as ", sharding, ", over another mesh than ",
         root);
  }
  bool taken = sharding.has_partial();
  for (int axis = 0; axis < roles_.mesh.ndim(); ++axis) {
    taken = taken || !sharding[roles_.mesh.root_axis(axis)].is_replicate();
  }
  if (taken) fail("fully_shard: parameter ", name, " is laid out as ", sharding, " already");
}

int Unit::dim_of(const NamedParameter& named) const {
  if (options_.shard_dim) return options_.shard_dim(named);
  return named.parameter->shape().ndim() > roles_.dim ? roles_.dim : 0;
}

void Unit::check(const NamedParameter& parameter) const {
  check_layout(path_of(parameter), parameter.parameter->value(), dim_of(parameter));
}

void Unit::add_slot(const NamedParameter& named) {
  const Tensor& value = named.parameter->value();
  auto slot = std::make_unique<Slot>();
  slot->name = path_of(named);
  slot->parameter = named.parameter;
  slot->trainable = named.parameter->is_trainable();
  slot->dim = dim_of(named);
  slot->types = types_of(options_.precision, value.dtype());
  slot->shape = value.shape();
  slot->before = value.sharding();
  const size_t cut = roles_.cut.size();
  const auto layout = [&](size_t cuts, Placement others) {
    return layout_for(roles_, slot->before, slot->dim, cuts, others, others);
  };
  slot->slice_layout = layout_for(roles_, slot->before, slot->dim, cut, Replicate(), Replicate());
  slot->gradient_layout = layout(0, Partial());
  const auto part_of = [&](const Sharding& sharding) {
    return empty(slot->shape, {slot->types.storage, meta, sharding}).box().shape;
  };
  slot->part = part_of(layout(0, Replicate()));
  slot->slice = part_of(slot->slice_layout);
  const size_t element = size_of(slot->types.storage);
  slot->slice_offset = (slice_bytes_ + element - 1) / element * element;
  slice_bytes_ = slot->slice_offset + static_cast<size_t>(slot->slice_elements()) * element;
  frozen_ += !slot->trainable;
  if (slot->trainable) gradients_.add(*slot);
  slots_.push_back(std::move(slot));
}

void Unit::make_whole(Slot& slot, Device device) {
  const auto bytes = static_cast<size_t>(slot.part_elements()) * size_of(slot.types.compute);
  Ref<Storage> memory = Storage::unbound(bytes, device, concat("parameter ", slot.name));
  slot.whole = tensor_in(memory, 0, slot.shape, slot.types.compute,
                         layout_for(roles_, slot.before, slot.dim, 0, Replicate(), Replicate()));
  if (slot.trainable) {
    size_t number = 0;
    while (slots_[number].get() != &slot) ++number;
    slot.whole.set_requires_grad(true);
    slot.whole.set_gradient_sink(std::make_shared<Sink>(weak_from_this(), number));
  }
  slot.parameter->set_used(slot.whole);
}

Tensor Unit::slice_in(const Ref<Storage>& memory, const Slot& slot) const {
  return tensor_in(memory, static_cast<int64_t>(slot.slice_offset / size_of(slot.types.storage)),
                   slot.shape, slot.types.storage, slot.slice_layout);
}

void Unit::copy_given(Slot& slot) {
  if (!slot.given) return;
  const NoGrad no_grad;
  copy_(slice_in(slices_, slot), std::exchange(slot.given, {}));
}

/// Values that are not the unit's own, until there is memory for them.
void Unit::keep_given(Slot& slot) {
  const Tensor value = slot.parameter->value().detach();
  if (!slot.parameter->is_materialized() || value.storage().get() == slices_.get()) return;
  slot.given = value.is_sharded() ? value : distribute(value, roles_.mesh.root(), {});
}

/// The value becomes a slice in the unit's memory, and forward uses the slot.
void Unit::take_value(Slot& slot) {
  keep_given(slot);
  if (slices_->is_bound()) copy_given(slot);
  rest(slot);
  make_whole(slot, device_);
}

void Unit::rest(Slot& slot) {
  slot.parameter->lay_out(slice_in(slices_, slot));
  if (slot.trainable) {
    slot.parameter->value().set_gradient_sink(std::make_shared<Refusal>(slot.name));
  }
}

void Unit::take_set_values() {
  if (!slices_->is_bound()) return;
  for (auto& slot : slots_) {
    keep_given(*slot);
    if (!slot->given) continue;
    copy_given(*slot);
    rest(*slot);
  }
}

void Unit::materialize(Device device) {
  build();
  if (slices_->is_bound() || slots_.empty()) return;
  if (runtime_) runtime_->forget(*this);
  for (Level& level : levels_) level.drop();
  set_device(device);
  for (auto& slot : slots_) keep_given(*slot);
  slices_ = memory_at_rest();
  bound_ = false;
  for (auto& slot : slots_) {
    if (device.kind != DeviceKind::meta) copy_given(*slot);
    rest(*slot);
    make_whole(*slot, device);
  }
}

bool Unit::slices_changed() {
  const bool same = slices_.get() == seen_slices_.get() && slices_->version() == seen_version_;
  seen_slices_ = slices_;
  seen_version_ = slices_->version();
  stale_ = stale_ || !same;
  return !same;
}

void Unit::gather(size_t level, BufferPool& pool) {
  if (!slices_->is_bound() && slices_->device().kind != DeviceKind::meta && slice_bytes_ > 0) {
    fail("fully_shard: the parameters of ", name_.empty() ? "the model" : in_quotes(name_),
         " have no memory yet; call materialize() on the model first");
  }
  std::vector<Level::Source> sources;
  if (level > 0) levels_[level - 1].wait();
  for (size_t i = 0; i < slots_.size(); ++i) {
    sources.push_back(
        level > 0 ? levels_[level - 1].source(i)
                  : Level::Source{slices_, slots_[i]->slice_offset, slots_[i]->types.storage});
  }
  levels_[level].start(sources, pool);
}

void Unit::wait() {
  for (Level& level : levels_) level.wait();
  const bool changed = std::exchange(stale_, false);
  const bool binds = !std::exchange(bound_, true);
  if (!binds && !changed) return;
  const Ref<Storage>& memory = levels_.empty() ? slices_ : levels_.back().memory();
  for (size_t i = 0; i < slots_.size(); ++i) {
    Storage& whole = *slots_[i]->whole.storage();
    if (changed) whole.mark_changed();
    if (whole.device().kind == DeviceKind::meta) continue;
    const size_t offset =
        levels_.empty() ? slots_[i]->slice_offset : levels_.back().region(i).offset;
    whole.bind(static_cast<char*>(memory->data()) + offset);
    if (!levels_.empty()) slots_[i]->parameter->used_is_of(slices_->version());
  }
}

void Unit::free(size_t level, BufferPool& pool) {
  levels_[level].wait();
  if (level + 1 == levels_.size() && std::exchange(bound_, false)) {
    for (auto& slot : slots_) slot->whole.storage()->unbind();
  }
  levels_[level].free(pool);
}

/// Errors are dropped: the ranks are beyond help then, and one is on its way that says why.
void Unit::finish_quietly() noexcept {
  gradients_.finish_quietly();
  for (Level& level : levels_) {
    try {
      level.wait();
    } catch (const std::exception&) {
    }
  }
}

}  // namespace weft::fsdp
