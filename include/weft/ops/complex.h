// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <complex>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

// Complex tensors (c64, c128). Arithmetic, `exp`, `log`, `sqrt`, `pow`, the trigonometric and
// hyperbolic functions, `sum`, `mean`, `prod`, `cumulative_sum`, `matmul`, comparisons for equality
// and all ops that move elements take them; other ops are std::invalid_argument, as are complex
// tensors on a GPU. A gradient is that of PyTorch: for a real loss L and z = x + iy it is
// dL/dx + i dL/dy, so that a step against it lowers L.

/// re + i im, as c64 of f32 or c128 of f64; shapes broadcast.
WEFT_API Tensor complex(const Tensor& re, const Tensor& im);
/// abs (cos(angle) + i sin(angle)).
WEFT_API Tensor polar(const Tensor& abs, const Tensor& angle);
/// The real and imaginary parts as new tensors; of real tensors the tensor itself, and zeros.
WEFT_API Tensor real(const Tensor& a);
WEFT_API Tensor imag(const Tensor& a);
/// re - i im; a real tensor itself.
WEFT_API Tensor conj(const Tensor& a);
/// a / |a|, 0 for 0; of real tensors the sign.
WEFT_API Tensor sgn(const Tensor& a);
/// Copies the parts to or from a last dim of 2.
WEFT_API Tensor view_as_real(const Tensor& a);
WEFT_API Tensor view_as_complex(const Tensor& a);

/// The value of a complex tensor with one element; as `Tensor::item`, which takes real ones.
WEFT_API std::complex<double> complex_item(const Tensor& a);

}  // namespace weft
