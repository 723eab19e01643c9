// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "weft/export.h"
#include "weft/module.h"
#include "weft/ops/convolution.h"

namespace weft {

struct ConvLayerOptions {
  ConvolutionOptions taps = {};
  /// Pads so that the result has the size of the image; `taps.padding` does not count.
  bool same = false;
  bool bias = true;
};

/// `convolution` of images of 1 to 3 dims. Parameters: weight [out, in / groups, kernel...] and
/// bias [out], uniform in +-1 / sqrt(in / groups * elements of the kernel) as in PyTorch.
class WEFT_API Conv : public Module {
 public:
  Conv(int dims, int64_t in, int64_t out, const std::vector<int64_t>& kernel,
       ConvLayerOptions options = {});
  const ConvLayerOptions& options() const { return options_; }

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  ConvLayerOptions options_;
};
/// `transposed_convolution`. Parameters: weight [in, out / groups, kernel...] and bias [out].
class WEFT_API ConvTranspose : public Module {
 public:
  ConvTranspose(int dims, int64_t in, int64_t out, const std::vector<int64_t>& kernel,
                ConvLayerOptions options = {}, std::vector<int64_t> output_padding = {0});

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  ConvLayerOptions options_;
  std::vector<int64_t> output_padding_;
};

struct BatchNormLayerOptions {
  double eps = 1e-5;
  /// The weight of a batch in the running statistics; without one, they are means over all batches.
  std::optional<double> momentum = 0.1;
  /// Parameters weight and bias [channels].
  bool affine = true;
  /// Buffers running_mean, running_var and num_batches_tracked; without them each batch is
  /// normalised by its own statistics.
  bool track_running_stats = true;
};
/// `batch_norm`, or with `by_item` `instance_norm`, of images of `dims` dims.
class WEFT_API BatchNorm : public Module {
 public:
  BatchNorm(int dims, int64_t channels, const BatchNormLayerOptions& options = {},
            bool by_item = false);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  BatchNormOptions next_options();

  int dims_;
  int64_t channels_;
  BatchNormLayerOptions options_;
  bool by_item_;
};

/// `group_norm`. Parameters, if `affine`: weight and bias [channels].
class WEFT_API GroupNorm : public Module {
 public:
  GroupNorm(int64_t groups, int64_t channels, double eps = 1e-5, bool affine = true);

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  int64_t groups_, channels_;
  double eps_;
};

/// `max_pool` of images of `dims` dims.
class WEFT_API MaxPool : public Module {
 public:
  MaxPool(int dims, PoolOptions options) : dims_(dims), options_(std::move(options)) {}

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  int dims_;
  PoolOptions options_;
};
/// `avg_pool`.
class WEFT_API AvgPool : public Module {
 public:
  AvgPool(int dims, PoolOptions options, bool count_padding = true)
      : dims_(dims), options_(std::move(options)), count_padding_(count_padding) {}

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  int dims_;
  PoolOptions options_;
  bool count_padding_;
};
/// `adaptive_avg_pool`, or with `by_max` `adaptive_max_pool`.
class WEFT_API AdaptivePool : public Module {
 public:
  AdaptivePool(int dims, std::vector<int64_t> size, bool by_max = false)
      : dims_(dims), size_(std::move(size)), by_max_(by_max) {}

 protected:
  Tensors forward(const Tensors& inputs) override;

 private:
  int dims_;
  std::vector<int64_t> size_;
  bool by_max_;
};

// The same for one number of dims, by PyTorch's names.

/// `Layer` of images of `kDims` dims.
template <class Layer, int kDims> class ImageLayer : public Layer {
 public:
  template <class... Args>
  explicit ImageLayer(Args&&... args) : Layer(kDims, std::forward<Args>(args)...) {}
};
using Conv1d = ImageLayer<Conv, 1>;
using Conv2d = ImageLayer<Conv, 2>;
using Conv3d = ImageLayer<Conv, 3>;
using ConvTranspose1d = ImageLayer<ConvTranspose, 1>;
using ConvTranspose2d = ImageLayer<ConvTranspose, 2>;
using ConvTranspose3d = ImageLayer<ConvTranspose, 3>;
using BatchNorm1d = ImageLayer<BatchNorm, 1>;
using BatchNorm2d = ImageLayer<BatchNorm, 2>;
using BatchNorm3d = ImageLayer<BatchNorm, 3>;
using MaxPool1d = ImageLayer<MaxPool, 1>;
using MaxPool2d = ImageLayer<MaxPool, 2>;
using MaxPool3d = ImageLayer<MaxPool, 3>;
using AvgPool1d = ImageLayer<AvgPool, 1>;
using AvgPool2d = ImageLayer<AvgPool, 2>;
using AvgPool3d = ImageLayer<AvgPool, 3>;
using AdaptiveAvgPool1d = ImageLayer<AdaptivePool, 1>;
using AdaptiveAvgPool2d = ImageLayer<AdaptivePool, 2>;
using AdaptiveAvgPool3d = ImageLayer<AdaptivePool, 3>;

/// `instance_norm` of images of `kDims` dims, by default without parameters and buffers.
template <int kDims> class InstanceNorm : public BatchNorm {
 public:
  explicit InstanceNorm(int64_t channels,
                        const BatchNormLayerOptions& options = {.affine = false,
                                                                .track_running_stats = false})
      : BatchNorm(kDims, channels, options, true) {}
};
using InstanceNorm1d = InstanceNorm<1>;
using InstanceNorm2d = InstanceNorm<2>;
using InstanceNorm3d = InstanceNorm<3>;

}  // namespace weft
