// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/modules.h"

#include "python/bindings/released.h"
#include "weft/error.h"

namespace weft::python {

namespace {

/// A module whose forward is written in Python.
class PythonModule : public Module, public py::trampoline_self_life_support {
 public:
  using Module::declare;

 protected:
  Tensors forward(const Tensors& inputs) override {
    const py::gil_scoped_acquire lock;
    const py::object self = py::cast(this);
    const py::object own = py::getattr(self, "forward", py::none());
    const std::string what = concat(Py_TYPE(self.ptr())->tp_name, own.is_none() ? "" : ": forward");
    if (own.is_none()) fail("module: ", what, " has no forward(self, ...)");
    py::tuple arguments(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) arguments[i] = inputs[i];
    return tensors_of(what, own(*arguments));
  }
};

/// The protected face of any module.
struct OpenModule : Module {
  using Module::declare;
};

ParameterPtr declare(Module& module, const std::string& name, const Shape& shape,
                     Parameter::Initializer initializer, DType dtype) {
  return (module.*(&OpenModule::declare))(name, shape, std::move(initializer), dtype);
}

Parameter::Initializer initializer_of(const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](const Tensor& values) {
    const py::gil_scoped_acquire lock;
    kept(values);
  };
}

/// What passes a hook: what it returns, or what came when it returns None.
std::function<Tensors(const Tensors&)> hook_of(const py::object& given, const char* what) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given)), what](const Tensors& passing) -> Tensors {
    const py::gil_scoped_acquire lock;
    py::tuple arguments(passing.size());
    for (size_t i = 0; i < passing.size(); ++i) arguments[i] = passing[i];
    const py::object returned = kept(*arguments);
    return returned.is_none() ? passing : tensors_of(what, returned);
  };
}

Tensors inputs_of(const py::args& given) {
  Tensors inputs;
  for (const py::handle input : given) {
    auto tensor = tensor_of(input);
    if (!tensor) {
      throw py::type_error(concat("module: input ", inputs.size(), " is a ",
                                  Py_TYPE(input.ptr())->tp_name, ", not a Tensor"));
    }
    inputs.push_back(*std::move(tensor));
  }
  return inputs;
}

/// A parameter of those values, and of their dtype and layout.
ParameterPtr parameter_of(const Tensor& values, bool requires_grad) {
  auto parameter = std::make_shared<Parameter>(values.shape(), values.dtype(), nullptr);
  if (!requires_grad) parameter->set_trainable(false);
  parameter->set_value(values.detach());
  return parameter;
}

void bind_parameter(py::module_& m) {
  py::class_<Parameter, ParameterPtr>(
      m, "Parameter",
      "A named slot of a module. What lies in it may be exchanged (sharded, gathered, loaded); "
      "where a Tensor is asked for it stands for what forward computes with")
      .def(py::init(&parameter_of), py::arg("values"), py::arg("requires_grad") = true)
      .def_property_readonly(
          "data", [](const Parameter& p) { return p.value().detach(); },
          "As it is at rest, what optimizers change; not recorded")
      .def("tensor", &Parameter::tensor, "What forward computes with")
      .def_property_readonly("shape", &Parameter::shape)
      .def_property_readonly("dtype", &Parameter::dtype)
      .def_property_readonly("ndim", [](const Parameter& p) { return p.shape().ndim(); })
      .def_property_readonly("size", [](const Parameter& p) { return p.shape().product(); })
      .def("numel", [](const Parameter& p) { return p.shape().product(); })
      .def_property_readonly(
          "grad", [](const Parameter& p) { return optional_of(p.grad()); },
          "Of the value, in its layout; None before backward")
      .def("clear_grad", &Parameter::clear_grad)
      .def_property("requires_grad", &Parameter::is_trainable, &Parameter::set_trainable,
                    "Freezes or thaws it; before sharding")
      .def(
          "requires_grad_",
          [](const ParameterPtr& p, bool requires_grad) {
            p->set_trainable(requires_grad);
            return p;
          },
          py::arg("requires_grad") = true)
      .def("set_value", &Parameter::set_value, py::arg("value"),
           "Exchanges what lies in the slot; the shape stays")
      .def_property_readonly("is_materialized", &Parameter::is_materialized)
      .def("materialize", &Parameter::materialize, Released(), py::arg("device") = cpu,
           "Gives it memory and its initial values; nothing the second time")
      .def("__repr__", [](const Parameter& p) {
        return concat("Parameter(", p.shape(), ", ", p.dtype(), p.is_trainable() ? "" : ", frozen",
                      p.is_materialized() ? "" : ", on meta", ')');
      });
}

void bind_tree(py::class_<Module, PythonModule, py::smart_holder>& module) {
  module
      .def(
          "_declare",
          [](Module& self, const std::string& name, const Shape& shape, const py::object& init,
             DType dtype) { return declare(self, name, shape, initializer_of(init), dtype); },
          py::arg("name"), py::arg("shape"), py::arg("init") = py::none(),
          py::arg("dtype") = DType::f32)
      .def(
          "_add_parameter",
          [](Module& self, const std::string& name, const ParameterPtr& parameter) {
            declare(self, name, parameter->shape(), {}, parameter->dtype());
            self.set_parameter(name, parameter);
          },
          py::arg("name"), py::arg("parameter"))
      .def("set_parameter", &Module::set_parameter, py::arg("name"), py::arg("parameter"),
           "Lets own parameter `name` be `parameter`: a tie")
      .def("adopt", &Module::adopt, py::arg("name"), py::arg("child"), "Adds a child module")
      .def(
          "_own_parameter",
          [](const Module& self, const std::string& name) -> ParameterPtr {
            for (const auto& [own, parameter] : self.own_parameters()) {
              if (own == name) return parameter;
            }
            return nullptr;
          },
          py::arg("name"))
      .def(
          "_child",
          [](const Module& self, const std::string& name) -> std::shared_ptr<Module> {
            for (const auto& [own, child] : self.children()) {
              if (own == name) return child;
            }
            return nullptr;
          },
          py::arg("name"))
      .def(
          "named_children", [](const Module& self) { return self.children(); },
          "(name, module) of each child")
      .def("_named_parameters",
           [](const Module& self) {
             std::vector<std::pair<std::vector<std::string>, ParameterPtr>> all;
             for (const NamedParameter& p : self.named_parameters()) {
               all.emplace_back(p.names, p.parameter);
             }
             return all;
           })
      .def(
          "named_modules",
          [](const std::shared_ptr<Module>& self) {
            std::vector<std::pair<std::string, std::shared_ptr<Module>>> all;
            for (const auto& [path, below] : self->named_modules()) {
              all.emplace_back(path, part_of(self, below));
            }
            return all;
          },
          "(path, module) of this module ('') and all below it, parents first")
      .def(
          "get_submodule",
          [](const std::shared_ptr<Module>& self, const std::string& path) {
            return part_of(self, &self->module(path));
          },
          py::arg("path"),
          "The module at a dotted path; ValueError names the first part that is not there");
}

}  // namespace

std::vector<NamedParameter> named_parameters_of(const py::object& given) {
  if (py::isinstance<Module>(given)) return given.cast<Module&>().named_parameters();
  std::vector<NamedParameter> all;
  // What Module.parameters() gives knows its names.
  const py::object list = py::getattr(given, "named", given);
  for (const py::handle item : list) {
    const bool is_pair = PyTuple_Check(item.ptr());
    const py::handle parameter = is_pair ? item[py::int_(1)].cast<py::object>() : item;
    std::string name = is_pair ? item[py::int_(0)].cast<std::string>() : concat(all.size());
    if (!py::isinstance<Parameter>(parameter)) {
      throw py::type_error(concat("parameters: item ", all.size(), " is a ",
                                  Py_TYPE(item.ptr())->tp_name,
                                  ", not a Parameter or a pair of a name and one"));
    }
    all.push_back({{std::move(name)}, parameter.cast<ParameterPtr>()});
  }
  return all;
}

std::vector<ParameterPtr> parameters_of(const py::object& given) {
  std::vector<ParameterPtr> all;
  for (NamedParameter& named : named_parameters_of(given)) all.push_back(named.parameter);
  return all;
}

void bind_modules(py::module_& m) {
  bind_parameter(m);
  py::class_<Module, PythonModule, py::smart_holder> module(
      m, "Module",
      "A part of a model: named parameters, named children, and forward(self, *tensors), which a "
      "call runs with the hooks around it. Parameters and modules assigned to attributes are its "
      "own");
  module.def(py::init<>())
      .def(
          "__call__",
          [](Module& self, const py::args& given) {
            const Tensors inputs = inputs_of(given);
            return one_or_all(released([&] { return self(inputs); }));
          },
          "forward with the hooks around it: a tensor, or a tuple where there are several")
      .def("materialize", &Module::materialize, Released(), py::arg("device") = cpu,
           "Gives every declared parameter memory and its initial values: equal bits for any "
           "sharding. Call it on all ranks alike")
      .def("set_recompute", &Module::set_recompute, py::arg("recompute") = true,
           "Activation checkpointing: forward saves its inputs only and runs again in backward")
      .def(
          "add_hooks",
          [](Module& self, const py::object& before, const py::object& after) {
            self.add_hooks(
                {hook_of(before, "hook before forward"), hook_of(after, "hook after forward")});
          },
          py::kw_only(), py::arg("before") = py::none(), py::arg("after") = py::none(),
          "before(*inputs) and after(*outputs) run around forward; what they return passes on "
          "instead, None leaves it")
      .def(
          "train",
          [](const std::shared_ptr<Module>& self, bool mode) {
            self->set_training(mode);
            return self;
          },
          py::arg("mode") = true, "Of this module and all below it")
      .def(
          "eval",
          [](const std::shared_ptr<Module>& self) {
            self->set_training(false);
            return self;
          },
          "train(False): `Dropout` passes everything")
      .def_property_readonly("training", &Module::is_training);
  bind_tree(module);
  m.def(
      "checkpoint",
      [](const py::function& function, const py::args& given) {
        const Tensors inputs = inputs_of(given);
        const auto run = [kept = Callable(function)](const Tensors& again) {
          const py::gil_scoped_acquire lock;
          py::tuple arguments(again.size());
          for (size_t i = 0; i < again.size(); ++i) arguments[i] = again[i];
          return tensors_of("checkpoint", kept(*arguments));
        };
        return one_or_all(released([&] { return checkpoint(run, inputs); }));
      },
      py::arg("function"),
      "Runs function(*tensors) without recording it, and again, recorded, in backward: memory for "
      "time. Random numbers are equal in both runs");
}

}  // namespace weft::python
