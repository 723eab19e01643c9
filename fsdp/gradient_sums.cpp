// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <range/v3/view/filter.hpp>
#include <utility>

#include "fsdp/gradients.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"

namespace weft::fsdp {

namespace views = ranges::views;

void Gradients::take_settings(const Gradients& other) {
  hook_ = other.hook_;
  divide_factor_ = other.divide_factor_;
  collective_ = other.collective_;
}

void Gradients::set_collective(CustomCollective collective) {
  if (messages_ && collective) {
    fail("set_custom_reduce_scatter: gradients are quantized, expected gradients that are ",
         "reduce-scattered");
  }
  collective_ = std::move(collective);
}

/// True for the sum after all reductions, to which a hook was applied.
bool Gradients::is_complete(Sum sum) const {
  return sum == (replicas_.size > 1 ? Sum::of_replicas : Sum::own);
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
  const NoGrad no_grad;
  const PurposeScope purpose(Purpose::gradients);
  for (Grad& grad : grads_ | views::filter(is_in(bucket))) {
    if (!is_complete(grad.sum)) continue;
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

/// Divides the sums of a bucket, and calls the hook with them: once for each run of one dtype, or
/// for each sum if they rest on disk. Then there are gaps between some, others on each rank, but
/// all ranks must call the hook equally often.
void Gradients::change_sums(int bucket) {
  if (!changes_sums()) return;
  const NoGrad no_grad;
  const Ref<Storage>& memory = on_host_ ? buffer_ : final_;
  const size_t start = on_host_ ? landing_ : 0;
  std::vector<const Grad*> run;
  const auto end_run = [&] {
    if (run.empty()) return;
    const DType dtype = run[0]->param->types.accumulate;
    const Grad& last = *run.back();
    const auto elements = static_cast<int64_t>((last.offset - run[0]->offset) / size_of(dtype)) +
                          last.param->sharded_elements();
    const Tensor sums = local_in(memory, start + run[0]->offset, {elements}, dtype);
    if (divide_factor_ != 1) mul_(sums, 1 / divide_factor_);
    if (hook_) hook_(sums);
    run.clear();
  };
  const auto joins = [&](const Grad& grad) {
    return !disk_ && run[0]->param->types.accumulate == grad.param->types.accumulate;
  };
  for (const Grad& grad : grads_ | views::filter(is_in(bucket))) {
    if (!run.empty() && !joins(grad)) end_run();
    run.push_back(&grad);
  }
  end_run();
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
  for (Grad& grad : grads_ | views::filter(is_in(bucket))) {
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
  for (const Grad& grad : grads_) {
    const Tensor value = grad.param->parameter->value(), seen = value.grad();
    if (seen && seen.storage() == final_) value.set_grad(sum_in(hidden_, grad, seen.sharding()));
  }
}

void Gradients::show() {
  if (!hidden_) return;
  for (const Grad& grad : grads_) {
    const Tensor value = grad.param->parameter->value(), seen = value.grad();
    if (seen && seen.storage() == hidden_) value.set_grad(sum_in(final_, grad, seen.sharding()));
  }
  hidden_ = {};
}

void Gradients::clear() {
  for (Grad& grad : grads_) {
    grad.param->parameter->clear_grad();
    forget_sums(grad);
  }
  hidden_ = {};
}

const FsdpParam* Gradients::find_kept() const {
  const auto found = std::find_if(grads_.begin(), grads_.end(), [](const Grad& grad) {
    return static_cast<bool>(grad.param->parameter->grad());
  });
  return found == grads_.end() ? nullptr : found->param;
}

}  // namespace weft::fsdp
