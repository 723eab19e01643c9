// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/factories.h"

#include "python/bindings/bindings.h"
#include "weft/init.h"
#include "weft/mesh.h"
#include "weft/ops/elementwise.h"
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

/// Binds function(shape, options), which takes sizes one by one or in a sequence, and the keywords
/// of all factories.
static void bind_of_sizes(py::module_& m, const char* name,
                          Tensor (*function)(const Shape&, const TensorOptions&),
                          const char* text) {
  def(m,
      concat(name,
             "(*sizes, shape=(), dtype=None, device=None, mesh=None, placements=None, "
             "requires_grad=False)"),
      text,
      [name, function](const py::args& sizes, const Shape& shape, const std::optional<DType>& dtype,
                       const DeviceArgument& device, const MeshArgument& mesh,
                       const PlacementsArgument& placements, bool requires_grad) {
        const bool is_one = sizes.size() == 1 && !PyIndex_Check(sizes[0].ptr());
        const py::object listed = is_one ? sizes[0] : py::object(sizes);
        Shape given = shape;
        if (!sizes.empty() && !load_shape(listed, given)) {
          const auto described = py::module_::import("weft._arguments").attr("described");
          fail_type(name, ": shape is ", described(listed), ", expected tuple[int, ...]");
        }
        return released([&] {
          Tensor made = function(given, options_of(given.ndim(), dtype.value_or(DType::f32), device,
                                                   mesh, placements));
          return requires_grad ? made.set_requires_grad() : made;
        });
      });
}

/// Binds function(shape, arguments, options); `dtype` is the default.
template <class... Args, class... Extra>
static void bind_factory(py::module_& m, const char* name,
                         Tensor (*function)(const Shape&, std::type_identity_t<Args>...,
                                            const TensorOptions&),
                         DType dtype, const char* text, const Extra&... extra) {
  m.def(
      name,
      [function](const Shape& shape, Args... args, DType given, const DeviceArgument& device,
                 const MeshArgument& mesh, const PlacementsArgument& placements) {
        return function(shape, args..., options_of(shape.ndim(), given, device, mesh, placements));
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
  def(m, "arange(start, stop=None, step=1, *, dtype=None, device=None, mesh=None, placements=None)",
      "start, start + step, ... before stop, or 0, 1, ... before the only number; int64 for ints, "
      "otherwise float32. ValueError when step is 0",
      [](const Operand& start, const std::optional<Operand>& stop, const Operand& step,
         const std::optional<DType>& dtype, const DeviceArgument& device, const MeshArgument& mesh,
         const PlacementsArgument& placements) {
        const auto is_whole = [](const Operand& one) {
          return one.is_number() && one.number.kind != Number::Kind::floating;
        };
        const bool are_whole = is_whole(start) && is_whole(stop.value_or(0)) && is_whole(step);
        const TensorOptions options = options_of(
            1, dtype.value_or(are_whole ? DType::i64 : DType::f32), device, mesh, placements);
        return equal_on_ranks(
            stop ? arange(number_in(start), number_in(*stop), number_in(step), options)
                 : arange(0, number_in(start), number_in(step), options));
      });
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

Tensor on_given_device(const char* what, const Tensor& x, const std::optional<Device>& device) {
  if (!device || *device == x.device()) return x;
  fail(what, ": device is ", *device, ", expected ", x.device(), ", that of the tensor");
}

static Tensor empty_like(const Tensor& x) {
  if (x.is_sharded()) return zeros_like(x);
  return empty(x.shape(), {.dtype = x.dtype(), .device = x.device()});
}

/// Binds make(x), whose result is as x is unless a dtype is given.
static void bind_like(py::module_& m, const char* name, Tensor (*make)(const Tensor&),
                      const char* text) {
  def(m, concat(name, "(x, *, dtype=None, device=None)"), text,
      [name, make](const Tensor& x, const std::optional<DType>& dtype,
                   const std::optional<Device>& device) {
        const Tensor made = make(on_given_device(name, x, device));
        return dtype ? cast(made, *dtype) : made;
      });
}

void bind_factories(py::module_& m) {
  bind_of_sizes(m, "empty", empty, "Uninitialized memory of `shape`; float32 by default");
  bind_of_sizes(
      m, "zeros",
      [](const Shape& shape, const TensorOptions& o) { return equal_on_ranks(zeros(shape, o)); },
      "Zeros of `shape`, float32 by default; with `mesh` each rank makes its part");
  bind_of_sizes(
      m, "ones",
      [](const Shape& shape, const TensorOptions& o) { return equal_on_ranks(ones(shape, o)); },
      "Ones of `shape`, float32 by default; with `mesh` each rank makes its part");
  bind_of_sizes(m, "randn", randn, "Of the standard normal distribution; equal bits for any mesh");
  bind_of_sizes(
      m, "rand", [](const Shape& shape, const TensorOptions& o) { return uniform(shape, 0, 1, o); },
      "Evenly in [0, 1); equal bits for any mesh");
  bind_factory<const Operand&>(
      m, "_full",
      [](const Shape& shape, const Operand& value, const TensorOptions& o) {
        return equal_on_ranks(full(shape, number_in(value), o));
      },
      DType::f32, "All elements `fill_value`", "fill_value"_a);
  bind_sequences(m);
  bind_like(m, "zeros_like", &zeros_like, "Zeros with the shape, layout and dtype of x");
  bind_like(m, "ones_like", &ones_like, "Ones with the shape, layout and dtype of x");
  // A cast reads the elements.
  def(m, "empty_like(x, *, dtype=None, device=None)",
      "New memory with the shape, layout and dtype of x; zeros where x is sharded",
      [](const Tensor& x, const std::optional<DType>& dtype, const std::optional<Device>& device) {
        const Tensor at = on_given_device("empty_like", x, device);
        return dtype ? cast(zeros_like(at), *dtype) : empty_like(at);
      });
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
