// SPDX-License-Identifier: Apache-2.0
#include "ops/convolution.h"
#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "weft/autograd.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/reductions.h"
#include "weft/sharding.h"

namespace weft {

/// The sums of a mean that several functions read: they are reduced over ranks once.
static Tensor reduced_once(const Tensor& a) {
  if (!a.is_sharded() || !a.sharding().has_partial()) return a;
  Pattern pattern = a.sharding().pattern();
  for (int axis = 0; axis < pattern.axes(); ++axis) {
    if (pattern[axis].is_partial()) pattern.set(axis, Replicate());
  }
  return redistributed(a, Sharding::of(a.sharding().mesh(), pattern));
}

/// A vector [channels] as [1, channels, 1, ...], in the dtype of computations.
static Tensor along_channels(const Tensor& values, int ndim) {
  return widened(reshape(values, ones_but(ndim, 1, values.size(0))));
}

static void check_channels(const char* what, const char* name, const Tensor& values,
                           int64_t channels) {
  if (!values || values.shape() == Shape{channels}) return;
  fail(what, ": ", name, " is ", values.shape(), ", expected ", Shape{channels});
}

static Tensor affine(const Tensor& normal, const Tensor& weight, const Tensor& bias) {
  const Tensor scaled = weight ? mul(normal, along_channels(weight, normal.ndim())) : normal;
  return bias ? add(scaled, along_channels(bias, normal.ndim())) : scaled;
}

namespace {

struct Statistics {
  Tensor mean, centered, var;
};

}  // namespace

static Statistics statistics_of(const Tensor& x, const std::vector<int>& dims) {
  Statistics made;
  made.mean = reduced_once(mean(x, dims, true));
  made.centered = sub(x, made.mean);
  made.var = reduced_once(mean(square(made.centered), dims, true));
  return made;
}

static Tensor normalized(const Statistics& of, double eps) {
  return mul(of.centered, rsqrt(add(of.var, eps)));
}

/// running = (1 - momentum) * running + momentum * now, for values [1, channels, 1, ...].
static void move_towards(const Tensor& running, const Tensor& now, double momentum, double factor) {
  if (!running) return;
  const Tensor values = reshape(now.detach(), running.shape());
  const Tensor moved = add(mul(widened(running), 1 - momentum), mul(values, momentum * factor));
  copy_(running, as_dtype(moved, running.dtype()));
}

static void check_norm(const char* what, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const BatchNormOptions& options) {
  check_tensor(what, x);
  if (x.ndim() < 2) fail(what, ": x is ", x.shape(), ", expected at least 2 dims");
  if (!is_floating(x.dtype())) fail(what, ": x is ", x.dtype(), ", expected a floating dtype");
  check_channels(what, "weight", weight, x.size(1));
  check_channels(what, "bias", bias, x.size(1));
  check_channels(what, "running_mean", options.running_mean, x.size(1));
  check_channels(what, "running_var", options.running_var, x.size(1));
  if (!options.running_mean != !options.running_var) {
    fail(what, ": one of running_mean and running_var is given, expected both or none");
  }
  if (!options.training && !options.running_mean) {
    fail(what, ": running_mean is missing, expected one outside of training");
  }
}

static std::vector<int> dims_but(const Tensor& x, int first) {
  std::vector<int> dims;
  for (int d = first; d < x.ndim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

/// Normalises by the running statistics.
static Tensor by_running(const Tensor& x, const BatchNormOptions& options) {
  const Tensor mean = along_channels(options.running_mean, x.ndim());
  const Tensor var = along_channels(options.running_var, x.ndim());
  return normalized({mean, sub(x, mean), var}, options.eps);
}

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const BatchNormOptions& options) {
  check_norm("batch_norm", x, weight, bias, options);
  const Tensor wide = widened(x);
  if (!options.training)
    return as_dtype(affine(by_running(wide, options), weight, bias), x.dtype());
  const int64_t count = x.size(1) ? x.numel() / x.size(1) : 0;
  if (count < 2) {
    fail("batch_norm: number of values of a channel is ", count,
         ", expected at least 2 while training");
  }
  const Statistics own = statistics_of(wide, dims_but(x, 0));
  {
    const NoGrad no_grad;
    const auto n = static_cast<double>(count);
    move_towards(options.running_mean, own.mean, options.momentum, 1);
    move_towards(options.running_var, own.var, options.momentum, n / (n - 1));
  }
  return as_dtype(affine(normalized(own, options.eps), weight, bias), x.dtype());
}

Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_norm("group_norm", x, weight, bias, {.training = true});
  if (groups < 1 || x.size(1) % groups != 0) {
    fail("group_norm: groups is ", groups, ", expected a divisor of ", x.size(1),
         ", the number of channels");
  }
  const Shape shape = x.shape();
  Shape split = shape;
  split[1] /= groups;
  split.insert(1, groups);
  const Tensor wide = reshape(widened(x), split);
  std::vector<int> dims;
  for (int d = 2; d < wide.ndim(); ++d) dims.push_back(d);
  const Tensor normal = reshape(normalized(statistics_of(wide, dims), eps), shape);
  return as_dtype(affine(normal, weight, bias), x.dtype());
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const BatchNormOptions& options) {
  check_norm("instance_norm", x, weight, bias, options);
  const Tensor wide = widened(x);
  if (!options.training)
    return as_dtype(affine(by_running(wide, options), weight, bias), x.dtype());
  const int64_t planes = x.size(0) * x.size(1), count = planes > 0 ? x.numel() / planes : 0;
  if (count < 2) {
    fail("instance_norm: number of values of a channel is ", count,
         ", expected at least 2 while training");
  }
  const Statistics own = statistics_of(wide, dims_but(x, 2));
  if (options.running_mean) {
    const NoGrad no_grad;
    const auto n = static_cast<double>(count);
    move_towards(options.running_mean, mean(own.mean, {0}, true), options.momentum, 1);
    move_towards(options.running_var, mean(own.var, {0}, true), options.momentum, n / (n - 1));
  }
  return as_dtype(affine(normalized(own, options.eps), weight, bias), x.dtype());
}

// Columns: each tap of a block of the image is one row.

namespace {

/// The blocks of an image of two dims.
struct Blocks {
  std::vector<int64_t> kernel, stride, padding, dilation, count, rest;

  Blocks(const char* what, const std::vector<int64_t>& image, const std::vector<int64_t>& size,
         const ConvolutionOptions& options)
      : kernel(each_dim(what, "kernel", size, 2, 1)),
        stride(each_dim(what, "stride", options.stride, 2, 1)),
        padding(each_dim(what, "padding", options.padding, 2, 0)),
        dilation(each_dim(what, "dilation", options.dilation, 2, 1)) {
    for (size_t d = 0; d < 2; ++d) {
      const int64_t reach = dilation[d] * (kernel[d] - 1) + 1, room = image[d] + 2 * padding[d];
      if (room < reach) {
        fail(what, ": dim ", d, " of the image with its padding is ", room, ", expected at least ",
             reach, ", the reach of the kernel");
      }
      count.push_back((room - reach) / stride[d] + 1);
      rest.push_back((room - reach) % stride[d]);
    }
  }

  /// Tap `i` of all blocks along dim `d` of the padded image.
  Tensor tap(const Tensor& padded, size_t d, int64_t i) const {
    const int64_t first = i * dilation[d], last = first + (count[d] - 1) * stride[d] + 1;
    return slice(padded, static_cast<int>(d) + 2, first, last, stride[d]);
  }
};

}  // namespace

static Tensor one_hot_filter(const Tensor& next, int64_t channels,
                             const std::vector<int64_t>& kernel) {
  const int64_t taps = kernel[0] * kernel[1];
  const Tensor each = eye(taps, taps, 0, options_next_to(next, next.dtype()));
  const Tensor all = expand(unsqueeze(each, 0), {channels, taps, taps});
  return reshape(all, {channels * taps, 1, kernel[0], kernel[1]});
}

Tensor image_to_columns(const Tensor& given, const std::vector<int64_t>& size,
                        const ConvolutionOptions& options) {
  constexpr auto kWhat = "image_to_columns";
  const Tensor x = batched_image(kWhat, given, 2);
  const Blocks blocks(kWhat, {x.size(2), x.size(3)}, size, options);
  Tensor padded = x;
  for (size_t d = 0; d < 2; ++d) {
    padded = pad(padded, static_cast<int>(d) + 2, blocks.padding[d], blocks.padding[d]);
  }
  Tensors taps;
  for (int64_t i = 0; i < blocks.kernel[0]; ++i) {
    for (int64_t j = 0; j < blocks.kernel[1]; ++j) {
      taps.push_back(blocks.tap(blocks.tap(padded, 0, i), 1, j));
    }
  }
  const Tensor rows = flatten(stack(taps, 2), 1, 2);
  return like_batch_of(given, 2, flatten(rows, 2));
}

Tensor columns_to_image(const Tensor& given, const std::vector<int64_t>& size,
                        const std::vector<int64_t>& taps, const ConvolutionOptions& options) {
  constexpr auto kWhat = "columns_to_image";
  const Tensor columns = batched_image(kWhat, given, 1);
  const Blocks of(kWhat, each_dim(kWhat, "size", size, 2, 1), taps, options);
  const int64_t rows = of.kernel[0] * of.kernel[1], blocks = of.count[0] * of.count[1];
  if (columns.size(1) % rows != 0 || columns.size(2) != blocks) {
    fail(kWhat, ": columns are ", columns.shape(), ", expected a multiple of ", rows, " rows and ",
         blocks, " blocks");
  }
  const int64_t channels = columns.size(1) / rows;
  const Tensor y = unflatten(columns, 2, of.count);
  const ConvolutionOptions by_channel{of.stride, of.padding, of.dilation, channels};
  const Tensor filter = one_hot_filter(y, channels, of.kernel);
  return like_batch_of(given, 1, transposed_convolution(y, filter, {}, by_channel, of.rest));
}

}  // namespace weft
