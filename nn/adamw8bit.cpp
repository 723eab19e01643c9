// SPDX-License-Identifier: Apache-2.0
#include "nn/grouped_optimizer.h"
#include "weft/error.h"
#include "weft/extend/adamw8.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/pattern.h"
#include "weft/extend/views.h"
#include "weft/ops.h"
#include "weft/optimizers.h"

namespace weft {

bool AdamW8bit::has_8_bits(size_t parameter) const {
  const Parameter& own = *parameters()[parameter].parameter;
  const auto elements = static_cast<double>(own.shape().product());
  return own.shape().ndim() >= 2 && own.dtype() != f64 &&
         elements >= options_[group_of(parameter)].least_elements;
}

int AdamW8bit::kind_of(size_t parameter) const {
  if (has_8_bits(parameter)) return 2 + static_cast<int>(parameter);
  return GroupedOptimizer::kind_of(parameter);
}

/// The layout of a stack of two arrays of scales, or of one: that of the parameter, but the axes
/// that cut its last dim have `last`.
static Sharding scales_layout(const Sharding& of, int ndim, bool is_stack, const Placement& last) {
  if (!of) return {};
  Pattern pattern(of.axes());
  for (int dim = 0; dim < ndim; ++dim) {
    for (const int axis : of.axes_cutting(dim)) {
      const auto sizes = of[axis].sizes();
      const Shard same{dim + (is_stack ? 1 : 0), {sizes.begin(), sizes.end()}, of[axis].outer()};
      pattern.set(axis, dim + 1 == ndim ? last : Placement(same));
    }
  }
  return Sharding::of(of.mesh(), pattern);
}

static Shape scales_shape(const Shape& shape, bool is_stack) {
  Shape scales;
  if (is_stack) scales.push_back(2);
  for (int dim = 0; dim + 1 < shape.ndim(); ++dim) scales.push_back(shape[dim]);
  scales.push_back((shape[shape.ndim() - 1] + kScaleBlock - 1) / kScaleBlock);
  return scales;
}

std::optional<Optimizer::StateSpec> AdamW8bit::state_spec(size_t parameter, size_t moment) const {
  if (!has_8_bits(parameter)) {
    if (moment >= 2) return {};
    return Optimizer::state_spec(parameter, moment);
  }
  const Tensor& value = parameters()[parameter].parameter->value();
  if (moment < 2) return StateSpec{value.shape(), u8, value.sharding()};
  return StateSpec{scales_shape(value.shape(), false), f32,
                   scales_layout(value.sharding(), value.ndim(), false, Replicate())};
}

void AdamW8bit::update_all(std::span<const Update> updates) {
  for (const Update& update : updates) {
    const Tensor& value = parameters()[update.parameter].parameter->value();
    if (!has_8_bits(update.parameter) || !value.is_sharded()) continue;
    if (!value.sharding().has_inner()) continue;
    fail("adamw8bit: parameter ", parameters()[update.parameter].name(), " is laid out as ",
         value.sharding(), ", expected cuts of whole dims");
  }
  std::vector<Update> usual;
  for (const Update& update : updates) {
    if (!has_8_bits(update.parameter)) usual.push_back(update);
  }
  update_parts(usual, true, [this](const Update& part) { update(part); });
  const Tensor scale = updates.empty() ? ones({}) : updates[0].gradient_scale;
  // All with a gradient: a rank without elements takes part in the reduction of scales.
  for (size_t i = 0; i < parameters().size(); ++i) {
    if (has_8_bits(i) && parameters()[i].parameter->grad()) update_whole(i, scale);
  }
}

/// A part of a parameter, or its scales, as a matrix whose columns are the last dim.
static Tensor as_matrix(const Tensor& part) {
  const int64_t columns = part.size(-1);
  return reshape(part, {columns == 0 ? 0 : part.numel() / columns, columns});
}

static bool is_cut_in_last_dim(const Tensor& value) {
  const Sharding sharding = value.sharding();
  if (!sharding) return false;
  for (const int axis : sharding.axes_cutting(value.ndim() - 1)) {
    if (sharding.mesh().axis_size(axis) > 1) return true;
  }
  return false;
}

void AdamW8bit::update_whole(size_t parameter, const Tensor& gradient_scale) {
  const Parameter& slot = *parameters()[parameter].parameter;
  const Tensor& value = slot.value();
  const Tensors& own = state(parameter);
  const Device device = own[0].device();
  if (rests_on_disk(value) || value.device() != device) {
    fail("adamw8bit: parameter ", parameters()[parameter].name(), " rests in another memory than ",
         device, ", expected there");
  }
  const Sharding sharding = value.sharding();
  const int ndim = value.ndim();
  Tensor scales = zeros(scales_shape(value.shape(), true),
                        {.dtype = f32,
                         .device = device,
                         .sharding = scales_layout(sharding, ndim, true, Partial(ReduceOp::max))});
  const bool has_elements = value.local().numel() > 0;
  const Moments8 before{as_matrix(own[0].local()), as_matrix(own[1].local()),
                        as_matrix(own[2].local()), as_matrix(own[3].local())};
  const Tensor gradient = as_matrix(slot.grad().local());
  const AdamWStep step = numbers_of(parameter, steps(parameter) + 1);
  const int64_t first = value.box().offset[ndim - 1];
  const Tensor factor = gradient_scale.to(device);
  const Tensor found = scales.local();
  if (has_elements) {
    adamw8_scales_(as_matrix(found[0]), as_matrix(found[1]), gradient, factor, before, step, first);
  }
  if (is_cut_in_last_dim(value)) {
    mark_written(scales);
    scales = redistributed(scales, scales_layout(sharding, ndim, true, Replicate()));
  }
  const Tensor reduced = scales.local();
  const Tensor m_scales = as_matrix(reduced[0]), v_scales = as_matrix(reduced[1]);
  if (has_elements) {
    adamw8_(as_matrix(value.local()), gradient, factor, before, m_scales, v_scales, step, first);
  }
  copy_(before.m_scales, m_scales);
  copy_(before.v_scales, v_scales);
}

}  // namespace weft
