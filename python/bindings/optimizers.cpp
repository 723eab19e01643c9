// SPDX-License-Identifier: Apache-2.0
#include "weft/optimizers.h"

#include "python/bindings/callable.h"
#include "python/bindings/lock.h"
#include "python/bindings/modules.h"
#include "python/bindings/pickling.h"
#include "weft/error.h"

namespace weft::python {

static DecayPredicate predicate_of(const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](const NamedParameter& p) {
    const Locked lock;
    return kept(p.name(), p.parameter).cast<bool>();
  };
}

static void bind_base(py::module_& m) {
  py::class_<Optimizer> bound(
      m, "Optimizer",
      "Changes parameters by their gradients. It holds their slots, so they may "
      "be sharded, gathered or loaded meanwhile");
  refuse_to_pickle(bound,
                   "an Optimizer is neither pickled nor copied; make another one and "
                   "load_state_dict() into it what weft.state_dict() gives");
  bound
      .def(
          "step",
          [](Optimizer& o, const std::optional<Tensor>& gradient_scale) {
            o.step(gradient_scale.value_or(Tensor()));
          },
          Released(), py::arg("gradient_scale") = py::none(),
          "One update by the gradients times the one element of gradient_scale (clip_scale gives "
          "one). Parameters without a gradient stay; ValueError when none has one")
      .def(
          "zero_grad",
          [](Optimizer& o, bool set_to_none) {
            if (!set_to_none) {
              fail("zero_grad: gradients are cleared, never zeros; leave out set_to_none=False");
            }
            o.zero_grad();
          },
          Released(), py::arg("set_to_none") = true, "Clears the gradients of its parameters")
      .def_property("lr", &Optimizer::learning_rate, &Optimizer::set_learning_rate,
                    "The learning rate")
      .def_property_readonly(
          "names",
          [](const Optimizer& o) {
            std::vector<std::string> names;
            for (const auto& p : o.parameters()) names.push_back(p.name());
            return names;
          },
          "Of the trainable parameters it was given")
      .def_property_readonly("moments", &Optimizer::moments, "Names of what it remembers of each")
      .def(
          "state",
          [](Optimizer& o, size_t parameter) {
            if (parameter >= o.parameters().size()) {
              fail("state: parameter ", parameter, " of ", o.parameters().size());
            }
            return released([&] { return o.state(parameter); });
          },
          py::arg("parameter"),
          "What it remembers of parameter number `parameter`, in its layout: a tensor for each of "
          "`moments`. Change them in place only")
      .def(
          "steps",
          [](const Optimizer& o, size_t parameter) {
            if (parameter >= o.parameters().size()) {
              fail("steps: parameter ", parameter, " of ", o.parameters().size());
            }
            return o.steps(parameter);
          },
          py::arg("parameter"), "How many updates parameter number `parameter` has had");
}

static void bind_kinds(py::module_& m) {
  using Betas = std::pair<double, double>;
  py::class_<AdamW, Optimizer>(m, "AdamW",
                               "Adam with decoupled weight decay (Loshchilov and Hutter, 2019)")
      .def(py::init([](const py::object& parameters, double lr, Betas betas, double eps,
                       double weight_decay, const py::object& decays, DType moments, bool offload) {
             return std::make_unique<AdamW>(named_parameters_of(parameters),
                                            AdamWOptions{.learning_rate = lr,
                                                         .beta1 = betas.first,
                                                         .beta2 = betas.second,
                                                         .eps = eps,
                                                         .weight_decay = weight_decay,
                                                         .decays = predicate_of(decays),
                                                         .moments = moments,
                                                         .offload = offload});
           }),
           py::arg("parameters"), py::arg("lr") = 1e-3, py::arg("betas") = Betas(0.9, 0.999),
           py::arg("eps") = 1e-8, py::arg("weight_decay") = 0.01, py::kw_only(),
           py::arg("decays") = py::none(), py::arg("moments") = DType::f32,
           py::arg("offload") = false,
           "parameters: a module, its named_parameters() or parameters(). decays(name, parameter) "
           "says which decay (all unless given); `moments` is the dtype of m and v; "
           "`offload`: they rest in pinned memory of the host");
  py::class_<SGD, Optimizer>(m, "SGD", "Gradient descent, with momentum")
      .def(py::init([](const py::object& parameters, double lr, double momentum,
                       double weight_decay, const py::object& decays, bool offload) {
             return std::make_unique<SGD>(named_parameters_of(parameters),
                                          SGDOptions{.learning_rate = lr,
                                                     .momentum = momentum,
                                                     .weight_decay = weight_decay,
                                                     .decays = predicate_of(decays),
                                                     .offload = offload});
           }),
           py::arg("parameters"), py::arg("lr") = 1e-2, py::arg("momentum") = 0.0,
           py::arg("weight_decay") = 0.0, py::kw_only(), py::arg("decays") = py::none(),
           py::arg("offload") = false);
  py::class_<Lamb, Optimizer>(m, "Lamb", "Layer-wise adapted Adam (You et al., 2020)")
      .def(py::init([](const py::object& parameters, double lr, Betas betas, double eps,
                       double weight_decay, const py::object& decays) {
             return std::make_unique<Lamb>(named_parameters_of(parameters),
                                           LambOptions{.learning_rate = lr,
                                                       .beta1 = betas.first,
                                                       .beta2 = betas.second,
                                                       .eps = eps,
                                                       .weight_decay = weight_decay,
                                                       .decays = predicate_of(decays)});
           }),
           py::arg("parameters"), py::arg("lr") = 1e-3, py::arg("betas") = Betas(0.9, 0.999),
           py::arg("eps") = 1e-6, py::arg("weight_decay") = 0.01, py::kw_only(),
           py::arg("decays") = py::none());
}

void bind_optimizers(py::module_& m) {
  bind_base(m);
  bind_kinds(m);
  m.def(
      "gradient_norm",
      [](const py::object& parameters) {
        const auto all = parameters_of(parameters);
        return released([&] { return gradient_norm(all); });
      },
      py::arg("parameters"),
      "sqrt of the sum of squares of all gradients, whatever their layouts and meshes: one "
      "element, "
      "float32, equal on each rank. One all-reduce");
  m.def("clip_scale", &clip_scale, Released(), py::arg("norm"), py::arg("max_norm"),
        "min(1, max_norm / (norm + 1e-6)): what Optimizer.step takes, so that clipping is no pass "
        "over the gradients");
  m.def(
      "clip_grad_norm_",
      [](const py::object& parameters, double max_norm) {
        const auto all = parameters_of(parameters);
        return released([&] { return clip_grad_norm(all, max_norm); });
      },
      py::arg("parameters"), py::arg("max_norm"),
      "Scales all gradients so that their norm is at most max_norm; gives the norm before");
}

}  // namespace weft::python
