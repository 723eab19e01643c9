// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "python/bindings/bindings.h"
#include "weft/fft.h"
#include "weft/mesh.h"
#include "weft/ops/complex.h"
#include "weft/sharding.h"

namespace weft::python {

using Lengths = std::optional<std::vector<int64_t>>;

static void bind_parts(py::module_& m) {
  def(m, "complex(real, imag)", "real + imag * 1j, of float32 or float64", &complex);
  def(m, "polar(abs, angle)", "abs * (cos(angle) + 1j * sin(angle))", &polar);
  def(m, "real(x)", "The real parts, as a new tensor", &real);
  def(m, "imag(x)", "The imaginary parts, as a new tensor", &imag);
  def(m, "conj(x)", "The complex conjugates; a real tensor itself", &conj);
  def(m, "sgn(x)", "x / |x|, 0 for 0; of real tensors the sign", &sgn);
  def(m, "view_as_real(x)", "The parts in a last dim of 2; a copy", &view_as_real);
  def(m, "view_as_complex(x)", "Complex numbers of the parts in the last dim; a copy",
      &view_as_complex);
}

using OneDim = Tensor (*)(const Tensor&, fft::Length, int, fft::Norm);
using ManyDims = Tensor (*)(const Tensor&, const fft::Lengths&, const fft::Axes&, fft::Norm);

static void bind_one_dim(py::module_& m, const char* name, OneDim function, const char* text) {
  def(m, concat("_fft_", name, "(x, n, axis, norm)"), text,
      [function](const Tensor& x, const std::optional<int64_t>& n, int axis,
                 const std::string& norm) { return function(x, n, axis, norm); });
}

static void bind_many_dims(py::module_& m, const char* name, ManyDims function, const char* text) {
  def(m, concat("_fft_", name, "(x, s, axes, norm)"), text,
      [function](const Tensor& x, const std::optional<IntList>& s,
                 const std::optional<DimList>& axes, const std::string& norm) {
        const Lengths lengths = s ? Lengths(*s) : Lengths();
        return function(x, lengths, axes ? fft::Axes(*axes) : fft::Axes(), norm);
      });
}

using Frequencies = Tensor (*)(int64_t, double, const TensorOptions&);

static void bind_frequencies(py::module_& m, const char* name, Frequencies function,
                             const char* text) {
  def(m, concat("_fft_", name, "(n, d, dtype, mesh, placements)"), text,
      [function](int64_t n, double d, DType dtype, const std::optional<DeviceMesh>& mesh,
                 const std::optional<Placements>& placements) {
        TensorOptions options{.dtype = dtype};
        if (mesh) options.sharding = Sharding(*mesh, placements.value_or(Placements()), 1);
        return function(n, d, options);
      });
}

void bind_complex(py::module_& m) {
  bind_parts(m);
  bind_one_dim(m, "fft", &fft::fft, "The discrete Fourier transform along a dim");
  bind_one_dim(m, "ifft", &fft::ifft, "Its inverse");
  bind_one_dim(m, "rfft", &fft::rfft, "The first n / 2 + 1 frequencies of a real tensor");
  bind_one_dim(m, "irfft", &fft::irfft, "The real tensor of n / 2 + 1 frequencies");
  bind_one_dim(m, "hfft", &fft::hfft, "The real frequencies of half of a symmetric sequence");
  bind_one_dim(m, "ihfft", &fft::ihfft, "The inverse of hfft");
  bind_many_dims(m, "fftn", &fft::fftn, "The transform over several dims");
  bind_many_dims(m, "ifftn", &fft::ifftn, "Its inverse");
  bind_many_dims(m, "rfftn", &fft::rfftn, "The transform of a real tensor over several dims");
  bind_many_dims(m, "irfftn", &fft::irfftn, "Its inverse");
  bind_frequencies(m, "fftfreq", &fft::fftfreq, "The frequencies of fft");
  bind_frequencies(m, "rfftfreq", &fft::rfftfreq, "The frequencies of rfft");
  const auto shift = [&](const char* name, Tensor (*function)(const Tensor&, const fft::Axes&),
                         const char* text) {
    def(m, concat("_fft_", name, "(x, axes)"), text,
        [function](const Tensor& x, const std::optional<DimList>& axes) {
          return function(x, axes ? fft::Axes(*axes) : fft::Axes());
        });
  };
  shift("fftshift", &fft::fftshift, "Moves frequency 0 to the middle");
  shift("ifftshift", &fft::ifftshift, "Moves it back");
}

}  // namespace weft::python
