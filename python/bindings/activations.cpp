// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/activations.h"

#include "python/bindings/bindings.h"
#include "weft/ops.h"
#include "weft/torch.h"

namespace weft::python {

// Functions of torch.nn.functional that are compositions; weft/functional.py names them.

static void bind_activation_functions(py::module_& m) {
  def(m, "_torch_leaky_relu(input, negative_slope=0.01)", &leaky_relu,
      "x where it is positive, negative_slope * x elsewhere");
  def(m, "_torch_prelu(input, weight)", &prelu,
      "leaky_relu with one slope, or one for each channel");
  def(m, "_torch_elu(input, alpha=1.0)", &elu,
      "x where it is positive, alpha * (exp(x) - 1) elsewhere");
  def(m, "_torch_celu(input, alpha=1.0)", &celu,
      "x where it is positive, alpha * (exp(x / alpha) - 1) elsewhere");
  def(m, "_torch_selu(input)", &selu, "elu with the constants of self-normalizing networks");
  def(m, "_torch_hardtanh(input, min_val=-1.0, max_val=1.0)", &hardtanh,
      "x limited to [min_val, max_val]");
  def(m, "_torch_relu6(input)", "x limited to [0, 6]",
      [](const Tensor& x) { return hardtanh(x, 0, 6); });
  def(m, "_torch_hardsigmoid(input)", &hardsigmoid, "(x + 3) / 6 limited to [0, 1]");
  def(m, "_torch_hardswish(input)", &hardswish, "x * hardsigmoid(x)");
  def(m, "_torch_softplus(input, beta=1.0, threshold=20.0)", &softplus,
      "log(1 + exp(beta * x)) / beta; x where beta * x is greater than threshold");
  def(m, "_torch_logsigmoid(input)", &logsigmoid, "log(sigmoid(x))");
  def(m, "_torch_mish(input)", &mish, "x * tanh(softplus(x))");
  def(m, "_torch_softsign(input)", &softsign, "x / (1 + |x|)");
  def(m, "_torch_tanhshrink(input)", &tanhshrink, "x - tanh(x)");
  def(m, "_torch_softshrink(input, lambd=0.5)", &softshrink,
      "x moved by lambd towards 0, and 0 within that of 0");
  def(m, "_torch_hardshrink(input, lambd=0.5)", &hardshrink, "x, and 0 within lambd of 0");
  def(m, "_torch_threshold(input, threshold, value)", &threshold,
      "x where it is greater than threshold, value elsewhere");
  def(m, "_torch_glu(input, dim=-1)", &glu,
      "The first half of dim times the sigmoid of the second");
}

static void bind_rearranged(py::module_& m) {
  def(m, "_torch_softmin(input, dim, dtype=None)", "softmax(-x) along dim",
      [](const Tensor& x, int dim, std::optional<DType> dtype) {
        return torch::softmax(neg(dtype ? cast(x, *dtype) : x), dim);
      });
  def(m, "_torch_normalize(input, p=2.0, dim=1, eps=1e-12)", &normalize,
      "x divided by its norm along dim, or by eps where that is greater");
  def(m, "_torch_cosine_similarity(x1, x2, dim=1, eps=1e-8)", &cosine_similarity,
      "The cosine of the angle between vectors along dim");
  def(m, "_torch_pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False)", &pairwise_distance,
      "The norm of x1 - x2 + eps along the last dim");
  def(m, "_torch_pdist(input, p=2.0)", &pdist, "The distances of all pairs of rows i < j");
  def(m, "_torch_local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0)",
      &local_response_norm,
      "x divided by (k + alpha * the mean of squares of size channels around it) ** beta");
  def(m, "_torch_bilinear(input1, input2, weight, bias=None)",
      "[..., i] and [..., j] by weight [o, i, j] (+ bias [o]): [..., o]",
      [](const Tensor& a, const Tensor& b, const Tensor& weight, const MaybeTensor& bias) {
        return bilinear(a, b, weight, bias);
      });
  def(m, "_torch_pixel_shuffle(input, upscale_factor)", &pixel_shuffle,
      "[..., channels * r ** 2, h, w] as [..., channels, h * r, w * r]");
  def(m, "_torch_pixel_unshuffle(input, downscale_factor)", &pixel_unshuffle,
      "[..., channels, h * r, w * r] as [..., channels * r ** 2, h, w]");
  def(m, "_torch_channel_shuffle(input, groups)", &channel_shuffle,
      "Channels of groups, in the order of their places in the groups");
  def(m, "_torch_pad(input, pad, mode='constant', value=None)",
      "pad[0] elements before and pad[1] behind the last dim, [2] and [3] at the one before it, "
      "...: value (0 unless given), or the image 'reflect'ed, its edge 'replicate'd, or 'circular'",
      [](const Tensor& x, const IntList& pads, const std::string& mode,
         std::optional<double> value) {
        if (mode == "constant") return constant_pad(x, pads, value.value_or(0));
        if (value) fail("pad: value is given with mode \"", mode, "\", expected none");
        return pad_as(x, pads, mode);
      });
}

void bind_activations(py::module_& m) {
  bind_activation_functions(m);
  bind_rearranged(m);
}

}  // namespace weft::python
