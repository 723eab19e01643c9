// SPDX-License-Identifier: Apache-2.0
#include "weft/state_dict.h"

#include "python/bindings/lock.h"
#include "python/bindings/modules.h"
#include "weft/error.h"

namespace weft::python {

using Numbers = std::map<std::string, int64_t>;

static void bind_training_state(py::module_& m) {
  py::class_<TrainingState>(m, "TrainingState",
                            "What is saved and loaded together, part by part: models, optimizers, "
                            "tensors, and numbers. Keys are '<part>/<key>'")
      .def(py::init<>())
      .def("add", py::overload_cast<const std::string&, Module&>(&TrainingState::add),
           py::keep_alive<1, 3>(), py::arg("name"), py::arg("part"),
           "ValueError when there is a part of that name, or it has a slash")
      .def("add", py::overload_cast<const std::string&, Optimizer&>(&TrainingState::add),
           py::keep_alive<1, 3>(), py::arg("name"), py::arg("part"))
      .def("add", py::overload_cast<const std::string&, const Tensor&>(&TrainingState::add),
           py::arg("name"), py::arg("part"))
      .def(
          "add_random",
          [](TrainingState& self, const std::string& name) {
            // Uses the state of the calling rank: this object may outlive the rank that made it.
            self.add(name, {.give =
                                [] {
                                  const RandomState& random = Context::current().random;
                                  return StateDict{
                                      {},
                                      {{"seed", static_cast<int64_t>(random.seed)},
                                       {"stream", static_cast<int64_t>(random.stream)}}};
                                },
                            .take =
                                [](const Numbers& numbers) {
                                  Context::current().random = {
                                      static_cast<uint64_t>(numbers.at("seed")),
                                      static_cast<uint64_t>(numbers.at("stream"))};
                                }});
          },
          py::arg("name") = "random", "The state of this rank's random numbers")
      .def(
          "add_numbers",
          [](TrainingState& self, const std::string& name, const py::function& give,
             const py::function& take, bool takes_any) {
            self.add(name, {.give =
                                [kept = Callable(give)] {
                                  const Locked lock;
                                  return StateDict{{}, kept().cast<Numbers>()};
                                },
                            .take =
                                [kept = Callable(take)](const Numbers& numbers) {
                                  const Locked lock;
                                  kept(numbers);
                                },
                            .takes_any_numbers = takes_any});
          },
          py::arg("name"), py::arg("give"), py::arg("take"), py::kw_only(),
          py::arg("takes_any") = false,
          "Whole numbers by name, equal on all ranks: give() returns them as a dict, take(dict) "
          "gets them back after a load; with takes_any whatever their names are in the checkpoint")
      .def("state_dict", &TrainingState::state_dict, Released());
}

void bind_state_dicts(py::module_& m) {
  py::class_<StateDict>(m, "StateDict",
                        "What something remembers, by name: `tensors`, which share their elements "
                        "with it, each in its layout, and whole `numbers`, equal on all ranks")
      .def(py::init([](std::map<std::string, Tensor> tensors, Numbers numbers) {
             return StateDict{std::move(tensors), std::move(numbers)};
           }),
           py::arg("tensors") = std::map<std::string, Tensor>{}, py::arg("numbers") = Numbers{})
      .def_readonly("tensors", &StateDict::tensors)
      .def_readwrite("numbers", &StateDict::numbers);
  py::class_<SkippedKeys>(m, "SkippedKeys", "Keys that were not loaded")
      .def_readonly("missing", &SkippedKeys::missing, "The receiver has them, the dict does not")
      .def_readonly("unexpected", &SkippedKeys::unexpected,
                    "The dict has them, the receiver does not")
      .def("__repr__", [](const SkippedKeys& skipped) {
        const py::list missing = py::cast(skipped.missing),
                       unexpected = py::cast(skipped.unexpected);
        return concat("SkippedKeys(missing=", py::repr(missing).cast<std::string>(),
                      ", unexpected=", py::repr(unexpected).cast<std::string>(), ")");
      });
  m.def(
      "state_dict", [](const Module& module) { return state_dict(module); }, Released(),
      py::arg("part"), "Of a module or an optimizer; its tensors alias. No traffic");
  m.def(
      "state_dict", [](Optimizer& optimizer) { return state_dict(optimizer); }, Released(),
      py::arg("part"));
  const auto bind_load = [&](auto* type) {
    using Part = std::remove_pointer_t<decltype(type)>;
    m.def(
        "load_state_dict",
        [](Part& part, const StateDict& from, bool strict) {
          if (!strict) return load_common_keys(part, from);
          load_state_dict(part, from);
          return SkippedKeys();
        },
        Released(), py::arg("part"), py::arg("state"), py::kw_only(), py::arg("strict") = true,
        "Copies the elements into a module or an optimizer; they move where the layouts differ. "
        "ValueError, before anything is changed, names keys that are missing or unexpected, and "
        "shapes that do not fit. strict=False loads what both have and gives the others");
  };
  bind_load(static_cast<Module*>(nullptr));
  bind_load(static_cast<Optimizer*>(nullptr));
  bind_training_state(m);
}

}  // namespace weft::python
