// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/factories.h"

#include "python/bindings/bindings.h"
#include "weft/init.h"
#include "weft/mesh.h"
#include "weft/sharding.h"

namespace weft::python {

/// Binds an initializer, which returns what it fills.
template <class... Args>
static void bind_filling(py::module_& m, const Signature& signature,
                         void (*function)(const init::Target&, Args...), const char* text) {
  def(m, signature, text, [function](const py::object& tensor, std::decay_t<Args>... args) {
    auto* parameter = bound_value<Parameter>(tensor);
    const init::Target to =
        parameter ? init::Target(*parameter) : init::Target(tensor.cast<Tensor>());
    released([&] { function(to, args...); });
    return tensor;
  });
}

static void bind_init(py::module_& m) {
  bind_filling(m, "_init_constant_(tensor, val)", &init::constant_, "Fills with `val`");
  bind_filling(m, "_init_normal_(tensor, mean=0.0, std=1.0)", &init::normal_,
               "Fills from a normal distribution");
  bind_filling(m, "_init_uniform_(tensor, a=0.0, b=1.0)", &init::uniform_,
               "Fills from a uniform distribution on [a, b)");
  bind_filling(
      m, "_init_xavier_uniform_(tensor, gain=1.0)", &init::xavier_uniform_,
      "Fills uniformly within +-gain * sqrt(6 / (inputs + outputs)) (Glorot and Bengio, 2010)");
  bind_filling(m, "_init_xavier_normal_(tensor, gain=1.0)", &init::xavier_normal_,
               "Fills from a normal distribution of deviation gain * sqrt(2 / (inputs + outputs))");
  bind_filling(m, "_init_kaiming_uniform_(tensor, a=0.0, mode='fan_in', nonlinearity='leaky_relu')",
               &init::kaiming_uniform_,
               "Fills uniformly within +-sqrt(3) deviations of kaiming_normal_ (He et al., 2015)");
  bind_filling(
      m, "_init_kaiming_normal_(tensor, a=0.0, mode='fan_in', nonlinearity='leaky_relu')",
      &init::kaiming_normal_,
      "Normal, of deviation gain / sqrt(inputs), or gain / sqrt(outputs) (He et al., 2015)");
  def(m, "_init_calculate_gain(nonlinearity, param=None)", &init::calculate_gain,
      "The factor that keeps deviations constant through a nonlinearity");
}

/// Converts the keywords that all factories share, for a tensor of `ndim` dims. Without a
/// device, the mesh's or the CPU. Throws ValueError for placements without a mesh.
static TensorOptions options_of(int ndim, DType dtype, const std::optional<Device>& device,
                                const std::optional<DeviceMesh>& mesh,
                                const std::optional<Placements>& placements) {
  TensorOptions options{.dtype = dtype, .device = device.value_or(mesh ? mesh->device() : cpu)};
  if (placements && !mesh) fail("placements: mesh is missing, expected one for the placements");
  if (mesh) options.sharding = Sharding(*mesh, placements.value_or(Placements()), ndim);
  return options;
}

/// Marks what a factory made without a mesh as equal on all ranks.
static Tensor equal_on_ranks(const Tensor& made) {
  if (!made.is_sharded()) made.storage()->mark_equal_on_ranks();
  return made;
}

using DeviceArgument = std::optional<Device>;
using MeshArgument = std::optional<DeviceMesh>;
using PlacementsArgument = std::optional<Placements>;

/// Binds function(shape, arguments, options) with the keywords of all factories; `dtype` is the
/// default, None for float32.
template <class... Args, class Type, class... Extra>
static void bind_factory(py::module_& m, const char* name,
                         Tensor (*function)(const Shape&, std::type_identity_t<Args>...,
                                            const TensorOptions&),
                         const Type& dtype, const char* text, const Extra&... extra) {
  m.def(
      name,
      [function](const Shape& shape, Args... args, const Type& given, const DeviceArgument& device,
                 const MeshArgument& mesh, const PlacementsArgument& placements) {
        const DType type = std::optional<DType>(given).value_or(DType::f32);
        return function(shape, args..., options_of(shape.ndim(), type, device, mesh, placements));
      },
      Released(), "shape"_a, extra..., py::kw_only(), "dtype"_a = dtype, "device"_a = py::none(),
      "mesh"_a = py::none(), "placements"_a = py::none(), text);
}

static Number number_in(const Operand& value) {
  return value.is_number() ? value.number : Number(value.tensor.item());
}

static void bind_random(py::module_& m) {
  bind_factory<double, double>(
      m, "uniform", uniform, DType::f32,
      "Evenly in [low, high), from the rank's random state: equal bits for any mesh", "low"_a = 0.0,
      "high"_a = 1.0);
  bind_factory<int64_t, int64_t>(m, "_randint", randint, DType::i64, "Integers in [low, high)",
                                 "low"_a, "high"_a);
  bind_factory<double, double>(
      m, "normal", normal, DType::f32,
      "Of a normal distribution, from the rank's random state: equal bits for any mesh",
      "mean"_a = 0.0, "std"_a = 1.0);
}

static void bind_sequences(py::module_& m) {
  m.def(
      "_arange",
      [](const Operand& start, const Operand& stop, const Operand& step, DType dtype,
         const DeviceArgument& device, const MeshArgument& mesh,
         const PlacementsArgument& placements) {
        return equal_on_ranks(arange(number_in(start), number_in(stop), number_in(step),
                                     options_of(1, dtype, device, mesh, placements)));
      },
      Released(), "start"_a, "stop"_a, "step"_a, py::kw_only(), "dtype"_a = DType::i64,
      "device"_a = py::none(), "mesh"_a = py::none(), "placements"_a = py::none());
  def(m,
      "linspace(start, stop, num, *, dtype=None, device=None, endpoint=True, mesh=None, "
      "placements=None)",
      "`num` evenly spaced numbers from start to stop, which is included with `endpoint`; float32 "
      "by default. ValueError when num is negative",
      [](double start, double stop, int64_t num, const std::optional<DType>& dtype,
         const DeviceArgument& device, bool endpoint, const MeshArgument& mesh,
         const PlacementsArgument& placements) {
        return equal_on_ranks(
            linspace(start, stop, num, endpoint,
                     options_of(1, dtype.value_or(DType::f32), device, mesh, placements)));
      });
  def(m, "eye(n_rows, n_cols=None, *, k=0, dtype=None, device=None, mesh=None, placements=None)",
      "[n_rows, n_cols] of zeros, with ones where column - row is k",
      [](int64_t n_rows, const std::optional<int64_t>& n_cols, int64_t k,
         const std::optional<DType>& dtype, const DeviceArgument& device, const MeshArgument& mesh,
         const PlacementsArgument& placements) {
        return equal_on_ranks(
            eye(n_rows, n_cols.value_or(n_rows), k,
                options_of(2, dtype.value_or(DType::f32), device, mesh, placements)));
      });
}

void bind_factories(py::module_& m) {
  const std::optional<DType> dtype;
  bind_factory(m, "empty", empty, dtype,
               "Uninitialized memory of `shape` (ints, or one int); float32 by default");
  bind_factory(
      m, "zeros",
      [](const Shape& shape, const TensorOptions& o) { return equal_on_ranks(zeros(shape, o)); },
      dtype, "Zeros of `shape`, float32 by default; with `mesh` each rank makes its part");
  bind_factory(
      m, "ones",
      [](const Shape& shape, const TensorOptions& o) { return equal_on_ranks(ones(shape, o)); },
      dtype, "Ones of `shape`, float32 by default; with `mesh` each rank makes its part");
  bind_factory(m, "randn", randn, dtype,
               "Of the standard normal distribution; equal bits for any mesh");
  bind_factory(
      m, "rand", [](const Shape& shape, const TensorOptions& o) { return uniform(shape, 0, 1, o); },
      dtype, "Evenly in [0, 1); equal bits for any mesh");
  bind_factory<const Operand&>(
      m, "_full",
      [](const Shape& shape, const Operand& value, const TensorOptions& o) {
        return equal_on_ranks(full(shape, number_in(value), o));
      },
      DType::f32, "All elements `fill_value`", "fill_value"_a);
  bind_sequences(m);
  def(m, "zeros_like(x)", &zeros_like, "Zeros laid out as x is");
  def(m, "ones_like(x)", &ones_like, "Ones laid out as x is");
  const auto fill = [](const Tensor& x, const Operand& value) { fill_(x, number_in(value)); };
  bind_change(m, "fill_(x, value)", +fill, "Sets all elements in place");
  bind_change(m, "copy_(to, source)", &copy_,
              "Copies the elements of `source`, broadcast to the shape of `to`, to the memory of "
              "`to`");
  def(m, "transfer_(to, source)", &transfer_,
      "copy_ between a GPU and pinned memory of the host (what `offload` keeps there) that is "
      "queued only: the host's is read or written when the GPU's stream comes to it");
  bind_change(m, "uniform_(x, low=0.0, high=1.0)", &uniform_,
              "Draws all elements anew, evenly in [low, high)");
  bind_change(m, "normal_(x, mean=0.0, std=1.0)", &normal_,
              "Draws all elements anew, of a normal distribution");
  bind_random(m);
  bind_init(m);
}

}  // namespace weft::python
