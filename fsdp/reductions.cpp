// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ranges>
#include <utility>

#include "fsdp/gradients.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/tape.h"
#include "weft/extend/views.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"

namespace weft::fsdp {

/// True if this rank's final sum counts: only the first replica adds to a sum over all replicas.
bool Gradients::counts_here(const Grad& grad) const {
  return grad.sum != Sum::of_replicas || replicas_.rank == 0;
}

char* Gradients::place_of(const Grad& grad) const {
  return static_cast<char*>(sums()->data()) + landing_ + grad.offset;
}

Tensor Gradients::final_of(const Grad& grad) const {
  const int64_t elements = grad.param->sharded_elements();
  return local_in(final_, grad.offset, {elements}, grad.param->types.accumulate);
}

Tensor Gradients::sum_of(const Grad& grad) const {
  const int64_t elements = grad.param->sharded_elements();
  return local_in(sums(), landing_ + grad.offset, {elements}, grad.param->types.accumulate);
}

static int64_t bytes_of_sum(const ParamGrad& grad) {
  return grad.param->sharded_elements() *
         static_cast<int64_t>(size_of(grad.param->types.accumulate));
}

/// The messages of a second stage lie where those of the first did.
void Gradients::lay_out_messages() {
  for (Grad& grad : grads_) {
    messages_[0].add(grad.unsharded);
    if (messages_.size() == 1) continue;
    std::vector<int64_t> counts;
    for (const size_t part : messages_[0].own_parts()) {
      counts.push_back(grad.unsharded.counts[part]);
    }
    const int64_t elements = sum_before(counts, static_cast<int>(counts.size()));
    grad.staged = region_of({elements}, 0, DType::f32, DType::f32, messages_[1].ranks(),
                            buffer_bytes_, counts, false);
    messages_[1].add(grad.staged);
  }
  const size_t start = buffer_bytes_;
  for (GradientMessages& messages : messages_) {
    size_t end = start;
    messages.lay_out(end);
    buffer_bytes_ = std::max(buffer_bytes_, end);
  }
}

void Gradients::make_file() {
  std::vector<DiskMemory::Array> arrays;
  for (const Grad& grad : grads_) {
    arrays.push_back({concat("gradient of parameter ", grad.param->name), bytes_of_sum(grad)});
  }
  disk_ = DiskMemory::make(tier_.directory(), std::move(arrays), DiskPath::cached);
  final_ = disk_->storage();
}

int64_t Gradients::disk_bytes(int bucket) const {
  int64_t bytes = 0;
  for (const Grad& grad : grads_) {
    if (tier_.is_disk() && grad.bucket == bucket) bytes += bytes_of_sum(grad);
  }
  return bytes;
}

/// On one rank backward adds to earlier sums itself, as it does in memory: with the same bits.
void Gradients::read_sums_to_buffer() {
  const NoGrad no_grad;
  for (Grad& grad : grads_) {
    if (grad.sum == Sum::none) continue;
    copy_(
        local_in(buffer_, grad.unsharded.offset, {grad.unsharded.elements()}, grad.unsharded.dtype),
        in_memory(final_of(grad)));
    grad.in_buffer = grad.from_file = true;
    grad.sum = Sum::none;
  }
}

void Gradients::wait_for_writes() {
  for (DiskMemory::Transfer& write : std::exchange(writes_, {})) write.wait();
}

/// Copies the sums of a bucket to the host, or back to the landing area, where a reduction adds to
/// them.
void Gradients::copy_sums(int bucket, bool to_host) {
  bool& landed = bucket_at(bucket).landed;
  if (!on_host_ || landed != to_host) return;
  landed = !to_host;
  const NoGrad no_grad;
  for (const Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    if (!to_host && grad.sum == Sum::none) continue;
    if (!to_host && disk_) wait_for_writes();
    const Tensor sum = sum_of(grad), rests = final_of(grad);
    const auto offset = static_cast<int64_t>(grad.offset);
    if (!disk_) {
      to_host ? transfer_(rests, sum) : transfer_(sum, rests);
    } else if (device_.kind == DeviceKind::cuda) {
      to_host ? write_to_disk(rests, sum) : copy_(sum, in_memory(rests));
    } else if (to_host) {
      writes_.push_back(disk_->write(offset, bytes_of_sum(grad), sum.block().data));
    } else {
      disk_->read(offset, bytes_of_sum(grad), sum.block().data).wait();
    }
  }
}

/// The piece of a reduce-scatter: from the buffer or the middle memory to the middle or the final
/// memory.
Piece Gradients::scattered(Grad& grad, size_t reduction) {
  const Region& from = reduction == 0 ? grad.unsharded : grad.middle;
  const Ref<Storage>& memory = reduction == 0 ? buffer_ : middle_;
  if (from.packs) pack(from, memory);
  Piece piece{.send = static_cast<char*>(memory->data()) + from.start(),
              .recv = place_of(grad),
              .dtype = from.wire,
              .counts = from.counts,
              .recv_dtype = grad.param->types.accumulate,
              .device = device_};
  if (reduction == 0 && scatters_twice()) {
    piece.recv = static_cast<char*>(middle_->data()) + grad.middle.offset;
    piece.accumulate = std::exchange(grad.in_middle, true);
    grad.in_buffer = false;
    return piece;
  }
  piece.accumulate = grad.sum != Sum::none && counts_here(grad);
  grad.sum = Sum::own;
  grad.in_buffer = grad.in_middle = grad.from_file = false;
  return piece;
}

/// The pieces of an all-reduce from the buffer to sums of another dtype. An earlier sum is added
/// afterwards: sending it again would round it.
void Gradients::reduce_buffer(int bucket, std::vector<Piece>& pieces) {
  for (Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    const DType dtype = grad.param->types.accumulate;
    counts_.push_back(grad.unsharded.elements());
    pieces.push_back({.send = static_cast<char*>(buffer_->data()) + grad.unsharded.offset,
                      .recv = place_of(grad),
                      .dtype = grad.unsharded.dtype,
                      .counts = {&counts_.back(), 1},
                      .recv_dtype = dtype,
                      .device = device_});
    if (grad.sum != Sum::none) {
      PurposeScope purpose(Purpose::gradients);
      const auto bytes = static_cast<size_t>(grad.unsharded.elements()) * size_of(dtype);
      auto& additions = bucket_at(bucket).additions;
      additions.push_back({&grad, Storage::allocate(bytes, device_)});
      pieces.back().recv = additions.back().sum->data();
    }
    grad.in_buffer = false;
    grad.sum = Sum::of_replicas;
  }
}

/// On disk there are gaps between some sums, others on each rank, so that each is a run.
std::vector<SumRun> Gradients::runs_of(int bucket) const {
  std::vector<SumRun> runs;
  for (const Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    const DType dtype = grad.param->types.accumulate;
    if (runs.empty() || tier_.is_disk() || runs.back().dtype != dtype) {
      runs.push_back({grad.offset, 0, dtype});
    }
    runs.back().elements += grad.param->sharded_elements();
  }
  return runs;
}

/// The pieces of an all-reduce of the final sums.
void Gradients::reduce_in_place(int bucket, std::vector<Piece>& pieces) {
  for (Grad& grad : grads_ | std::views::filter(is_in(bucket))) grad.sum = Sum::of_replicas;
  for (const SumRun& run : runs_of(bucket)) {
    char* data = static_cast<char*>(sums()->data()) + landing_ + run.offset;
    counts_.push_back(run.elements);
    const std::span<const int64_t> own(&counts_.back(), 1);
    pieces.push_back(
        {.send = data, .recv = data, .dtype = run.dtype, .counts = own, .device = device_});
  }
}

void Gradients::reduce(int bucket, size_t reduction) {
  if (device_.kind == DeviceKind::meta) return;
  const auto& [ranks, scatters, at_sync] = reductions_[reduction];
  if (!(scatters_twice() && reduction < buffer_reductions())) copy_sums(bucket, false);
  std::vector<Piece> pieces;
  counts_.clear();
  counts_.reserve(grads_.size());
  Bucket& reduced = bucket_at(bucket);
  reduced.under_way = true;
  if (sends_codes(reduction)) {
    reduced.arriving.clear();
    reduced.stage = reduction;
    for (size_t i = 0; i < grads_.size(); ++i) expect_codes(i, reduction);
    reduced.work = messages_[reduction].exchange(
        buffer_, buffer_, residual_, reduction == 0 ? 0 : messages_[0].residual_bytes());
    return;
  }
  if (scatters) {
    for (Grad& grad : grads_) pieces.push_back(scattered(grad, reduction));
    reduced.work = settings.collective ? settings.collective(ranks.communicator, pieces)
                                       : ranks.communicator.reduce_scatter(pieces, ReduceOp::sum);
    return;
  }
  if (replica_sums_) {
    for (Grad& grad : grads_) grad.sum = Sum::of_replicas;
    reduced.replicating = true;
    reduced.work = replica_sums_->start(sums(), codes_);
    return;
  }
  reduction == 0 && !direct_ ? reduce_buffer(bucket, pieces) : reduce_in_place(bucket, pieces);
  reduced.work = ranks.communicator.all_reduce(pieces, ReduceOp::sum);
}

/// The last stage sums the codes of gradient `i` where a scatter would, one before it in the
/// buffer.
void Gradients::expect_codes(size_t i, size_t stage) {
  Grad& grad = grads_[i];
  Bucket& reduced = bucket_at(grad.bucket);
  grad.in_buffer = false;
  const std::vector<size_t> parts = messages_[stage].own_parts();
  if (stage + 1 == messages_.size()) {
    const Piece piece = scattered(grad, 0);
    const int64_t own = grad.unsharded.count_of(first_.rank);
    reduced.arriving.push_back({i, parts[0],
                                dense_block(piece.recv, piece.recv_dtype, {1, own}, device_),
                                piece.accumulate});
    return;
  }
  for (int k = 0; k < static_cast<int>(parts.size()); ++k) {
    char* data = static_cast<char*>(buffer_->data()) + grad.staged.at(k);
    reduced.arriving.push_back(
        {i, parts[static_cast<size_t>(k)],
         dense_block(data, DType::f32, {1, grad.staged.count_of(k)}, device_), false});
  }
}

/// Sums the quantized gradients that were received.
void Gradients::receive(int bucket) {
  Bucket& reduced = bucket_at(bucket);
  for (const Arriving& arriving : std::exchange(reduced.arriving, {})) {
    messages_[reduced.stage].add_up(arriving, buffer_);
  }
}

void Gradients::wait_for_reduce(int bucket, size_t reduction, bool last) {
  Bucket& reduced = bucket_at(bucket);
  reduced.under_way = false;
  --reduced.pending;
  reduced.work.wait();
  receive(bucket);
  if (std::exchange(reduced.replicating, false)) {
    replica_sums_->finish(sums(), codes_);
  }
  if (reduction + 1 == reductions_.size() && device_.kind != DeviceKind::meta) {
    change_sums(bucket);
    add_sums(bucket);
  }
  if (!last) return;
  copy_sums(bucket, true);
  mark_sums(bucket);
}

/// Lets views of the gradients of a bucket see new sums: also of those of which this rank holds no
/// element, and in the layout over the mesh, so that all ranks count the same changes.
void Gradients::mark_sums(int bucket) const {
  for (const Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    for (const Ref<Storage>& memory : {final_, middle_}) {
      if (memory) mark_written(sum_in(memory, grad, grad.param->sharded_layout));
    }
  }
}

void Gradients::set_collective(CustomCollective collective) {
  if (!messages_.empty() && collective) {
    fail("set_custom_reduce_scatter: gradients are quantized, expected gradients that are ",
         "reduce-scattered");
  }
  settings.collective = std::move(collective);
}

void Gradients::forget_sums(Grad& grad) {
  grad.sum = Sum::none;
  grad.in_buffer = grad.in_middle = grad.from_file = false;
  std::erase_if(bucket_at(grad.bucket).additions,
                [&](const Addition& addition) { return addition.grad == &grad; });
}

/// Keeps the complete sums of a bucket apart, so that only the next ones are changed. They are
/// added again after that.
void Gradients::set_aside(int bucket) {
  if (!changes_sums() || device_.kind == DeviceKind::meta) return;
  wait_for_writes();
  // The sum after all reductions, to which a hook was applied.
  const Sum complete = replicas_.size > 1 ? Sum::of_replicas : Sum::own;
  const NoGrad no_grad;
  const PurposeScope purpose(Purpose::gradients);
  for (Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    if (grad.sum != complete) continue;
    const Tensor earlier = in_memory(final_of(grad));
    Ref<Storage> apart = Storage::allocate(
        static_cast<size_t>(earlier.shape().product()) * size_of(earlier.dtype()), device_);
    const Tensor to = local_in(apart, 0, earlier.shape(), earlier.dtype());
    // Memory that was read from disk is not pinned.
    disk_ ? copy_(to, earlier) : transfer_(to, earlier);
    bucket_at(bucket).additions.push_back({&grad, std::move(apart)});
    grad.sum = Sum::none;
  }
}

/// Divides the sums of a bucket, and calls the hook with them: once for each run, so that all ranks
/// call it equally often.
void Gradients::change_sums(int bucket) {
  if (!changes_sums()) return;
  const NoGrad no_grad;
  for (const SumRun& run : runs_of(bucket)) {
    const Tensor changed = local_in(sums(), landing_ + run.offset, {run.elements}, run.dtype);
    if (settings.divide_factor != 1) mul_(changed, 1 / settings.divide_factor);
    if (settings.hook) settings.hook(changed);
  }
}

void Gradients::add_sums(int bucket) {
  const NoGrad no_grad;
  for (const auto& [grad, sum] : std::exchange(bucket_at(bucket).additions, {})) {
    const Tensor total = sum_of(*grad);
    copy_(total, total + local_in(sum, 0, total.shape(), total.dtype()));
  }
}

void Gradients::reopen(int bucket) {
  show();
  for (Grad& grad : grads_ | std::views::filter(is_in(bucket))) {
    if (!grad.param->parameter->grad()) forget_sums(grad);
  }
  set_aside(bucket);
}

void Gradients::hide() {
  if (!final_) return;
  if (!hidden_) {
    hidden_ = Storage::unbound(final_->bytes(), final_->device(),
                               "a gradient whose reduction is under way until finalize_backward "
                               "or the last backward");
  }
  move_param_grads(final_, hidden_);
}

void Gradients::show() {
  if (!hidden_) return;
  move_param_grads(hidden_, final_);
  hidden_ = {};
}

int64_t Gradients::bytes() const {
  const size_t at_rest = tier_.is_disk() ? 0 : final_bytes_;
  return static_cast<int64_t>(at_rest + middle_bytes_ + residual_bytes() + codes_bytes());
}

void Gradients::receive(size_t i, const Tensor& gradient) {
  const FsdpParam& param = *grads_[i].param;
  const Tensor value = param.parameter->value(), before = value.grad();
  const DType dtype = param.types.accumulate;
  // Sums across ranks are as exact as the sum is.
  const bool widens = size_of(dtype) > size_of(gradient.dtype());
  const Tensor addend = widens ? gradient.to(dtype) : gradient;
  const Tensor own = redistributed(addend, value.sharding()).to(dtype).to(value.device());
  value.set_grad(before ? weft::add(before, own) : own);
  run_post_accumulate_hooks(value);
}

void Gradients::clear() {
  for (Grad& grad : grads_) {
    grad.param->parameter->clear_grad();
    forget_sums(grad);
  }
  hidden_ = {};
}

const FsdpParam* Gradients::find_kept() const {
  const auto found = std::ranges::find_if(
      grads_, [](const Grad& grad) { return static_cast<bool>(grad.param->parameter->grad()); });
  return found == grads_.end() ? nullptr : found->param;
}

}  // namespace weft::fsdp
