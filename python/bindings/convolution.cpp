// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/convolution.h"

#include "python/bindings/bindings.h"
#include "python/bindings/modules.h"
#include "weft/image_layers.h"

namespace weft::python {

// The functions and layers of images; weft/_images.py gives them PyTorch's names and arguments.

static PoolOptions pool_options(const IntList& kernel, const IntList& stride,
                                const IntList& padding, const IntList& dilation, bool ceil_mode) {
  return {kernel, stride, padding, dilation, ceil_mode};
}
static Tensors both(const PooledAndIndices& pooled) { return {pooled.values, pooled.indices}; }

static void bind_convolutions(py::module_& m) {
  def(m, "_convolution(x, weight, bias, stride, padding, dilation, groups, same)",
      with_rule("convolution", ""),
      [](const Tensor& x, const Tensor& weight, const MaybeTensor& bias, const IntList& stride,
         const IntList& padding, const IntList& dilation, int64_t groups, bool same) {
        const auto function = same ? convolution_same : convolution;
        return function(x, weight, bias, {stride, padding, dilation, groups});
      });
  def(m,
      "_transposed_convolution(x, weight, bias, stride, padding, output_padding, groups, dilation)",
      with_rule("convolution_to_image", ""),
      [](const Tensor& x, const Tensor& weight, const MaybeTensor& bias, const IntList& stride,
         const IntList& padding, const IntList& output_padding, int64_t groups,
         const IntList& dilation) {
        return transposed_convolution(x, weight, bias, {stride, padding, dilation, groups},
                                      output_padding);
      });
  def(m, "_image_to_columns(x, kernel, stride, padding, dilation)", "",
      [](const Tensor& x, const IntList& kernel, const IntList& stride, const IntList& padding,
         const IntList& dilation) {
        return image_to_columns(x, kernel, {stride, padding, dilation});
      });
  def(m, "_columns_to_image(x, size, kernel, stride, padding, dilation)", "",
      [](const Tensor& x, const IntList& size, const IntList& kernel, const IntList& stride,
         const IntList& padding, const IntList& dilation) {
        return columns_to_image(x, size, kernel, {stride, padding, dilation});
      });
}

static void bind_stencil(py::module_& m) {
  def(m, "stencil(x, weights)", &stencil,
      "Sums of x [d...] of 1 to 3 dims with its neighbours, multiplied by weights [odd sizes...] "
      "around the element; 0 outside of x. x may be sharded along every dim: ranks fetch what lies "
      "next to their parts in one exchange. Weights of 0 cost nothing, even where they meet "
      "infinities");
}

static void bind_pools(py::module_& m) {
  def(m, "_max_pool(x, dims, kernel, stride, padding, dilation, ceil_mode)",
      with_rule("max_pool", ""),
      [](const Tensor& x, int dims, const IntList& kernel, const IntList& stride,
         const IntList& padding, const IntList& dilation, bool ceil_mode) {
        return both(max_pool(x, dims, pool_options(kernel, stride, padding, dilation, ceil_mode)));
      });
  def(m, "_avg_pool(x, dims, kernel, stride, padding, ceil_mode, count_padding, divisor)",
      with_rule("avg_pool", ""),
      [](const Tensor& x, int dims, const IntList& kernel, const IntList& stride,
         const IntList& padding, bool ceil_mode, bool count_padding,
         std::optional<int64_t> divisor) {
        return avg_pool(x, dims, pool_options(kernel, stride, padding, {{1}}, ceil_mode),
                        count_padding, divisor);
      });
  def(m, "_adaptive_max_pool(x, dims, size)", "",
      [](const Tensor& x, int dims, const IntList& size) {
        return both(adaptive_max_pool(x, dims, size));
      });
  def(m, "_adaptive_avg_pool(x, dims, size)", "",
      [](const Tensor& x, int dims, const IntList& size) {
        return adaptive_avg_pool(x, dims, size);
      });
}

static void bind_norms(py::module_& m) {
  def(m,
      "_batch_norm(x, running_mean, running_var, weight, bias, training, momentum, eps, by_item)",
      "",
      [](const Tensor& x, const MaybeTensor& running_mean, const MaybeTensor& running_var,
         const MaybeTensor& weight, const MaybeTensor& bias, bool training, double momentum,
         double eps, bool by_item) {
        const auto function = by_item ? instance_norm : batch_norm;
        return function(x, weight, bias, {running_mean, running_var, training, momentum, eps});
      });
  def(m, "_group_norm(x, groups, weight, bias, eps)", "",
      [](const Tensor& x, int64_t groups, const MaybeTensor& weight, const MaybeTensor& bias,
         double eps) { return group_norm(x, groups, weight, bias, eps); });
}

/// A layer, and the same as the base of a class of Python.
template <class M, class... Args> static auto layer_init(const auto& arguments) {
  return [arguments](Args... args) {
    return std::apply([](const auto&... given) { return std::make_unique<M>(given...); },
                      arguments(args...));
  };
}

template <class... Args, class M>
static void bind_init(ModuleClass<M>& bound, const auto& arguments) {
  bound.def(
      py::init(layer_init<M, Args...>(arguments), layer_init<InPython<M>, Args...>(arguments)));
}

static ConvLayerOptions layer_options(const IntList& stride, const IntList& padding,
                                      const IntList& dilation, int64_t groups, bool same,
                                      bool bias) {
  return {.taps = {stride, padding, dilation, groups}, .same = same, .bias = bias};
}

static void bind_image_layers(py::module_& m) {
  auto conv = bind_module_class<Conv>(m, "_Conv", "Conv1d, Conv2d and Conv3d");
  bind_init<int, int64_t, int64_t, IntList, IntList, IntList, IntList, int64_t, bool, bool>(
      conv,
      [](int dims, int64_t in, int64_t out, const IntList& kernel, const IntList& stride,
         const IntList& padding, const IntList& dilation, int64_t groups, bool same, bool bias) {
        return std::tuple(dims, in, out, kernel,
                          layer_options(stride, padding, dilation, groups, same, bias));
      });
  auto transposed = bind_module_class<ConvTranspose>(m, "_ConvTranspose", "ConvTranspose1d to 3d");
  bind_init<int, int64_t, int64_t, IntList, IntList, IntList, IntList, int64_t, bool, IntList>(
      transposed, [](int dims, int64_t in, int64_t out, const IntList& kernel,
                     const IntList& stride, const IntList& padding, const IntList& dilation,
                     int64_t groups, bool bias, const IntList& output_padding) {
        return std::tuple(dims, in, out, kernel,
                          layer_options(stride, padding, dilation, groups, false, bias),
                          output_padding);
      });
  auto batch_norm = bind_module_class<BatchNorm>(m, "_BatchNorm", "BatchNorm1d to InstanceNorm3d");
  bind_init<int, int64_t, double, std::optional<double>, bool, bool, bool>(
      batch_norm, [](int dims, int64_t channels, double eps, std::optional<double> momentum,
                     bool affine, bool tracks, bool by_item) {
        return std::tuple(dims, channels, BatchNormLayerOptions{eps, momentum, affine, tracks},
                          by_item);
      });
  auto group_norm = bind_module_class<GroupNorm>(m, "_GroupNorm", "GroupNorm");
  bind_init<int64_t, int64_t, double, bool>(
      group_norm, [](int64_t groups, int64_t channels, double eps, bool affine) {
        return std::tuple(groups, channels, eps, affine);
      });
}

void bind_images(py::module_& m) {
  bind_convolutions(m);
  bind_stencil(m);
  bind_pools(m);
  bind_norms(m);
  bind_image_layers(m);
}

}  // namespace weft::python
