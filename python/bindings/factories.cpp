// SPDX-License-Identifier: Apache-2.0
#include "weft/ops/factories.h"

#include <optional>
#include <string>
#include <type_traits>

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

namespace {

/// The keywords that all factories share, but requires_grad.
struct Keywords {
  const std::optional<DType>& dtype;
  const std::optional<Device>& device;
  const std::optional<DeviceMesh>& mesh;
  const std::optional<Placements>& placements;

  /// The options of a tensor of `ndim` dims. The default device is the mesh's or the CPU. Throws
  /// ValueError for placements without a mesh.
  TensorOptions options(int ndim, DType preset = DType::f32) const {
    TensorOptions all{.dtype = dtype.value_or(preset),
                      .device = device.value_or(mesh ? mesh->device() : cpu)};
    if (placements && !mesh) fail("placements: mesh is missing, expected one for the placements");
    if (mesh) all.sharding = Sharding(*mesh, placements.value_or(Placements()), ndim);
    return all;
  }
};

Tensor leaf_if(bool requires_grad, Tensor made) {
  return requires_grad ? made.set_requires_grad() : made;
}

/// Marks what a factory made without a mesh as equal on all ranks.
Tensor equal_on_ranks(const Tensor& made) {
  if (!made.is_sharded()) made.storage()->mark_equal_on_ranks();
  return made;
}

/// Binds make(args, keywords); `signature` has the arguments before the keywords.
template <class... Args, class Make>
void bind_factory(py::module_& m, const std::string& signature, const char* text,
                  const Make& make) {
  def(m,
      concat(signature,
             ", dtype=None, device=None, mesh=None, placements=None, requires_grad=False)"),
      text,
      [make](const Args&... args, const std::optional<DType>& dtype,
             const std::optional<Device>& device, const std::optional<DeviceMesh>& mesh,
             const std::optional<Placements>& placements, bool requires_grad) {
        return leaf_if(requires_grad, make(args..., Keywords{dtype, device, mesh, placements}));
      });
}

using OfShape = Tensor (*)(const Shape&, const TensorOptions&);

/// Binds function(shape, options), which takes sizes one by one or in a sequence; is_equal: its
/// elements are equal on all ranks.
void bind_of_sizes(py::module_& m, const char* name, OfShape function, const char* text,
                   bool is_equal = false) {
  bind_factory<py::args, Shape>(
      m, concat(name, "(*sizes, shape=()"), text,
      [=](const py::args& sizes, const Shape& shape, const Keywords& keywords) {
        const Shape given = sizes.empty() ? shape : sizes_one_by_one(name, sizes);
        return released([&] {
          const Tensor made = function(given, keywords.options(given.ndim()));
          return is_equal ? equal_on_ranks(made) : made;
        });
      });
}

/// Binds function(shape, low, high, options), or of other two numbers.
template <class T>
void bind_random(py::module_& m, const char* signature,
                 Tensor (*function)(const Shape&, T, T, const TensorOptions&), const char* text) {
  bind_factory<Shape, T, T>(
      m, signature, text, [function](const Shape& shape, T a, T b, const Keywords& keywords) {
        constexpr DType kPreset = std::is_integral_v<T> ? DType::i64 : DType::f32;
        return function(shape, a, b, keywords.options(shape.ndim(), kPreset));
      });
}

Number number_in(const Operand& value) {
  return value.is_number() ? value.number : Number(value.tensor.item());
}

void bind_sequences(py::module_& m) {
  bind_factory<Operand, std::optional<Operand>, Operand>(
      m, "arange(start, stop=None, step=1, *",
      "start, start + step, ... before stop, or 0, 1, ... before the only number; int64 for ints, "
      "otherwise float32. ValueError when step is 0",
      [](const Operand& start, const std::optional<Operand>& stop, const Operand& step,
         const Keywords& keywords) {
        const auto is_whole = [](const Operand& one) {
          return one.is_number() && one.number.kind != Number::Kind::floating;
        };
        const bool are_whole = is_whole(start) && is_whole(stop.value_or(0)) && is_whole(step);
        const Number first = stop ? number_in(start) : 0;
        return equal_on_ranks(arange(first, number_in(stop.value_or(start)), number_in(step),
                                     keywords.options(1, are_whole ? DType::i64 : DType::f32)));
      });
  bind_factory<double, double, int64_t, bool>(
      m, "linspace(start, stop, num, *, endpoint=True",
      "`num` evenly spaced numbers from start to stop, which is included with `endpoint`; float32 "
      "by default. ValueError when num is negative",
      [](double start, double stop, int64_t num, bool endpoint, const Keywords& keywords) {
        return equal_on_ranks(linspace(start, stop, num, endpoint, keywords.options(1)));
      });
  bind_factory<int64_t, std::optional<int64_t>, int64_t>(
      m, "eye(n_rows, n_cols=None, *, k=0",
      "[n_rows, n_cols] of zeros, with ones where column - row is k",
      [](int64_t n_rows, const std::optional<int64_t>& n_cols, int64_t k,
         const Keywords& keywords) {
        return equal_on_ranks(eye(n_rows, n_cols.value_or(n_rows), k, keywords.options(2)));
      });
}

}  // namespace

Tensor on_given_device(const char* what, const Tensor& x, const std::optional<Device>& device) {
  if (!device || *device == x.device()) return x;
  fail(what, ": device is ", *device, ", expected ", x.device(), ", that of the tensor");
}

/// A tensor to make others like: x, or one element in x's shape on another device.
static Tensor prototype(const char* what, const Tensor& x, const std::optional<Device>& device) {
  if (!device || *device == x.device() || x.is_sharded()) return on_given_device(what, x, device);
  return expand(zeros({}, {.dtype = x.dtype(), .device = *device}), x.shape());
}

/// Binds make(x, args), whose result is as x is unless a dtype is given.
template <class... Args>
static void bind_like(py::module_& m, const Signature& signature,
                      Tensor (*make)(const Tensor&, Args...), const char* text) {
  def(m, signature, text,
      [make, name = std::string(signature.name())](
          const Tensor& x, Args... args, const std::optional<DType>& dtype,
          const std::optional<Device>& device, bool requires_grad) {
        const Tensor made = make(prototype(name.c_str(), x, device), args...);
        return leaf_if(requires_grad, cast(made, dtype.value_or(made.dtype())));
      });
}

static void bind_likes(py::module_& m) {
  constexpr const char* kKeywords = ", *, dtype=None, device=None, requires_grad=False)";
  const auto like = [&](const char* signature, auto make, const char* text) {
    bind_like(m, concat(signature, kKeywords), make, text);
  };
  like("zeros_like(x", &zeros_like, "Zeros with the shape, layout and dtype of x");
  like("ones_like(x", &ones_like, "Ones with the shape, layout and dtype of x");
  like("rand_like(x", &rand_like,
       with_rule("add", "Uniform in [0, 1), in shape, dtype and layout of x"));
  like("randn_like(x", &randn_like,
       with_rule("add", "Standard normal, in shape, dtype and layout of x"));
  like("randint_like(x, low, high", &randint_like,
       "Integers in [low, high), in shape and layout of x");
  def(m, concat("empty_like(x", kKeywords),
      "New memory with the shape, layout and dtype of x; zeros where x is sharded",
      [](const Tensor& x, const std::optional<DType>& dtype, const std::optional<Device>& device,
         bool requires_grad) {
        const Tensor at = prototype("empty_like", x, device);
        const DType of = dtype.value_or(at.dtype());
        return leaf_if(requires_grad,
                       at.is_sharded() ? cast(zeros_like(at), of)
                                       : empty(at.shape(), {.dtype = of, .device = at.device()}));
      });
}

void bind_factories(py::module_& m) {
  bind_of_sizes(m, "empty", empty, "Uninitialized memory of `shape`; float32 by default");
  bind_of_sizes(m, "zeros", zeros,
                "Zeros of `shape`, float32 by default; with `mesh` each rank makes its part", true);
  bind_of_sizes(m, "ones", ones,
                "Ones of `shape`, float32 by default; with `mesh` each rank makes its part", true);
  bind_of_sizes(m, "randn", randn, "Standard normal draws; equal bits for any mesh");
  bind_of_sizes(
      m, "rand", [](const Shape& shape, const TensorOptions& o) { return uniform(shape, 0, 1, o); },
      "Even draws from [0, 1); equal bits for any mesh");
  bind_factory<Shape, Operand>(
      m, "_full(shape, fill_value, *", "All elements `fill_value`",
      [](const Shape& shape, const Operand& value, const Keywords& keywords) {
        return equal_on_ranks(full(shape, number_in(value), keywords.options(shape.ndim())));
      });
  bind_sequences(m);
  bind_likes(m);
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
  bind_random<double>(
      m, "uniform(shape, low=0.0, high=1.0, *", uniform,
      "Evenly in [low, high), from the rank's random state: equal bits for any mesh");
  bind_random<int64_t>(m, "_randint(shape, low, high, *", randint, "Integers in [low, high)");
  bind_random<double>(
      m, "normal(shape, mean=0.0, std=1.0, *", normal,
      "Draws of a normal distribution, from the rank's random state: equal bits for any mesh");
  bind_init(m);
}

}  // namespace weft::python
