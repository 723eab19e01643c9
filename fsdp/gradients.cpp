// SPDX-License-Identifier: Apache-2.0
#include "fsdp/gradients.h"

#include <algorithm>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

/// A reduction of this rank's own, for what has still to be brought to the host.
static Reduction reduction_alone(const Roles& roles) {
  AxisGroup group;
  const DeviceMesh root = roles.mesh.root();
  const int own[] = {root.communicator().rank()};
  group.ranks = root.communicator().subgroup(own, "alone");
  return {std::move(group), true, false};
}

Gradients::Gradients(const Roles& roles, int64_t bucket_bytes, bool on_host)
    : roles_(roles),
      bucket_bytes_(bucket_bytes),
      replicas_(roles.replica_group()),
      on_host_(on_host) {
  AxisGroup each = roles.group(0, roles.each_step);
  AxisGroup late = roles.group(roles.each_step, roles.cut.size());
  if (each.size > 1) reductions_.push_back({std::move(each), true, false});
  if (late.size > 1) reductions_.push_back({std::move(late), true, true});
  if (replicas_.size > 1) reductions_.push_back({replicas_, false, true});
  if (reductions_.empty() && on_host) reductions_.push_back(reduction_alone(roles));
}

bool Gradients::scatters_twice() const { return reductions_.size() > 1 && reductions_[1].scatters; }

void Gradients::add(Slot& slot) {
  if (reductions_.empty() || reductions_[0].group.size == 1) {
    slot.types.reduce = slot.types.accumulate;
  }
  parts_.emplace_back();
  parts_.back().slot = &slot;
}

void Gradients::close() {
  const bool scatters = !reductions_.empty() && reductions_[0].scatters;
  direct_ =
      !scatters && !on_host_ && std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
        return part.slot->types.reduce == part.slot->types.accumulate;
      });
  for (Part& part : parts_) {
    const Slot& slot = *part.slot;
    const DType rests = slot.types.accumulate;
    AxisGroup first = scatters ? reductions_[0].group : AxisGroup();
    part.whole =
        region_of(slot.part, slot.dim, slot.types.reduce, slot.types.reduce, first, buffer_bytes_);
    if (scatters_twice()) {
      Shape middle = slot.part;
      middle[slot.dim] = part.whole.lengths[static_cast<size_t>(first.rank)];
      part.middle = region_of(middle, slot.dim, rests, rests, reductions_[1].group, middle_bytes_);
    }
    const size_t element = size_of(rests);
    part.offset = (final_bytes_ + element - 1) / element * element;
    final_bytes_ = part.offset + static_cast<size_t>(slot.slice_elements()) * element;
  }
  if (direct_) buffer_bytes_ = 0;
  landing_ = buffer_bytes_;
  if (on_host_) buffer_bytes_ += padded(final_bytes_);
  cut_into_buckets();
}

/// From the last parameter to the first, as their gradients become complete.
void Gradients::cut_into_buckets() {
  const bool cuts = !reductions_.empty() && !reductions_[0].scatters;
  int64_t bytes = 0;
  int bucket = 0;
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part) {
    if (cuts && bytes >= bucket_bytes_) {
      ++bucket;
      bytes = 0;
    }
    part->bucket = bucket;
    bytes += part->whole.bytes();
  }
  buckets_ = bucket + 1;
  incomplete_.resize(static_cast<size_t>(buckets_));
  under_way_.resize(static_cast<size_t>(buckets_));
  works_.resize(static_cast<size_t>(buckets_));
  additions_.resize(static_cast<size_t>(buckets_));
  landed_.resize(static_cast<size_t>(buckets_));
}

int64_t Gradients::measured_bytes() const {
  int64_t bytes = 0;
  for (const Ref<Storage>& memory : {final_, middle_}) {
    if (memory) bytes += static_cast<int64_t>(memory->bytes());
  }
  return bytes;
}

void Gradients::set_device(Device device) {
  device_ = device;
  final_ = middle_ = buffer_ = {};
}

void Gradients::make_memory() {
  PurposeScope purpose(Purpose::gradients);
  const bool pinned = on_host_ && device_.kind == DeviceKind::cuda;
  if (!final_) {
    final_ =
        pinned ? Storage::allocate_pinned(final_bytes_) : Storage::allocate(final_bytes_, device_);
  }
  if (!middle_ && scatters_twice()) middle_ = Storage::allocate(middle_bytes_, device_);
}

void Gradients::take(BufferPool& pool) {
  if (is_empty()) return;
  make_memory();
  if (!direct_ && !buffer_) buffer_ = pool.take(buffer_bytes_);
}

void Gradients::give(BufferPool& pool) {
  if (buffer_) pool.give(std::exchange(buffer_, {}));
}

void Gradients::expect(Part& part) {
  ++incomplete_[static_cast<size_t>(part.bucket)];
  part.complete = part.contributed = false;
}

bool Gradients::is_own(const Tensor& gradient) const {
  const Storage* memory = gradient.storage().get();
  return memory == final_.get() || memory == middle_.get() || memory == buffer_.get();
}

/// Exchanges the memory for another with the same in it where somebody keeps a gradient in it that
/// was cleared: that one keeps its memory, the others move.
void Gradients::leave_if_kept(Ref<Storage>& memory) {
  size_t others = 0;
  std::vector<const Part*> moving;
  for (const Part& part : parts_) {
    const Tensor gradient = part.slot->parameter->grad();
    if (!gradient) continue;
    ++others;
    if (gradient.storage() == memory) moving.push_back(&part);
  }
  const bool is_kept = memory && memory->use_count() > 1 + static_cast<long>(moving.size());
  if (!is_kept || others == parts_.size()) return;
  const Ref<Storage> kept = std::exchange(memory, {});
  make_memory();
  if (others == 0) return;
  const NoGrad no_grad;
  const auto bytes_of = [](const Ref<Storage>& of) {
    return local_in(of, 0, {static_cast<int64_t>(of->bytes())}, DType::u8);
  };
  copy_(bytes_of(memory), bytes_of(kept));
  for (const Part* part : moving) {
    const Tensor value = part->slot->parameter->value();
    value.set_grad(sum_in(memory, *part, value.grad().sharding()));
  }
}

/// A gradient that was cleared since takes what was summed for it along.
void Gradients::expect() {
  leave_if_kept(final_);
  leave_if_kept(middle_);
  std::fill(incomplete_.begin(), incomplete_.end(), 0);
  for (Part& part : parts_) {
    expect(part);
    const Tensor gradient = part.slot->parameter->grad();
    if (gradient && !is_own(gradient)) {
      fail("fully_shard: parameter ", part.slot->name,
           " has a gradient that was set by hand; clear it before backward");
    }
    if (!gradient) {
      part.held = part.partial = part.final = part.reduced = false;
    }
  }
}

/// What backward adds to holds sums of earlier micro-steps.
bool Gradients::holds_earlier(const Part& part) const {
  return direct_ ? part.final && counts_here(part) : part.held;
}

GradientSink::Destination Gradients::destination(size_t i) {
  Part& part = parts_[i];
  const Slot& slot = *part.slot;
  const bool adds = std::exchange(part.contributed, true) || holds_earlier(part);
  const DType dtype = part.whole.dtype;
  const size_t offset = direct_ ? part.offset : part.whole.offset;
  return {tensor_in(direct_ ? final_ : buffer_, static_cast<int64_t>(offset / size_of(dtype)),
                    slot.shape, dtype, slot.gradient_layout),
          adds};
}

int Gradients::complete(size_t i) {
  Part& part = parts_[i];
  if (std::exchange(part.complete, true)) return -1;
  return --incomplete_[static_cast<size_t>(part.bucket)] == 0 ? part.bucket : -1;
}

int Gradients::expect_more(size_t i) {
  Part& part = parts_[i];
  int& incomplete = incomplete_[static_cast<size_t>(part.bucket)];
  if (incomplete > 0) {
    incomplete += std::exchange(part.complete, false);
    return -1;
  }
  // The others may come again too; the end of backward does not wait for those that do not.
  for (Part& other : parts_) {
    if (other.bucket == part.bucket) expect(other);
  }
  return part.bucket;
}

void Gradients::settle(int bucket, bool sync) {
  for (Part& part : parts_) {
    if (part.bucket != bucket) continue;
    if (!part.contributed && !holds_earlier(part) && device_.kind != DeviceKind::meta) {
      const NoGrad no_grad;
      fill_(local_in(direct_ ? final_ : buffer_, direct_ ? part.offset : part.whole.offset,
                     {part.whole.elements()}, part.whole.dtype),
            0);
    }
    if (direct_) {
      part.final = true;
      part.reduced = false;
    }
    const bool waits = !reductions_.empty() && reductions_[0].at_sync && !sync;
    if (!direct_ && waits) part.held = true;
    show(part, sync);
  }
}

/// A gradient in the final memory or in the middle one.
Tensor Gradients::sum_in(const Ref<Storage>& memory, const Part& part,
                         const Sharding& layout) const {
  const DType dtype = part.slot->types.accumulate;
  const size_t offset = memory == middle_ ? part.middle.offset : part.offset;
  return tensor_in(memory, static_cast<int64_t>(offset / size_of(dtype)), part.slot->shape, dtype,
                   layout);
}

/// Sets the parameter's gradient to what there is of it, in the layout that it has.
void Gradients::show(Part& part, bool sync) const {
  const Slot& slot = *part.slot;
  const auto summed_over = [&](size_t cut, const Placement& rest) {
    return layout_for(roles_, slot.before, slot.dim, cut, rest, Partial());
  };
  Tensor seen;
  if (sync || reductions_.empty() || !reductions_.back().at_sync) {
    seen = sum_in(final_, part, slot.slice_layout);
  } else if (part.held) {
    seen = tensor_in(buffer_, static_cast<int64_t>(part.whole.offset / size_of(part.whole.dtype)),
                     slot.shape, part.whole.dtype, slot.gradient_layout);
  } else if (scatters_twice()) {
    seen = sum_in(middle_, part, summed_over(roles_.each_step, Partial()));
  } else {
    seen = sum_in(final_, part, summed_over(roles_.cut.size(), Replicate()));
  }
  slot.parameter->value().set_grad(seen);
}

bool Gradients::is_under_way() const {
  return std::find(under_way_.begin(), under_way_.end(), true) != under_way_.end();
}

void Gradients::finish_quietly() noexcept {
  for (int bucket = 0; bucket < static_cast<int>(works_.size()); ++bucket) {
    try {
      wait(bucket, true);
    } catch (const std::exception&) {
    }
  }
}

int64_t Gradients::traffic(int bucket, size_t step) const {
  const Reduction& reduction = reductions_[step];
  int64_t bytes = 0, run = 0;
  DType run_dtype = DType::f32;
  const auto end_run = [&](DType sent, DType received) {
    const int64_t share = reduction.group.ranks.reduced_share(run);
    bytes += share * (reduction.group.size - 1) * static_cast<int64_t>(size_of(sent)) +
             (run - share) * static_cast<int64_t>(size_of(received));
    run = 0;
  };
  for (const Part& part : parts_) {
    if (part.bucket != bucket) continue;
    const DType rests = part.slot->types.accumulate;
    const Region& from = step == 0 ? part.whole : part.middle;
    if (reduction.scatters) {
      bytes += from.counts[static_cast<size_t>(reduction.group.rank)] * (reduction.group.size - 1) *
               static_cast<int64_t>(size_of(from.wire));
    } else if (step == 0 && !direct_) {
      run = part.whole.elements();
      end_run(part.whole.dtype, rests);
    } else {
      if (run > 0 && rests != run_dtype) end_run(run_dtype, run_dtype);
      run += part.slot->slice_elements();
      run_dtype = rests;
    }
  }
  if (run > 0) end_run(run_dtype, run_dtype);
  return bytes;
}

int64_t Gradients::copied(size_t step) const {
  int64_t bytes = 0;
  if (!reductions_[step].scatters) return bytes;
  for (const Part& part : parts_) {
    const Region& from = step == 0 ? part.whole : part.middle;
    bytes += from.packs ? from.bytes() : 0;
  }
  return bytes;
}

}  // namespace weft::fsdp
