// SPDX-License-Identifier: Apache-2.0
#include "fsdp/unit.h"

#include <algorithm>
#include <cstring>

#include "fsdp/runtime.h"
#include "weft/error.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

/// Slots of a buffer start at cache lines.
static constexpr size_t kSlotAlignment = 64;

static size_t rounded_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/// Leads a parameter's gradients into its slot.
class Unit::Sink final : public GradientSink {
 public:
  Sink(Unit& unit, Slot& slot) : unit_(unit), slot_(slot) {}
  Destination destination() override { return unit_.destination(slot_); }
  void complete() override { unit_.complete(slot_); }

 private:
  Unit& unit_;
  Slot& slot_;
};

Unit::Unit(Module& module, const DeviceMesh& mesh, const FullyShardOptions& options)
    : module_(module), mesh_(mesh), ranks_(mesh.communicator()), options_(options) {}

bool Unit::owns(const Parameter& parameter) const {
  return std::any_of(parameters_.begin(), parameters_.end(), [&](const NamedParameter& named) {
    return named.parameter.get() == &parameter;
  });
}

bool Unit::ignores(const Parameter& parameter) const {
  return std::any_of(ignored_.begin(), ignored_.end(),
                     [&](const ParameterPtr& ignored) { return ignored.get() == &parameter; });
}

void Unit::disown(const Parameter& parameter) {
  std::erase_if(parameters_,
                [&](const NamedParameter& named) { return named.parameter.get() == &parameter; });
}

void Unit::adopt(NamedParameter parameter) { parameters_.push_back(std::move(parameter)); }

void Unit::build() {
  if (built_) return;
  for (const NamedParameter& named : parameters_) add_slot(named);
  built_ = true;
  bool declared = std::any_of(slots_.begin(), slots_.end(),
                              [](const auto& slot) { return !slot->parameter->is_materialized(); });
  slices_ = declared ? Storage::unbound(slice_bytes_, cpu, name_) : Ref<Storage>();
  if (!declared) {
    PurposeScope purpose(Purpose::parameters);
    slices_ = Storage::allocate(slice_bytes_);
  }
  for (auto& slot : slots_) take_value(*slot);
}

void Unit::add_slot(const NamedParameter& named) {
  const Tensor& value = named.parameter->value();
  if (value.ndim() == 0) fail("fully_shard: parameter ", named.name(), " has no dims to shard");
  if (value.is_sharded()) {
    fail("fully_shard: parameter ", named.name(), " is laid out as ", value.sharding(), " already");
  }
  auto slot = std::make_unique<Slot>();
  slot->name = name_.empty() ? named.name() : name_ + "." + named.name();
  slot->parameter = named.parameter;
  slot->shape = value.shape();
  slot->dtype = value.dtype();
  slot->trainable = named.parameter->is_trainable();
  int64_t rows = slot->shape[0], row = 1;
  for (int d = 1; d < slot->shape.ndim(); ++d) row *= slot->shape[d];
  int64_t most = (rows + ranks() - 1) / ranks();
  for (int rank = 0; rank < ranks(); ++rank) {
    int64_t begin = std::min(rows, rank * most), end = std::min(rows, begin + most);
    slot->counts.push_back((end - begin) * row);
  }
  slot->buffer_offset = buffer_bytes_;
  auto element = size_of(slot->dtype);
  slice_bytes_ = rounded_up(slice_bytes_, element);
  slot->slice_offset = slice_bytes_;
  buffer_bytes_ += rounded_up(static_cast<size_t>(most * ranks() * row) * element, kSlotAlignment);
  slice_bytes_ += static_cast<size_t>(slot->slice_elements(ranks_.rank())) * element;
  trainable_ += slot->trainable;
  frozen_ += !slot->trainable;
  slots_.push_back(std::move(slot));
}

/// The value becomes a slice in the unit's memory, and forward uses the slot.
void Unit::take_value(Slot& slot) {
  Tensor before = slot.parameter->value().detach();
  auto element = static_cast<int64_t>(size_of(slot.dtype));
  Tensor slice = tensor_in(slices_, static_cast<int64_t>(slot.slice_offset) / element, slot.shape,
                           slot.dtype, Sharding(mesh_, {Shard(0)}));
  if (slot.parameter->is_materialized()) {
    NoGrad no_grad;
    copy_(slice, distribute(before, mesh_, {Shard(0)}));
  }
  slot.parameter->set_value(slice);
  Ref<Storage> memory = Storage::unbound(static_cast<size_t>(slot.elements() * element), cpu,
                                         "parameter " + slot.name);
  slot.whole = tensor_in(memory, 0, slot.shape, slot.dtype, Sharding(mesh_, {}));
  if (slot.trainable) {
    slot.whole.set_requires_grad(true);
    slot.whole.set_gradient_sink(std::make_shared<Sink>(*this, slot));
  }
  slot.parameter->set_used(slot.whole);
}

void Unit::materialize(Device device) {
  build();
  if (slices_->is_bound() || device.kind == DeviceKind::meta) return;
  PurposeScope purpose(Purpose::parameters);
  Ref<Storage> memory = Storage::allocate(slice_bytes_, device);
  for (auto& slot : slots_) {
    auto element = static_cast<int64_t>(size_of(slot->dtype));
    slot->parameter->set_value(tensor_in(memory, static_cast<int64_t>(slot->slice_offset) / element,
                                         slot->shape, slot->dtype, Sharding(mesh_, {Shard(0)})));
  }
  slices_ = memory;
}

char* Unit::slice(const Slot& slot) const {
  return static_cast<char*>(slices_->data()) + slot.slice_offset;
}

void Unit::start_gather(BufferPool& pool) {
  if (state_ != State::sharded) return;
  state_ = State::gathering;
  if (ranks() == 1) return;
  gather_buffer_ = pool.take(buffer_bytes_);
  auto* start = static_cast<char*>(gather_buffer_->data());
  std::vector<Piece> pieces;
  for (auto& slot : slots_) {
    pieces.push_back({slice(*slot), start + slot->buffer_offset, slot->dtype, slot->counts});
  }
  gather_ = ranks_.all_gather(pieces);
}

void Unit::wait_gathered() {
  if (state_ != State::gathering) return;
  if (ranks() > 1) gather_.wait();
  auto* start = ranks() > 1 ? static_cast<char*>(gather_buffer_->data()) : nullptr;
  for (auto& slot : slots_) {
    slot->whole.storage()->bind(start ? start + slot->buffer_offset : slice(*slot));
  }
  state_ = State::gathered;
}

void Unit::free_gathered(BufferPool& pool) {
  wait_gathered();
  if (state_ == State::sharded) return;
  for (auto& slot : slots_) slot->whole.storage()->unbind();
  if (ranks() > 1) pool.give(std::exchange(gather_buffer_, {}));
  state_ = State::sharded;
}

void Unit::expect_gradients() {
  incomplete_ = trainable_;
  for (auto& slot : slots_) slot->contributed = false;
}

void Unit::take_gradient_buffer(BufferPool& pool) {
  if (ranks() > 1 && has_gradients() && !gradient_buffer_)
    gradient_buffer_ = pool.take(buffer_bytes_);
}

void Unit::make_gradient_memory() {
  if (gradients_) return;
  PurposeScope purpose(Purpose::gradients);
  gradients_ = Storage::allocate(slice_bytes_);
}

Tensor Unit::gradient_slice(const Slot& slot) const {
  auto element = static_cast<int64_t>(size_of(slot.dtype));
  return tensor_in(gradients_, static_cast<int64_t>(slot.slice_offset) / element, slot.shape,
                   slot.dtype, Sharding(mesh_, {Shard(0)}));
}

/// Where a contribution goes: on one rank the gradient itself, else the slot of a buffer.
GradientSink::Destination Unit::destination(Slot& slot) {
  auto element = static_cast<int64_t>(size_of(slot.dtype));
  Sharding parts(mesh_, {Partial()});
  bool accumulate = std::exchange(slot.contributed, true);
  if (ranks() == 1) {
    make_gradient_memory();
    bool earlier = static_cast<bool>(slot.parameter->grad());
    Tensor place = tensor_in(gradients_, static_cast<int64_t>(slot.slice_offset) / element,
                             slot.shape, slot.dtype, parts);
    if (!earlier) slot.parameter->value().set_grad(gradient_slice(slot));
    return {place, accumulate || earlier};
  }
  take_gradient_buffer(runtime->pool());
  return {tensor_in(gradient_buffer_, static_cast<int64_t>(slot.buffer_offset) / element,
                    slot.shape, slot.dtype, parts),
          accumulate};
}

void Unit::complete(Slot& slot) {
  (void)slot;
  if (--incomplete_ == 0) runtime->gradients_complete(*this);
}

void Unit::start_scatter(BufferPool& pool) {
  make_gradient_memory();
  scattering_ = true;
  take_gradient_buffer(pool);
  auto* from = ranks() > 1 ? static_cast<char*>(gradient_buffer_->data()) : nullptr;
  auto* to = static_cast<char*>(gradients_->data());
  std::vector<Piece> pieces;
  for (auto& slot : slots_) {
    if (!slot->trainable) continue;
    bool earlier = static_cast<bool>(slot->parameter->grad());
    if (!slot->contributed) {
      if (ranks() == 1 && !earlier) fill_(gradient_slice(*slot), 0);
      auto bytes = static_cast<size_t>(slot->elements()) * size_of(slot->dtype);
      if (from) std::memset(from + slot->buffer_offset, 0, bytes);
    }
    if (!earlier) slot->parameter->value().set_grad(gradient_slice(*slot));
    if (!from) continue;
    Piece piece{from + slot->buffer_offset, to + slot->slice_offset, slot->dtype, slot->counts};
    piece.accumulate = earlier;
    pieces.push_back(piece);
  }
  if (from) scatter_ = ranks_.reduce_scatter(pieces, ReduceOp::sum);
}

void Unit::wait_scattered(BufferPool& pool) {
  if (!scattering_) return;
  if (ranks() > 1) {
    scatter_.wait();
    pool.give(std::exchange(gradient_buffer_, {}));
  }
  scattering_ = false;
}

void Unit::abandon(BufferPool& pool) {
  try {
    wait_scattered(pool);
    free_gathered(pool);
  } catch (const std::exception&) {
    // The ranks are beyond help, and an error is on its way that says why.
  }
  if (gradient_buffer_ && !scattering_) pool.give(std::exchange(gradient_buffer_, {}));
}

int64_t Unit::gradient_bytes() const { return has_gradients() ? slice_bytes() : 0; }

int64_t Unit::gather_traffic() const {
  int64_t bytes = 0;
  for (const auto& slot : slots_) {
    int64_t others = slot->elements() - slot->slice_elements(ranks_.rank());
    bytes += others * static_cast<int64_t>(size_of(slot->dtype));
  }
  return bytes;
}

int64_t Unit::scatter_traffic() const {
  int64_t bytes = 0;
  for (const auto& slot : slots_) {
    if (!slot->trainable) continue;
    int64_t own = slot->slice_elements(ranks_.rank()) * (ranks() - 1);
    bytes += own * static_cast<int64_t>(size_of(slot->dtype));
  }
  return bytes;
}

}  // namespace weft::fsdp
