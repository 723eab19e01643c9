// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/modules.h"

#include "python/bindings/bindings.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/factories.h"

namespace weft::python {

namespace {

/// The protected face of any module.
struct OpenModule : Module {
  using Module::declare;
};

ParameterPtr declare(Module& module, const std::string& name, const Shape& shape,
                     Parameter::Initializer initializer, DType dtype) {
  return (module.*(&OpenModule::declare))(name, shape, std::move(initializer), dtype);
}

py::object called(const ModuleObject& module, const py::args& given, const py::kwargs& named) {
  auto& self = module.cast<Module&>();
  if (named.empty()) {
    if (auto inputs = only_tensors(given)) {
      return one_or_all(released([&] { return self(*inputs); }));
    }
  }
  auto* written = dynamic_cast<WrittenInPython*>(&self);
  const py::object forward = written ? written->written_forward() : py::none();
  if (forward.is_none()) {
    if (named.empty()) tensors_in("module", given, "input");
    fail_type(Py_TYPE(module.ptr())->tp_name, ": tensors are given by name, expected by position");
  }
  const ArgumentsPtr arguments = kept_arguments(forward, given, named);
  const auto run = [written, arguments](const Tensors& inputs) {
    return written->forward_with(arguments, inputs);
  };
  return one_or_all(released([&] { return self.call(arguments->tensors(), run); }));
}

/// A parameter of those values, and of their dtype and layout.
ParameterPtr parameter_of(const Tensor& values, bool requires_grad) {
  auto parameter = std::make_shared<Parameter>(values.shape(), values.dtype(), nullptr);
  if (!requires_grad) parameter->set_trainable(false);
  parameter->set_value(values.detach());
  return parameter;
}

/// Returns a parameter with separate values, or without memory as the given one; without the
/// gradient, as in PyTorch.
ParameterPtr deep_copied(const Parameter& p) {
  if (ModuleSharder::has_used(p)) {
    fail("deepcopy: the parameter ", p.shape(), " is fully sharded, expected one before ",
         "fully_shard");
  }
  auto made = std::make_shared<Parameter>(p.shape(), p.dtype(), p.initializer());
  made->set_trainable(p.is_trainable());
  if (!p.is_materialized()) {
    ModuleSharder::lay_out(*made, empty(p.shape(), {p.dtype(), meta, p.value().sharding()}));
    return made;
  }
  made->set_value(values_copied(p.value()));
  return made;
}

void bind_parameter(py::module_& m) {
  py::class_<Parameter, ParameterPtr> parameter(
      m, "Parameter",
      "A named slot of a module. What lies in it may be exchanged (sharded, gathered, loaded); "
      "where a Tensor is asked for it stands for what forward computes with");
  refuse_to_pickle(parameter, "a Parameter is not pickled; take its data");
  parameter.def("__deepcopy__", [](const ParameterPtr& p, const py::dict& memo) {
    const py::int_ key(reinterpret_cast<size_t>(p.get()));
    const py::object known = memo.attr("get")(key);
    if (!known.is_none()) return known;
    const py::object made = py::cast(released([&] { return deep_copied(*p); }));
    memo[key] = made;
    return made;
  });
  parameter.def(py::init(&parameter_of), "values"_a, "requires_grad"_a = true)
      .def_property(
          "data", [](const Parameter& p) { return p.value().detach(); },
          [](Parameter& p, const Tensor& data) {
            const bool is_same =  // p.data -= x sets what it got
                data.storage() == p.value().storage() && data.shape() == p.shape();
            if (!is_same) p.set_value(data);
          },
          "The value at rest, which optimizers change, not recorded. Setting it exchanges what is "
          "in the slot, as set_value");
  getter(parameter, "_at_rest", "The leaf that data detaches",
         [](const Parameter& p) { return p.value(); });
  parameter.def("tensor", &Parameter::tensor, "The tensor that forward computes with")
      .def_property_readonly("shape", &Parameter::shape)
      .def_property_readonly("dtype", &Parameter::dtype)
      .def_property_readonly("ndim", [](const Parameter& p) { return p.shape().ndim(); })
      .def_property_readonly("size", [](const Parameter& p) { return p.shape().product(); })
      .def("numel", [](const Parameter& p) { return p.shape().product(); })
      .def("__bool__", [](const Parameter& p) { return p.tensor().item() != 0; })
      .def_property(
          "grad", [](const Parameter& p) { return MaybeTensor(p.grad()); },
          [](const Parameter& p, const MaybeTensor& grad) { p.value().set_grad(grad); },
          "Gradient of the value, in its layout; None before backward")
      .def("clear_grad", &Parameter::clear_grad)
      .def_property("requires_grad", &Parameter::is_trainable, &Parameter::set_trainable,
                    "Freezes or thaws it; of a sharded model between steps")
      .def(
          "requires_grad_",
          [](const ParameterPtr& p, bool requires_grad) {
            p->set_trainable(requires_grad);
            return p;
          },
          "requires_grad"_a = true)
      .def("set_value", &Parameter::set_value, "value"_a,
           "Exchanges what lies in the slot; the shape stays")
      .def_property_readonly("is_materialized", &Parameter::is_materialized);
  def(parameter, "set_init(init)",
      "init(tensor) fills a tensor of any layout with the initial values, when it is materialized",
      [](Parameter& p, const py::function& init) {
        p.set_initializer(function_in<void, const Tensor&>(init));
      });
  parameter
      .def("materialize", &Parameter::materialize, Released(), "device"_a = cpu,
           "Gives it memory and its initial values; nothing the second time")
      .def("__repr__", [](const Parameter& p) {
        return concat("Parameter(", p.shape(), ", ", p.dtype(), p.is_trainable() ? "" : ", frozen",
                      p.is_materialized() ? "" : ", on meta", ')');
      });
}

using PlainModule = py::class_<Module, InPython<Module>, py::smart_holder>;

/// A member may take the place of another where forward finds members by name; the built-in ones
/// hold theirs.
bool is_free_to_change(const Module& module) {
  return dynamic_cast<const InPython<Module>*>(&module) != nullptr;
}

/// (name, tensor, persistent) of each.
std::vector<std::tuple<std::string, Tensor, bool>> tuples_of(
    const std::vector<NamedBuffer>& buffers) {
  std::vector<std::tuple<std::string, Tensor, bool>> all;
  for (const auto& [name, value, persistent] : buffers) all.emplace_back(name, value, persistent);
  return all;
}

/// Own parameter, child or buffer `name`, or None.
py::object member_called(const Module& self, const std::string& name) {
  for (const auto& [own, parameter] : self.own_parameters()) {
    if (own == name) return py::cast(parameter);
  }
  for (const auto& [own, child] : self.children()) {
    if (own == name) return py::cast(child);
  }
  for (const NamedBuffer& buffer : self.own_buffers()) {
    if (buffer.name == name) return py::cast(buffer.value);
  }
  return py::none();
}

/// Puts a parameter or a module in the place of such a member, or adds it.
void put_member(Module& self, const std::string& name, const py::object& member) {
  const py::object before = member_called(self, name);
  const bool had_parameter = py::isinstance<Parameter>(before);
  const bool is_same_kind =
      py::isinstance<Parameter>(member) ? had_parameter : py::isinstance<Module>(before);
  if (!is_same_kind && (had_parameter || py::isinstance<Module>(before))) self.remove(name);
  if (!py::isinstance<Parameter>(member)) {
    const auto child = kept_with_object("module", member);
    is_same_kind ? self.replace(name, child) : self.adopt(name, child);
    return;
  }
  const auto parameter = member.cast<ParameterPtr>();
  if (is_same_kind && is_free_to_change(self)) return self.replace(name, parameter);
  if (!is_same_kind) declare(self, name, parameter->shape(), {}, parameter->dtype());
  self.set_parameter(name, parameter);
}

void bind_members(PlainModule& module) {
  module.def_property_readonly("_is_made_in_python", &is_made_in_python)
      .def_property_readonly("_is_free_to_change", &is_free_to_change)
      .def("_remove", &Module::remove, "name"_a)
      .def("set_parameter", &Module::set_parameter, "name"_a, "parameter"_a,
           "Lets own parameter `name` be `parameter`: a tie")
      .def(
          "_declare",
          [](Module& self, const std::string& name, const Shape& shape, const py::object& init,
             DType dtype) {
            return declare(self, name, shape, function_in<void, const Tensor&>(init), dtype);
          },
          "name"_a, "shape"_a, "init"_a = py::none(), "dtype"_a = DType::f32);
  def(module, "_put(name, member)", "", &put_member);
  def(module, "adopt(name, child)", "Adds a child module",
      [](Module& self, const std::string& name, const ModuleObject& child) {
        self.adopt(name, kept_with_object("adopt", child));
      });
  module.def("_register_buffer", &Module::register_buffer, "name"_a, "tensor"_a, "persistent"_a)
      .def("_set_buffer", &Module::set_buffer, "name"_a, "tensor"_a)
      .def_property_readonly("_own_parameters",
                             [](const Module& self) { return self.own_parameters(); })
      .def_property_readonly("_own_buffers",
                             [](const Module& self) { return tuples_of(self.own_buffers()); })
      .def_property_readonly("_named_buffers",
                             [](const Module& self) { return tuples_of(self.named_buffers()); });
  module.def("_member", &member_called, "name"_a);
  def(module, "named_children()", "(name, module) of each child",
      [](const Module& self) { return self.children(); });
  module.def("_named_parameters", [](const Module& self) {
    std::vector<std::pair<std::vector<std::string>, ParameterPtr>> all;
    for (const NamedParameter& p : self.named_parameters()) {
      all.emplace_back(p.names, p.parameter);
    }
    return all;
  });
  def(module, "named_modules()",
      "(path, module) of this module ('') and all below it, parents first",
      [](const ModuleObject& self) {
        const auto tree = tree_of<Module>(self);
        std::vector<std::pair<std::string, std::shared_ptr<Module>>> all;
        for (const auto& [path, below] : tree->named_modules()) {
          all.emplace_back(path, part_of(tree, below));
        }
        return all;
      });
  def(module, "get_submodule(path)",
      "The module at a dotted path; ValueError names the first part that does not exist",
      [](const ModuleObject& self, const std::string& path) {
        const auto tree = tree_of<Module>(self);
        return part_of(tree, &tree->module(path));
      });
}

}  // namespace

py::object forward_beside(const py::object& self, const py::object& built_in_class) {
  py::object own = py::getattr(self, "forward", py::none());
  if (!PyMethod_Check(own.ptr())) return own;
  const py::object built_in = py::getattr(built_in_class, "forward", py::none());
  return built_in.is(py::handle(PyMethod_GET_FUNCTION(own.ptr()))) ? py::none() : own;
}

std::vector<NamedParameter> named_parameters_of(const py::object& given) {
  if (py::isinstance<Module>(given)) return given.cast<Module&>().named_parameters();
  std::vector<NamedParameter> all;
  // The result of Module.parameters() knows its names.
  const py::object list = py::getattr(given, "named", given);
  if (!py::hasattr(list, "__iter__")) {
    fail_type("parameters: they are a ", type_of(given),
              ", expected a Module or a list of Parameters");
  }
  for (const py::handle item : list) {
    const bool is_pair = PyTuple_Check(item.ptr());
    const py::handle parameter = is_pair ? item[py::int_(1)].cast<py::object>() : item;
    std::string name = is_pair ? item[py::int_(0)].cast<std::string>() : concat(all.size());
    if (!py::isinstance<Parameter>(parameter)) {
      fail_type("parameters: item ", all.size(), " is a ", type_of(item),
                ", expected a Parameter or a pair of a name and one");
    }
    check_value(parameter);
    all.push_back({{std::move(name)}, parameter.cast<ParameterPtr>()});
  }
  return all;
}

std::vector<Module*> modules_in(const char* what, const py::iterable& given) {
  std::vector<Module*> modules;
  for (const py::handle module : given) {
    if (!py::isinstance<Module>(module)) {
      fail_type(what, ": module is a ", type_of(module),
                ", expected a Module or a list of Modules");
    }
    check_value(module);
    modules.push_back(&module.cast<Module&>());
  }
  return modules;
}

std::vector<ParameterPtr> parameters_of(const py::object& given) {
  if (py::isinstance<Parameter>(given)) return {given.cast<ParameterPtr>()};
  std::vector<ParameterPtr> all;
  for (NamedParameter& named : named_parameters_of(given)) all.push_back(named.parameter);
  return all;
}

void bind_modules(py::module_& m) {
  bind_parameter(m);
  py::class_<HooksOfPython>(m, "HookHandle", "A handle of hooks that a module was given")
      .def("remove", &HooksOfPython::remove, "They run no more; nothing the second time");
  PlainModule module(m, "Module", py::dynamic_attr(), with_visible_children(),
                     "A part of a model: named parameters, named children, and forward(self, "
                     "*tensors), which a call runs with the hooks around it. Parameters and "
                     "modules assigned to attributes are its own");
  module.def(py::init<>())
      .def("__call__", &called,
           "forward with the hooks around it: a tensor, or a tuple where there are several. A "
           "forward written in Python takes keywords, None, numbers and strings too; hooks see the "
           "tensors, in the order of forward's parameters")
      .def("materialize", &Module::materialize, Released(), "device"_a = cpu,
           "Gives every declared parameter memory and its initial values: equal bits for any "
           "sharding. Call it on all ranks alike")
      .def("_to_device", py::overload_cast<Device>(&Module::to), Released(), "device"_a)
      .def("_to_dtype", py::overload_cast<DType>(&Module::to), Released(), "dtype"_a)
      .def("_allocate", &ModuleSharder::allocate, Released())
      .def_property_readonly("_is_sharded", &ModuleSharder::is_sharded)
      .def("_add_hooks", &add_hooks, "before"_a, "after"_a, "of_module"_a)
      .def("set_recompute", &Module::set_recompute, "recompute"_a = true,
           "kept"_a = std::vector<std::string>(),
           "Activation checkpointing: forward saves its inputs only and runs again in backward. "
           "`kept` names ops whose results are saved too, such as costly_ops()");
  def(module, "offload_activations(tier)",
      "Sets where recomputation keeps what it saves for backward, below this module too: "
      "\"disk:DIR\" (files without a name), True (the host), False. The same bits",
      [](Module& self, const std::variant<bool, std::string>& tier) {
        self.offload_activations(tier_from("offload_activations: tier", tier));
      });
  def(module, "train(mode=True)", "Sets the mode of this module and all below it",
      [](const ModuleObject& self, bool mode) {
        self.cast<Module&>().set_training(mode);
        return self;
      });
  def(module, "eval()", "train(False): `Dropout` passes everything", [](const ModuleObject& self) {
    self.cast<Module&>().set_training(false);
    return self;
  });
  module.def_property_readonly("training", &Module::is_training);
  refuse_to_pickle(module,
                   "a Module is not pickled; make another one and load_state_dict() into it what "
                   "state_dict() gives");
  bind_members(module);
  def(m, "recompute(function, *given, *, kept=[], offload=False)",
      "Runs function(*tensors) without recording it, and again, recorded, in backward: memory for "
      "time. Random numbers are equal in both runs. `kept` names ops whose results are saved and "
      "not computed again. `offload`: as Module.offload_activations",
      [](const py::function& function, const py::args& given, const std::vector<std::string>& ops,
         const std::variant<bool, std::string>& offload) {
        const Tensors inputs = tensors_in("module", given, "input");
        const auto run = [kept = Callable(function)](const Tensors& again) {
          const Locked lock;
          return tensors_of("recompute", kept.function()(*for_python(again)));
        };
        return one_or_all(released(
            [&] { return recompute(run, inputs, ops, tier_from("recompute: offload", offload)); }));
      });
}

}  // namespace weft::python
