// SPDX-License-Identifier: Apache-2.0
#include "weft/derivatives.h"

#include <set>

#include "python/bindings/bindings.h"
#include "weft/extend/module_paths.h"
#include "weft/extend/tape.h"
#include "weft/functional_call.h"
#include "weft/parameter.h"

namespace weft::python {

/// A tensor, or the leaf of a parameter at rest.
static Tensor leaf_in(const char* what, const py::handle& object) {
  if (const auto* parameter = bound_value<Parameter>(object)) return parameter->value();
  if (const auto* tensor = bound_value<Tensor>(object)) return *tensor;
  fail_type(concat(what, ": a tensor is another object, expected a Tensor or a Parameter"));
}

/// One tensor, or a sequence of them; an empty tensor for None.
static Tensors tensors_in(const char* what, const py::object& given) {
  Tensors tensors;
  if (given.is_none()) return tensors;
  const bool is_one = bound_value<Tensor>(given) || bound_value<Parameter>(given);
  if (is_one || !py::isinstance<py::sequence>(given)) {
    return {leaf_in(what, given)};
  }
  for (const py::handle one : py::sequence(given)) {
    tensors.push_back(one.is_none() ? Tensor() : leaf_in(what, one));
  }
  return tensors;
}

static py::tuple tuple_of(const Tensors& tensors) {
  py::tuple all(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) all[i] = MaybeTensor(tensors[i]);
  return all;
}

static py::tuple grad_in(const py::object& outputs, const py::object& inputs,
                         const py::object& grad_outputs, std::optional<bool> retain_graph,
                         bool create_graph, bool allow_unused) {
  const Tensors roots = tensors_in("grad", outputs), of = tensors_in("grad", inputs);
  const GradOptions options{.grad_outputs = tensors_in("grad", grad_outputs),
                            .create_graph = create_graph,
                            .retain_graph = retain_graph,
                            .allow_unused = allow_unused};
  return tuple_of(released([&] { return grad(roots, of, options); }));
}

static std::function<Tensor(const Tensor&)> hook_in(const py::function& hook) {
  return [kept = Callable(hook)](const Tensor& gradient) {
    const Locked lock;
    const py::object returned = kept(gradient);
    return returned.is_none() ? Tensor() : leaf_in("register_hook", returned);
  };
}

/// A function of as many tensors as it is given, which returns one or several.
static TensorFunction function_of_tensors(const py::function& function) {
  return [kept = Callable(function)](const Tensors& inputs) {
    const Locked lock;
    return tensors_in("derivative", kept(*tuple_of(inputs)));
  };
}

static py::tuple record_in(const std::string& name, const Tensors& inputs, const Tensors& outputs,
                           const py::function& backward) {
  // A node keeps its name for as long as the process runs; there are few.
  static std::set<std::string> names;
  const char* kept_name = names.insert(name).first->c_str();
  const size_t count = inputs.size();
  return tuple_of(released([&] {
    return record(kept_name, inputs, outputs,
                  [kept = Callable(backward), name, count](const Tensors& gradients) {
                    const Locked lock;
                    Tensors all = tensors_in(name.c_str(), kept(*tuple_of(gradients)));
                    if (all.size() != count) {
                      fail(name, ": number of gradients that backward returned is ", all.size(),
                           ", expected ", count, ", one a tensor that forward got, or None");
                    }
                    return all;
                  });
  }));
}

static std::vector<py::tuple> tuples_in(const std::vector<Tensors>& all) {
  std::vector<py::tuple> tuples;
  for (const Tensors& one : all) tuples.push_back(tuple_of(one));
  return tuples;
}

using Product = WithProducts(const TensorFunction&, const Tensors&, const Tensors&, bool);

template <Product* kProduct>
static py::tuple product_in(const py::function& function, const py::object& inputs,
                            const py::object& v, bool create_graph) {
  const Tensors given = tensors_in("inputs", inputs), along = tensors_in("v", v);
  const TensorFunction kept = function_of_tensors(function);
  const WithProducts all = released([&] { return kProduct(kept, given, along, create_graph); });
  return py::make_tuple(tuple_of(all.outputs), tuple_of(all.products));
}

using Matrix = std::vector<Tensors>(const TensorFunction&, const Tensors&, bool);

template <Matrix* kMatrix>
static std::vector<py::tuple> matrix_in(const py::function& function, const py::object& inputs,
                                        bool create_graph) {
  const Tensors given = tensors_in("inputs", inputs);
  const TensorFunction kept = function_of_tensors(function);
  return tuples_in(released([&] { return kMatrix(kept, given, create_graph); }));
}

using Check = std::string(const TensorFunction&, const Tensors&, const CheckOptions&);

template <Check* kCheck>
static std::string check_in(const py::function& function, const py::object& inputs, double eps,
                            double atol, double rtol) {
  const Tensors given = tensors_in("inputs", inputs);
  const TensorFunction kept = function_of_tensors(function);
  return released([&] { return kCheck(kept, given, {eps, atol, rtol}); });
}

static void bind_functionals(py::module_& m) {
  def(m, "_vjp(function, inputs, v, create_graph)", &product_in<vjp>);
  def(m, "_jvp(function, inputs, v, create_graph)", &product_in<jvp>);
  def(m, "_hvp(function, inputs, v, create_graph)", &product_in<hvp>);
  def(m, "_jacobian(function, inputs, create_graph)", &matrix_in<jacobian>);
  def(m, "_hessian(function, inputs, create_graph)", &matrix_in<hessian>);
  def(m, "_check_gradients(function, inputs, eps, atol, rtol)", &check_in<gradcheck>);
  def(m, "_check_second_gradients(function, inputs, eps, atol, rtol)", &check_in<gradgradcheck>);
  def(m, "_record(name, inputs, outputs, backward)", &record_in);
  def(m, "_as_output(i, value)", &as_output);
}

void bind_derivatives(py::module_& m, py::class_<Tensor>& tensor) {
  def(m,
      "grad(outputs, inputs, grad_outputs=None, retain_graph=None, create_graph=False, "
      "allow_unused=False)",
      "The gradients of the outputs by the inputs, which are tensors or parameters, in their "
      "layout and dtype; adds to the grad of none. create_graph records how they are computed, so "
      "that they can be differentiated; retain_graph (then true) keeps what backward needs for "
      "another one; allow_unused gives None for an input that no output depends on",
      &grad_in);
  def(m, "backward(roots, gradients=None, retain_graph=None, create_graph=False, inputs=None)",
      "Gradients of all leaves that `roots` depend on, or of the inputs given, given the roots' "
      "gradients (None: one)",
      [](const py::object& roots, const py::object& gradients, std::optional<bool> retain_graph,
         bool create_graph, const py::object& inputs) {
        const Tensors all = tensors_in("backward", roots), of = tensors_in("backward", gradients);
        const BackwardOptions options{create_graph, retain_graph, tensors_in("backward", inputs)};
        released([&] { backward(all, of, options); });
      });
  def(tensor, "backward(gradient=None, retain_graph=None, create_graph=False, inputs=None)",
      "Gradients of all leaves this tensor depends on, or of the inputs given; it has one element "
      "unless its gradient is given",
      [](const Tensor& x, const MaybeTensor& gradient, std::optional<bool> retain_graph,
         bool create_graph, const py::object& inputs) {
        const BackwardOptions options{create_graph, retain_graph, tensors_in("backward", inputs)};
        const Tensors given = gradient ? Tensors{gradient} : Tensors();
        released([&] { backward({x}, given, options); });
      });
  py::class_<GradientHookHandle>(m, "GradientHookHandle", "Removes the hook that was registered")
      .def("remove", &GradientHookHandle::remove);
  def(tensor, "register_hook(hook)",
      "Calls hook(gradient) in each backward with the complete gradient of the tensor; a tensor "
      "that it returns takes its place",
      [](const Tensor& x, const py::function& hook) { return register_hook(x, hook_in(hook)); });
  def(tensor, "register_post_accumulate_grad_hook(hook)",
      "Calls hook(leaf) after a backward has added to the grad of the leaf",
      [](const Tensor& x, const py::function& hook) {
        return register_post_accumulate_grad_hook(x, function_in<void, const Tensor&>(hook));
      });
  def(tensor, "retain_grad()", "Makes backward keep the gradient of a result as its grad",
      &retain_grad);
  def(tensor, "detach_()", "Disconnects the tensor from what computed it", [](const Tensor& x) {
    detach_(x);
    return x;
  });
  tensor.def_property_readonly(
      "grad_fn",
      [](const Tensor& x) -> std::optional<std::string> {
        const std::string name = grad_fn(x);
        return name.empty() ? std::nullopt : std::optional(name);
      },
      "The name of what computed the tensor, for backward; None for a leaf");
  tensor.def_property_readonly(
      "_version", [](const Tensor& x) { return x.storage()->version(); },
      "How often its elements, or others of the same memory, have changed in place");
  bind_functionals(m);
}

void bind_functional_call(py::module_& m) {
  py::class_<ReplacedParameters>(m, "_ReplacedParameters")
      .def(py::init([](Module& module, const std::map<std::string, Tensor>& values) {
             const NamedTensors given(values.begin(), values.end());
             return released([&] { return std::make_unique<ReplacedParameters>(module, given); });
           }),
           "module"_a, "values"_a)
      .def("restore", &ReplacedParameters::restore);
  py::class_<WatchScope>(m, "_WatchScope");
  py::class_<DetectAnomaly, WatchScope>(m, "_DetectAnomaly")
      .def(py::init([](Module* model) {
             return std::make_unique<DetectAnomaly>(model ? module_paths(*model) : ScopeNames());
           }),
           "model"_a);
  py::class_<ShadowScope, WatchScope>(m, "_ShadowScope")
      .def(py::init([](Module* model, int64_t every, double result, double gradient) {
             return std::make_unique<ShadowScope>(ShadowOptions{every, result, gradient},
                                                  model ? module_paths(*model) : ScopeNames());
           }),
           "model"_a, "every"_a, "result"_a, "gradient"_a);
}

}  // namespace weft::python
