// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "weft/export.h"
#include "weft/ops/factories.h"
#include "weft/tensor.h"

namespace weft::fft {

// Discrete Fourier transforms in the names of torch.fft and the array API, of f32, f64, c64 and
// c128 (other real dtypes become f32), on the CPU. A transformed dim is whole on each rank: where
// it is cut, one exchange moves the cut to another dim, or gathers; cuts of the other dims stay.
// `n` pads with zeros at the end, or leaves out the end, of the dim. `norm` is "backward" (the
// inverse is divided by n), "ortho" (both by sqrt(n)) or "forward" (the forward one by n).
// Gradients are transforms, so second ones exist.

using Length = std::optional<int64_t>;
using Lengths = std::optional<std::vector<int64_t>>;
using Axes = std::optional<std::vector<int>>;
using Norm = std::string_view;

WEFT_API Tensor fft(const Tensor& a, Length n = {}, int dim = -1, Norm norm = "backward");
WEFT_API Tensor ifft(const Tensor& a, Length n = {}, int dim = -1, Norm norm = "backward");
/// The first n / 2 + 1 frequencies of a real tensor; the others are their conjugates.
WEFT_API Tensor rfft(const Tensor& a, Length n = {}, int dim = -1, Norm norm = "backward");
/// The real tensor of n / 2 + 1 frequencies; n is 2 (size - 1) unless given.
WEFT_API Tensor irfft(const Tensor& a, Length n = {}, int dim = -1, Norm norm = "backward");
/// The real frequencies of half of a sequence with conjugate symmetry; and the inverse of that.
WEFT_API Tensor hfft(const Tensor& a, Length n = {}, int dim = -1, Norm norm = "backward");
WEFT_API Tensor ihfft(const Tensor& a, Length n = {}, int dim = -1, Norm norm = "backward");

/// The same over several dims: all, or the last ones for lengths `s` without dims. The real
/// transforms halve the last of the dims.
WEFT_API Tensor fftn(const Tensor& a, const Lengths& s = {}, const Axes& dims = {},
                     Norm norm = "backward");
WEFT_API Tensor ifftn(const Tensor& a, const Lengths& s = {}, const Axes& dims = {},
                      Norm norm = "backward");
WEFT_API Tensor rfftn(const Tensor& a, const Lengths& s = {}, const Axes& dims = {},
                      Norm norm = "backward");
WEFT_API Tensor irfftn(const Tensor& a, const Lengths& s = {}, const Axes& dims = {},
                       Norm norm = "backward");

/// The frequencies of the results of `fft`, and of `rfft`, for samples `d` apart.
WEFT_API Tensor fftfreq(int64_t n, double d = 1, const TensorOptions& options = {});
WEFT_API Tensor rfftfreq(int64_t n, double d = 1, const TensorOptions& options = {});
/// Moves frequency 0 to the middle of dims (all unless given), and back.
WEFT_API Tensor fftshift(const Tensor& a, const Axes& dims = {});
WEFT_API Tensor ifftshift(const Tensor& a, const Axes& dims = {});

}  // namespace weft::fft
