// SPDX-License-Identifier: Apache-2.0
#include "weft/image_layers.h"

#include <cmath>

#include "nn/checks.h"
#include "weft/autograd.h"
#include "weft/layers.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/shapes.h"

namespace weft {

/// [first, second, kernel...], with the kernel as one number for each dim.
static Shape filter_shape(const char* layer, int dims, int64_t first, int64_t second,
                          const std::vector<int64_t>& kernel) {
  Shape shape{first, second};
  if (kernel.size() != 1 && std::ssize(kernel) != dims) {
    fail(layer, ": kernel has ", kernel.size(), " numbers, expected 1 or ", dims);
  }
  for (int d = 0; d < dims; ++d) {
    shape.push_back(kernel[kernel.size() == 1 ? 0 : static_cast<size_t>(d)]);
    check_positive(layer, "kernel", shape.back());
  }
  return shape;
}

static void check_groups(const char* layer, int64_t in, int64_t out, int64_t groups) {
  check_positive(layer, "in", in);
  check_positive(layer, "out", out);
  check_positive(layer, "groups", groups);
  if (in % groups == 0 && out % groups == 0) return;
  fail(layer, ": channels are ", in, " and ", out, ", expected multiples of ", groups,
       ", the groups");
}

/// Checks one number for each dim, or one for all.
static void check_each(const char* layer, const char* option, int dims,
                       const std::vector<int64_t>& numbers, int64_t least) {
  if (numbers.size() != 1 && std::ssize(numbers) != dims)
    fail(layer, ": ", option, " has ", numbers.size(), " numbers, expected 1 or ", dims);
  for (const int64_t number : numbers) {
    if (number < least) fail(layer, ": ", option, " must be at least ", least, ", got ", number);
  }
}

static void check_taps(const char* layer, int dims, const ConvLayerOptions& options) {
  check_each(layer, "stride", dims, options.taps.stride, 1);
  check_each(layer, "padding", dims, options.taps.padding, 0);
  check_each(layer, "dilation", dims, options.taps.dilation, 1);
  for (const int64_t stride : options.taps.stride) {
    if (options.same && stride != 1)
      fail(layer, ": stride is ", stride, ", expected 1 with padding 'same'");
  }
}

static double bound_of(const Shape& filter) {
  const int64_t read = filter.product() / filter[0];
  return 1 / std::sqrt(static_cast<double>(read));
}

Conv::Conv(int dims, int64_t in, int64_t out, const std::vector<int64_t>& kernel,
           ConvLayerOptions options)
    : options_(std::move(options)) {
  const int64_t groups = options_.taps.groups;
  check_groups("conv", in, out, groups);
  check_taps("conv", dims, options_);
  const Shape shape = filter_shape("conv", dims, out, in / groups, kernel);
  declare("weight", shape, uniform_values(bound_of(shape)));
  if (options_.bias) declare("bias", {out}, uniform_values(bound_of(shape)));
}

Tensors Conv::forward(const Tensors& inputs) {
  const Tensor& x = only_input("conv", inputs);
  const Tensor bias = options_.bias ? used(1) : Tensor();
  const auto function = options_.same ? convolution_same : convolution;
  return {function(x, used(0), bias, options_.taps)};
}

ConvTranspose::ConvTranspose(int dims, int64_t in, int64_t out, const std::vector<int64_t>& kernel,
                             ConvLayerOptions options, std::vector<int64_t> output_padding)
    : options_(std::move(options)), output_padding_(std::move(output_padding)) {
  const int64_t groups = options_.taps.groups;
  check_groups("conv_transpose", in, out, groups);
  check_taps("conv_transpose", dims, options_);
  check_each("conv_transpose", "output_padding", dims, output_padding_, 0);
  if (options_.same) fail("conv_transpose: padding is 'same', expected numbers");
  const Shape shape = filter_shape("conv_transpose", dims, in, out / groups, kernel);
  declare("weight", shape, uniform_values(bound_of(shape)));
  if (options_.bias) declare("bias", {out}, uniform_values(bound_of(shape)));
}

Tensors ConvTranspose::forward(const Tensors& inputs) {
  const Tensor& x = only_input("conv_transpose", inputs);
  const Tensor bias = options_.bias ? used(1) : Tensor();
  return {transposed_convolution(x, used(0), bias, options_.taps, output_padding_)};
}

BatchNorm::BatchNorm(int dims, int64_t channels, const BatchNormLayerOptions& options, bool by_item)
    : dims_(dims), channels_(channels), options_(options), by_item_(by_item) {
  check_positive(by_item ? "instance_norm" : "batch_norm", "channels", channels);
  if (options_.affine) {
    declare("weight", {channels}, constant_values(1));
    declare("bias", {channels}, constant_values(0));
  }
  if (!options_.track_running_stats) return;
  register_buffer("running_mean", zeros({channels}));
  register_buffer("running_var", ones({channels}));
  register_buffer("num_batches_tracked", zeros({}, {.dtype = DType::i64}));
}

/// The options of a call, which is counted while training.
BatchNormOptions BatchNorm::next_options() {
  const bool tracks = options_.track_running_stats;
  BatchNormOptions made{.training = is_training() || !tracks, .eps = options_.eps};
  if (!tracks) return made;
  made.running_mean = buffer("running_mean");
  made.running_var = buffer("running_var");
  if (!made.training) return made;
  if (by_item_) {  // As in PyTorch, batches are not counted, and no momentum keeps the statistics.
    made.momentum = options_.momentum.value_or(0);
    return made;
  }
  const NoGrad no_grad;
  const Tensor count = buffer("num_batches_tracked");
  add_(count, Operand(1));
  made.momentum = options_.momentum ? *options_.momentum : 1 / count.full_tensor().item();
  return made;
}

Tensors BatchNorm::forward(const Tensors& inputs) {
  const char* layer = by_item_ ? "instance_norm" : "batch_norm";
  const Tensor& x = only_input(layer, inputs);
  // Images without a batch, and vectors of channels.
  const int fewer = by_item_ || dims_ == 1 ? dims_ + 1 : dims_ + 2;
  if (x.ndim() != dims_ + 2 && x.ndim() != fewer) {
    fail(layer, ": number of dims of x ", x.shape(), " is ", x.ndim(), ", expected ", dims_ + 2);
  }
  const bool unbatched = by_item_ && x.ndim() == dims_ + 1;
  const Tensor images = unbatched ? unsqueeze(x, 0) : x;
  if (images.size(1) != channels_) {
    fail(layer, ": x has ", images.size(1), " channels, expected ", channels_);
  }
  const Tensor none;
  const Tensor &weight = options_.affine ? used(0) : none, &bias = options_.affine ? used(1) : none;
  const auto function = by_item_ ? instance_norm : batch_norm;
  const Tensor y = function(images, weight, bias, next_options());
  return {unbatched ? squeeze(y, 0) : y};
}

GroupNorm::GroupNorm(int64_t groups, int64_t channels, double eps, bool affine)
    : groups_(groups), channels_(channels), eps_(eps) {
  check_groups("group_norm", channels, channels, groups);
  if (!affine) return;
  declare("weight", {channels}, constant_values(1));
  declare("bias", {channels}, constant_values(0));
}

Tensors GroupNorm::forward(const Tensors& inputs) {
  const Tensor& x = only_input("group_norm", inputs);
  if (x.ndim() < 2 || x.size(1) != channels_) {
    fail("group_norm: x is ", x.shape(), ", expected ", channels_, " channels in dim 1");
  }
  const Tensor none;
  const bool affine = !own_parameters().empty();
  return {group_norm(x, groups_, affine ? used(0) : none, affine ? used(1) : none, eps_)};
}

Tensors MaxPool::forward(const Tensors& inputs) {
  return {max_pool(only_input("max_pool", inputs), dims_, options_).values};
}
Tensors AvgPool::forward(const Tensors& inputs) {
  return {avg_pool(only_input("avg_pool", inputs), dims_, options_, count_padding_)};
}
Tensors AdaptivePool::forward(const Tensors& inputs) {
  const Tensor& x = only_input("adaptive_pool", inputs);
  if (by_max_) return {adaptive_max_pool(x, dims_, size_).values};
  return {adaptive_avg_pool(x, dims_, size_)};
}

}  // namespace weft
