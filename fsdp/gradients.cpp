// SPDX-License-Identifier: Apache-2.0
#include "fsdp/gradients.h"

#include <algorithm>
#include <range/v3/numeric/accumulate.hpp>
#include <ranges>

#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/views.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

/// A reduction over this rank alone, which only copies the gradients to the host.
static Reduction reduction_alone(const Roles& roles) {
  AxisGroup ranks;
  const DeviceMesh root = roles.mesh.root();
  const int own[] = {root.communicator().rank()};
  ranks.communicator = root.communicator().subgroup(own, "alone");
  return {std::move(ranks), true, false};
}

Gradients::Gradients(const Roles& roles, const FullyShardOptions& options)
    : roles_(roles),
      bucket_bytes_(options.bucket_bytes),
      replicas_(roles.group(roles.replicas)),
      tier_(options.offload.gradients),
      on_host_(tier_.offloads()) {
  AxisGroup each = roles.group(0, roles.each_step);
  AxisGroup late = roles.group(roles.each_step, roles.sharded.size());
  if (each.size > 1) reductions_.push_back({std::move(each), true, false});
  if (late.size > 1) reductions_.push_back({std::move(late), true, true});
  if (!reductions_.empty()) first_ = reductions_[0].ranks;
  if (replicas_.size > 1) reductions_.push_back({replicas_, false, true});
  const Quantization& quantization = options.quantization;
  if (quantization.reduce && !reductions_.empty()) {
    if (!reductions_[0].scatters) {
      fail("fully_shard: gradients are all-reduced, as ", *quantization.reduce,
           ", expected a strategy that shards them; leave out the quantization of gradients");
    }
    add_messages(quantization);
    if (replicas_.size > 1) replica_sums_.emplace(quantization, replicas_);
  }
  if (reductions_.empty() && on_host_) reductions_.push_back(reduction_alone(roles));
}

/// The first reduction sends codes: one reduction a stage.
void Gradients::add_messages(const Quantization& quantization) {
  const Reduction whole = reductions_[0];
  const size_t axes = roles_.sharded.size();
  messages_ = messages_of(roles_, whole.at_sync ? roles_.each_step : 0,
                          whole.at_sync ? axes : roles_.each_step, quantization);
  reductions_.erase(reductions_.begin());
  for (const GradientMessages& messages : std::views::reverse(messages_)) {
    reductions_.insert(reductions_.begin(), {messages.ranks(), true, whole.at_sync});
  }
}

bool Gradients::scatters_twice() const {
  return reductions_.size() > buffer_reductions() && reductions_[buffer_reductions()].scatters;
}

void Gradients::add(FsdpParam& param) {
  if (reductions_.empty() || reductions_[0].ranks.size == 1) {
    param.types.reduce = param.types.accumulate;
  }
  grads_.emplace_back().param = &param;
}

void Gradients::lay_out() {
  const bool scatters = !reductions_.empty() && reductions_[0].scatters;
  direct_ = !scatters && !on_host_ && std::ranges::all_of(grads_, [](const Grad& grad) {
    return grad.param->types.reduce == grad.param->types.accumulate;
  });
  for (Grad& grad : grads_) {
    const FsdpParam& param = *grad.param;
    const DType wire = param.types.reduce, rests = param.types.accumulate;
    grad.unsharded = region_of(param.unsharded_shape, param.dim, wire, wire, first_, buffer_bytes_,
                               {}, messages_.empty());
    if (scatters_twice()) {
      Shape middle = param.unsharded_shape;
      middle[param.dim] = grad.unsharded.lengths[static_cast<size_t>(first_.rank)];
      grad.middle = region_of(middle, param.dim, rests, rests,
                              reductions_[buffer_reductions()].ranks, middle_bytes_);
    }
    grad.offset = place_of_array(param.sharded_elements(), rests, tier_.is_disk(), final_bytes_);
  }
  if (!messages_.empty()) lay_out_messages();
  if (direct_) buffer_bytes_ = 0;
  if (on_host_) landing_ = buffer_bytes_;
  if (replica_sums_) {
    for (const Grad& grad : grads_) {
      replica_sums_->add(landing_ + grad.offset, grad.param->sharded_elements(),
                         grad.param->types.accumulate);
    }
    replica_sums_->lay_out();
  }
  if (on_host_) buffer_bytes_ += padded(final_bytes_);
  cut_into_buckets();
}

/// Fills buckets from the last parameter to the first, the order in which gradients become
/// complete.
void Gradients::cut_into_buckets() {
  const bool cuts = !reductions_.empty() && !reductions_[0].scatters;
  int64_t bytes = 0;
  int bucket = 0;
  for (Grad& grad : std::views::reverse(grads_)) {
    if (cuts && bytes >= bucket_bytes_) {
      ++bucket;
      bytes = 0;
    }
    grad.bucket = bucket;
    bytes += grad.unsharded.bytes();
  }
  buckets_.resize(static_cast<size_t>(bucket) + 1);
}

uint64_t Gradients::subject(int bucket) const {
  return ranges::accumulate(
      grads_ | std::views::filter(is_in(bucket)), uint64_t{1}, mixed,
      [](const Grad& grad) { return ModuleSharder::subject_of(*grad.param->parameter); });
}

int64_t Gradients::measured_bytes() const {
  size_t bytes = final_ && !disk_ ? final_->bytes() : 0;
  for (const Ref<Storage>* memory : {&middle_, &residual_, &codes_}) {
    if (*memory) bytes += (*memory)->bytes();
  }
  return static_cast<int64_t>(bytes);
}

void Gradients::set_device(Device device) {
  device_ = device;
  final_ = middle_ = buffer_ = residual_ = codes_ = {};
  disk_ = {};
}

void Gradients::allocate_sums() {
  PurposeScope purpose(Purpose::gradients);
  const bool pinned = on_host_ && device_.kind == DeviceKind::cuda;
  if (!final_ && tier_.is_disk() && device_.kind != DeviceKind::meta) make_file();
  if (!final_) {
    final_ =
        pinned ? Storage::allocate_pinned(final_bytes_) : Storage::allocate(final_bytes_, device_);
  }
  if (!middle_ && scatters_twice()) middle_ = Storage::allocate(middle_bytes_, device_);
  if (!codes_ && codes_bytes() > 0) codes_ = Storage::allocate(codes_bytes(), device_);
  if (residual_ || residual_bytes() == 0) return;
  residual_ = Storage::allocate(residual_bytes(), device_);
  if (device_.kind == DeviceKind::meta) return;
  const NoGrad no_grad;
  const auto floats = static_cast<int64_t>(residual_bytes() / sizeof(float));
  fill_(local_in(residual_, 0, {floats}, DType::f32), 0);
}

void Gradients::allocate_buffer(BufferPool& pool) {
  if (is_empty()) return;
  allocate_sums();
  if (direct_ || buffer_) return;
  buffer_ = pool.acquire(buffer_bytes_);
  // A sum that is to be changed is kept apart from earlier ones.
  const bool alone = replicas_.size == 1 && reductions_[0].ranks.size == 1;
  if (disk_ && alone && !changes_sums()) read_sums_to_buffer();
}

void Gradients::release_buffer(BufferPool& pool) {
  wait_for_writes();
  // No reduction took these sums, because backward threw: those in the file count.
  for (Grad& grad : grads_) {
    if (!std::exchange(grad.from_file, false)) continue;
    grad.in_buffer = false;
    grad.sum = Sum::own;
  }
  if (buffer_) pool.release(std::exchange(buffer_, {}));
}

void Gradients::expect(Grad& grad) {
  ++bucket_at(grad.bucket).incomplete;
  grad.progress = Progress::expected;
}

/// Replaces the memory by a copy if the user keeps a gradient in it that was cleared. The user's
/// gradient keeps the old memory, the others move to the new one.
void Gradients::replace_if_kept(Ref<Storage>& memory) {
  size_t set = 0;
  long moving = 0;
  for (const Grad& grad : grads_) {
    const Tensor gradient = grad.param->parameter->grad();
    if (!gradient) continue;
    ++set;
    moving += gradient.storage() == memory;
  }
  // Their file holds one handle too.
  const long own = memory && disk_ && memory == disk_->storage() ? 2 : 1;
  const bool is_kept = memory && memory->use_count() > own + moving;
  if (!is_kept || set == grads_.size()) return;
  if (own == 2) {
    fail("fully_shard: a gradient of parameter ", grads_[0].param->name,
         "'s group that was cleared is kept in another tensor, expected none of gradients that "
         "rest on disk; copy it");
  }
  const Ref<Storage> kept = std::exchange(memory, {});
  allocate_sums();
  if (set == 0) return;
  const NoGrad no_grad;
  const auto bytes_of = [](const Ref<Storage>& of) {
    return local_in(of, 0, {static_cast<int64_t>(of->bytes())}, DType::u8);
  };
  copy_(bytes_of(memory), bytes_of(kept));
  move_param_grads(kept, memory);
}

void Gradients::begin_backward() {
  replace_if_kept(final_);
  replace_if_kept(middle_);
  for (Bucket& bucket : buckets_) bucket.incomplete = 0;
  for (Grad& grad : grads_) {
    expect(grad);
    const Tensor gradient = grad.param->parameter->grad();
    const Ref<Storage> memory = gradient ? gradient.storage() : final_;
    if (memory != final_ && memory != middle_ && memory != buffer_) {
      fail("fully_shard: gradient of parameter ", grad.param->name,
           " is a tensor that was set by hand, or by a backward with create_graph, expected the "
           "one that a plain backward made; clear it before backward");
    }
    // A gradient that was cleared takes the sums of earlier micro-steps with it.
    if (!gradient) forget_sums(grad);
  }
  for (int bucket = 0; bucket < buckets(); ++bucket) set_aside(bucket);
}

/// True if backward adds to sums of earlier micro-steps.
bool Gradients::holds_earlier(const Grad& grad) const {
  return direct_ ? grad.sum != Sum::none && counts_here(grad) : grad.in_buffer;
}

/// The memory that backward writes.
Tensor Gradients::unsharded_of(const Grad& grad) const {
  return local_in(direct_ ? final_ : buffer_, direct_ ? grad.offset : grad.unsharded.offset,
                  grad.param->shape, grad.unsharded.dtype, grad.param->gradient_layout);
}

GradientSink::Destination Gradients::destination(size_t i) {
  Grad& grad = grads_[i];
  const bool is_written = std::exchange(grad.progress, Progress::written) == Progress::written;
  return {unsharded_of(grad), is_written || holds_earlier(grad)};
}

int Gradients::pre_accumulate_grad(size_t i) {
  Grad& grad = grads_[i];
  int& incomplete = bucket_at(grad.bucket).incomplete;
  if (incomplete > 0) {
    if (!grad.is_over()) return -1;
    ++incomplete;
    grad.progress = grad.progress == Progress::complete ? Progress::written : Progress::expected;
    return -1;
  }
  // The other gradients may get contributions too. The end of backward completes those that do not.
  for (Grad& other : grads_ | std::views::filter(is_in(grad.bucket))) expect(other);
  return grad.bucket;
}

int Gradients::post_accumulate_grad(size_t i) {
  Grad& grad = grads_[i];
  if (grad.is_over()) return -1;
  grad.progress = grad.progress == Progress::written ? Progress::complete : Progress::missing;
  return --bucket_at(grad.bucket).incomplete == 0 ? grad.bucket : -1;
}

void Gradients::close_bucket(int bucket, size_t reductions) {
  const bool waits = !reductions_.empty() && reductions == 0;
  bucket_at(bucket).pending = reductions;
  for (Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    const bool written = grad.progress == Progress::written || grad.progress == Progress::complete;
    if (!written && !holds_earlier(grad) && device_.kind != DeviceKind::meta) {
      const NoGrad no_grad;
      fill_(unsharded_of(grad).local(), 0);
    }
    if (direct_) {
      grad.sum = Sum::own;
    } else if (waits) {
      grad.in_buffer = true;
    }
    set_param_grad(grad, reductions);
    if (direct_ || waits) mark_written(unsharded_of(grad));
  }
  if (reductions_.empty() && device_.kind != DeviceKind::meta) {
    change_sums(bucket);
    add_sums(bucket);
  }
}

/// A gradient in the final or the middle memory.
Tensor Gradients::sum_in(const Ref<Storage>& memory, const Grad& grad,
                         const Sharding& layout) const {
  return local_in(memory, memory == middle_ ? grad.middle.offset : grad.offset, grad.param->shape,
                  grad.param->types.accumulate, layout);
}

/// Sets the parameter's `grad()` to the sum so far, in the layout that this sum has.
void Gradients::set_param_grad(const Grad& grad, size_t reductions) const {
  const FsdpParam& param = *grad.param;
  const auto summed_over = [&](size_t axes, const Placement& others) {
    return layout_for(roles_, param.other_axes, param.dim, axes, others, Partial());
  };
  Tensor seen;
  if (reductions == reductions_.size()) {
    seen = sum_in(final_, grad, param.sharded_layout);
  } else if (grad.in_buffer && reductions == 0) {
    seen = unsharded_of(grad);
  } else if (scatters_twice()) {
    seen = sum_in(middle_, grad, summed_over(roles_.each_step, Partial()));
  } else {
    seen = sum_in(final_, grad, summed_over(roles_.sharded.size(), Replicate()));
  }
  param.parameter->value().set_grad(seen);
}

/// Lets the gradients that lie in one memory lie in another one.
void Gradients::move_param_grads(const Ref<Storage>& from, const Ref<Storage>& to) const {
  for (const Grad& grad : grads_) {
    const Tensor value = grad.param->parameter->value(), seen = value.grad();
    if (seen && seen.storage() == from) value.set_grad(sum_in(to, grad, seen.sharding()));
  }
}

bool Gradients::is_under_way() const {
  return std::ranges::any_of(buckets_, [](const Bucket& bucket) { return bucket.under_way; });
}

void Gradients::wait_quietly() noexcept {
  for (int bucket = 0; bucket < buckets(); ++bucket) {
    try {
      Bucket& reduced = bucket_at(bucket);
      const bool under_way = std::exchange(reduced.under_way, false);
      if (std::exchange(reduced.pending, 0) > (under_way ? 1 : 0)) {
        for (Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
          grad.param->parameter->clear_grad();
          forget_sums(grad);
        }
      }
      if (!under_way) continue;
      reduced.work.wait();
      receive(bucket);
      reduced.replicating = false;
      add_sums(bucket);
      copy_sums(bucket, true);
    } catch (const std::exception&) {
    }
  }
}

int64_t Gradients::traffic(int bucket, size_t reduction) const {
  if (sends_codes(reduction)) return messages_[reduction].traffic();
  const AxisGroup& ranks = reductions_[reduction].ranks;
  const bool scatters = reductions_[reduction].scatters;
  if (replica_sums_ && !scatters) return replica_sums_->traffic();
  int64_t bytes = 0;
  const auto add_reduced = [&](int64_t elements, DType sent, DType received) {
    const int64_t share = ranks.communicator.reduced_share(elements);
    bytes += share * (ranks.size - 1) * static_cast<int64_t>(size_of(sent)) +
             (elements - share) * static_cast<int64_t>(size_of(received));
  };
  if (!scatters && (reduction > 0 || direct_)) {
    for (const SumRun& run : runs_of(bucket)) add_reduced(run.elements, run.dtype, run.dtype);
    return bytes;
  }
  for (const Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    const Region& from = source(grad, reduction);
    if (scatters) {
      bytes +=
          from.count_of(ranks.rank) * (ranks.size - 1) * static_cast<int64_t>(size_of(from.wire));
    } else {
      add_reduced(from.elements(), from.dtype, grad.param->types.accumulate);
    }
  }
  return bytes;
}

size_t Gradients::residual_bytes() const {
  return ranges::accumulate(messages_, size_t{0}, std::plus(), &GradientMessages::residual_bytes);
}

int64_t Gradients::copied(size_t reduction) const {
  if (!reductions_[reduction].scatters) return 0;
  return ranges::accumulate(grads_, int64_t{0}, std::plus(), [&](const Grad& grad) {
    const Region& from = source(grad, reduction);
    return from.packs || sends_codes(reduction) ? from.bytes() : 0;
  });
}

}  // namespace weft::fsdp
