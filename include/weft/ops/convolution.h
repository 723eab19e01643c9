// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Images are [batch, channels, d...] with 1 to 3 dims d, or without the batch. They may be sharded
// along every dim: along d each rank fetches the rows next to its part that it reads.

/// One number for each dim of an image, or one for all. Results start at every `stride`-th element
/// of the image with `padding` zeros at both ends; a filter reads every `dilation`-th one. Channels
/// are divided into `groups`.
struct ConvolutionOptions {
  std::vector<int64_t> stride = {1}, padding = {0}, dilation = {1};
  int64_t groups = 1;
};
/// x [batch, in, d...] by weight [out, in / groups, taps...] (+ bias [out]): [batch, out, d...].
WEFT_API Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                            const ConvolutionOptions& options = {});
/// The same with a padding that makes the result's size that of x. The strides must be 1.
WEFT_API Tensor convolution_same(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                                 const ConvolutionOptions& options = {});
/// Sums of x [d...] of 1 to 3 dims with its neighbours, multiplied by weights [odd sizes...] around
/// the element; 0 outside of x. Weights of 0 cost nothing, even where they meet infinities.
WEFT_API Tensor stencil(const Tensor& x, const Tensor& weights);
/// The gradient of `convolution` with respect to x, as a separate op: x [batch, in, d...] by
/// weight [in, out / groups, taps...]: [batch, out, d...]. `output_padding` is added to the size of
/// the result, at its end.
WEFT_API Tensor transposed_convolution(const Tensor& x, const Tensor& weight,
                                       const Tensor& bias = {},
                                       const ConvolutionOptions& options = {},
                                       const std::vector<int64_t>& output_padding = {0});

/// Windows of an image: `kernel` elements, `dilation` apart. Without a stride, it is the kernel.
/// `ceil_mode` adds a window that begins in the image and ends after it.
struct PoolOptions {
  std::vector<int64_t> kernel, stride = {}, padding = {0}, dilation = {1};
  bool ceil_mode = false;
};
struct PooledAndIndices {
  Tensor values;
  /// The place of each value in its channel of x, counted in row-major order: i64.
  Tensor indices;
};
/// The greatest elements of windows of x [batch, channels, d...]; `dims` is the number of d.
WEFT_API PooledAndIndices max_pool(const Tensor& x, int dims, const PoolOptions& options);
/// Their means; with `count_padding` zeros of the padding count. `divisor` replaces the number of
/// elements.
WEFT_API Tensor avg_pool(const Tensor& x, int dims, const PoolOptions& options,
                         bool count_padding = true, std::optional<int64_t> divisor = {});
/// The same for `size` windows for each dim that cover it evenly: window i of n begins at floor(i *
/// d / n) and ends before ceil((i + 1) * d / n). A size of -1 is that of x.
WEFT_API PooledAndIndices adaptive_max_pool(const Tensor& x, int dims,
                                            const std::vector<int64_t>& size);
WEFT_API Tensor adaptive_avg_pool(const Tensor& x, int dims, const std::vector<int64_t>& size);

/// Blocks of an image [batch, channels, d0, d1] as columns: [batch, channels * taps, blocks].
WEFT_API Tensor image_to_columns(const Tensor& x, const std::vector<int64_t>& kernel,
                                 const ConvolutionOptions& options = {});
/// Adds columns up to an image of `size`: the gradient of `image_to_columns`.
WEFT_API Tensor columns_to_image(const Tensor& columns, const std::vector<int64_t>& size,
                                 const std::vector<int64_t>& kernel,
                                 const ConvolutionOptions& options = {});

struct BatchNormOptions {
  /// Means and variances [channels] of earlier batches; changed in place while training.
  Tensor running_mean = {}, running_var = {};
  /// Normalises by the statistics of x, over the whole batch however it is sharded; otherwise by
  /// the running ones.
  bool training = false;
  /// The weight of the new statistics in the running ones.
  double momentum = 0.1;
  double eps = 1e-5;
};
/// (x - mean) / sqrt(variance + eps) * weight + bias for each channel of x [batch, channels, ...].
WEFT_API Tensor batch_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                           const BatchNormOptions& options = {});
/// The same over groups of channels of each item of the batch; weight and bias are [channels].
WEFT_API Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight = {},
                           const Tensor& bias = {}, double eps = 1e-5);
/// The same for each channel of each item; with running statistics as batch_norm.
WEFT_API Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                              const BatchNormOptions& options = {.training = true});

}  // namespace weft
