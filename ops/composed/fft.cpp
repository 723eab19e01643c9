// SPDX-License-Identifier: Apache-2.0
#include "ops/fft.h"

#include <cmath>
#include <numeric>

#include "ops/complex.h"
#include "ops/dims.h"
#include "weft/fft.h"
#include "weft/ops.h"

namespace weft::fft {

/// The factor of a transform of n elements.
static double scale_of(const char* what, Norm norm, bool inverse, int64_t n) {
  const auto size = static_cast<double>(n);
  if (norm == "ortho") return 1 / std::sqrt(size);
  if (norm != "backward" && norm != "forward") {
    fail(what, ": norm is ", in_quotes(norm), ", expected backward, ortho or forward");
  }
  return (norm == "forward") != inverse ? 1 / size : 1;
}

static void check_length(const char* what, int64_t n) {
  if (n < 1) fail(what, ": length must be at least 1, got ", n);
}

/// Pads with zeros, or drops, at the end of a dim.
static Tensor with_length(const char* what, const Tensor& a, int dim, int64_t n) {
  check_length(what, n);
  const int64_t size = a.size(dim);
  if (n == size) return a;
  return n < size ? slice(a, dim, 0, n) : pad(a, dim, 0, n - size);
}

static Tensor real_operand(const char* what, const Tensor& a) {
  check_tensor(what, a);
  if (is_complex(a)) fail(what, ": dtype is ", a.dtype(), ", expected a real one");
  const Tensor x = as_floating(what, a);
  return size_of(x.dtype()) < 4 ? cast(x, DType::f32) : x;
}

static Tensor complex_operand(const char* what, const Tensor& a) {
  check_tensor(what, a);
  if (is_complex(a)) return a;
  const Tensor x = real_operand(what, a);
  return cast(x, complex_dtype(x.dtype()));
}

static Tensor along(const char* what, const Tensor& a, Length n, int dim, Norm norm, bool inverse) {
  const Tensor x = complex_operand(what, a);
  const int at = checked_dim(what, x, dim);
  const int64_t size = n.value_or(x.size(at));
  const Tensor sized = with_length(what, x, at, size);
  return complex_transform(sized, at, inverse, scale_of(what, norm, inverse, size));
}

static Tensor half_along(const char* what, const Tensor& a, Length n, int dim, Norm norm,
                         bool inverse) {
  const Tensor x = real_operand(what, a);
  const int at = checked_dim(what, x, dim);
  const int64_t size = n.value_or(x.size(at));
  const Tensor sized = with_length(what, x, at, size);
  return real_transform(sized, at, scale_of(what, norm, inverse, size));
}

static Tensor from_half(const char* what, const Tensor& a, Length n, int dim, Norm norm,
                        bool inverse) {
  const Tensor x = complex_operand(what, a);
  const int at = checked_dim(what, x, dim);
  const int64_t size = n.value_or(2 * (x.size(at) - 1));
  check_length(what, size);
  const Tensor sized = with_length(what, x, at, size / 2 + 1);
  return half_transform(sized, at, size, scale_of(what, norm, inverse, size));
}

Tensor fft(const Tensor& a, Length n, int dim, Norm norm) {
  return along("fft", a, n, dim, norm, false);
}
Tensor ifft(const Tensor& a, Length n, int dim, Norm norm) {
  return along("ifft", a, n, dim, norm, true);
}
Tensor rfft(const Tensor& a, Length n, int dim, Norm norm) {
  return half_along("rfft", a, n, dim, norm, false);
}
Tensor irfft(const Tensor& a, Length n, int dim, Norm norm) {
  return from_half("irfft", a, n, dim, norm, true);
}
Tensor hfft(const Tensor& a, Length n, int dim, Norm norm) {
  return from_half("hfft", conj(complex_operand("hfft", a)), n, dim, norm, false);
}
Tensor ihfft(const Tensor& a, Length n, int dim, Norm norm) {
  return conj(half_along("ihfft", a, n, dim, norm, true));
}

/// The dims of an n-dim transform, with their lengths; none for a dim's own.
struct Extent {
  std::vector<int> dims;
  std::vector<Length> lengths;
};

static Extent extent_of(const char* what, const Tensor& a, const Lengths& s, const Axes& dims) {
  check_tensor(what, a);
  Extent extent;
  const int count = s && !dims ? static_cast<int>(s->size()) : a.ndim();
  if (count > a.ndim()) {
    fail(what, ": number of lengths is ", count, ", expected at most ", a.ndim(), ", the dims of ",
         a.shape());
  }
  if (dims) {
    extent.dims = distinct_dims(what, a, *dims);
  } else {
    for (int d = a.ndim() - count; d < a.ndim(); ++d) extent.dims.push_back(d);
  }
  if (extent.dims.empty()) fail(what, ": number of dims is 0, expected at least 1");
  extent.lengths.resize(extent.dims.size());
  if (!s) return extent;
  if (s->size() != extent.dims.size()) {
    fail(what, ": number of lengths is ", s->size(), ", expected ", extent.dims.size(),
         ", one a dim");
  }
  for (size_t i = 0; i < s->size(); ++i) {
    if ((*s)[i] != -1) extent.lengths[i] = (*s)[i];  // -1 is a dim's own, as in PyTorch
  }
  return extent;
}

/// Transforms all dims but the last `left` of the extent, the last ones first.
static Tensor over_dims(const char* what, Tensor a, const Extent& extent, size_t left, Norm norm,
                        bool inverse) {
  for (size_t i = extent.dims.size() - left; i-- > 0;) {
    a = along(what, a, extent.lengths[i], extent.dims[i], norm, inverse);
  }
  return a;
}

Tensor fftn(const Tensor& a, const Lengths& s, const Axes& dims, Norm norm) {
  return over_dims("fftn", a, extent_of("fftn", a, s, dims), 0, norm, false);
}
Tensor ifftn(const Tensor& a, const Lengths& s, const Axes& dims, Norm norm) {
  return over_dims("ifftn", a, extent_of("ifftn", a, s, dims), 0, norm, true);
}
Tensor rfftn(const Tensor& a, const Lengths& s, const Axes& dims, Norm norm) {
  const Extent extent = extent_of("rfftn", a, s, dims);
  const Tensor half =
      half_along("rfftn", a, extent.lengths.back(), extent.dims.back(), norm, false);
  return over_dims("rfftn", half, extent, 1, norm, false);
}
Tensor irfftn(const Tensor& a, const Lengths& s, const Axes& dims, Norm norm) {
  const Extent extent = extent_of("irfftn", a, s, dims);
  const Tensor half = over_dims("irfftn", a, extent, 1, norm, true);
  return from_half("irfftn", half, extent.lengths.back(), extent.dims.back(), norm, true);
}

/// Checks the options of frequencies.
static void check_frequencies(const char* what, int64_t n, double d, DType dtype) {
  check_length(what, n);
  if (d == 0 || !std::isfinite(d)) fail(what, ": d is ", d, ", expected a finite number but 0");
  if (is_floating(dtype) && !is_complex(dtype)) return;
  fail(what, ": dtype is ", dtype, ", expected a real floating one");
}

Tensor fftfreq(int64_t n, double d, const TensorOptions& options) {
  check_frequencies("fftfreq", n, d, options.dtype);
  const int64_t positive = (n + 1) / 2;
  TensorOptions whole = options;
  whole.dtype = DType::f64;
  const Tensor place = arange(0.0, static_cast<double>(n), 1.0, whole);
  const Tensor wrapped =
      where(less(place, static_cast<double>(positive)), place, sub(place, static_cast<double>(n)));
  return as_dtype(div(wrapped, static_cast<double>(n) * d), options.dtype);
}

Tensor rfftfreq(int64_t n, double d, const TensorOptions& options) {
  check_frequencies("rfftfreq", n, d, options.dtype);
  TensorOptions whole = options;
  whole.dtype = DType::f64;
  const Tensor place = arange(0.0, static_cast<double>(n / 2 + 1), 1.0, whole);
  return as_dtype(div(place, static_cast<double>(n) * d), options.dtype);
}

static Tensor shifted(const char* what, const Tensor& a, const Axes& dims, bool back) {
  check_tensor(what, a);
  std::vector<int> moved = dims ? distinct_dims(what, a, *dims) : std::vector<int>();
  for (int d = 0; !dims && d < a.ndim(); ++d) moved.push_back(d);
  if (moved.empty()) return a;
  std::vector<int64_t> shifts;
  for (const int d : moved) shifts.push_back(back ? (a.size(d) + 1) / 2 : a.size(d) / 2);
  return roll(a, shifts, moved);
}

Tensor fftshift(const Tensor& a, const Axes& dims) { return shifted("fftshift", a, dims, false); }
Tensor ifftshift(const Tensor& a, const Axes& dims) { return shifted("ifftshift", a, dims, true); }

}  // namespace weft::fft
