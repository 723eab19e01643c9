// SPDX-License-Identifier: Apache-2.0
#include "weft/memory_budget.h"

#include "python/bindings/lock.h"
#include "python/bindings/modules.h"
#include "weft/error.h"

namespace weft::python {

static StepModel model_of(const py::object& model, const py::iterable& blocks) {
  return {.model = tree_of<Module>(model.cast<ModuleObject>()), .blocks = modules_in(blocks)};
}

/// What build(mesh) returns: a model, its blocks and a function.
static StepModel built_by(const Callable& build, const DeviceMesh& mesh) {
  const Locked lock;
  const py::object made = build(mesh);
  if (!py::isinstance<py::tuple>(made) || py::len(made) != 3) {
    throw py::type_error(concat("plan_memory: build returns a ", type_of(made),
                                ", expected a tuple of a model, its blocks and a function that "
                                "runs a micro-step"));
  }
  const auto parts = made.cast<py::tuple>();
  StepModel step = model_of(parts[0], parts[1].cast<py::iterable>());
  step.micro_step = [run = Callable(py::function(parts[2]))] {
    const Locked held;
    run();
  };
  return step;
}

static FullyShardOptions sharding_of(const std::string& strategy,
                                     const std::optional<MixedPrecision>& precision) {
  return {.strategy = Strategy::named(strategy), .precision = precision.value_or(MixedPrecision())};
}

/// As the `offload` of an optimizer takes it.
static py::object named_tier(const Tier& tier) {
  if (!tier.offloads()) return py::bool_(false);
  return tier.is_host() ? py::object(py::bool_(true)) : py::object(py::str(concat(tier)));
}

static void bind_plan(py::module_& m) {
  py::class_<MemoryPlan>(m, "MemoryPlan", "The fastest choice whose predicted peak fits a budget")
      .def_readonly("allowed", &MemoryPlan::allowed, "The bytes of the budget")
      .def_readonly("peak", &MemoryPlan::peak, "The most bytes that a step takes")
      .def_readonly("seconds", &MemoryPlan::seconds, "The predicted time of a step")
      .def_property_readonly(
          "blocks", [](const MemoryPlan& plan) { return plan.choice.blocks; },
          "What each block saves for backward: full (its inputs), attention, op (products too) or "
          "none (everything), with +offload behind it where that rests on disk")
      .def_property_readonly(
          "state", [](const MemoryPlan& plan) { return named_tier(plan.choice.state); },
          "Where the optimizer's state rests, as AdamW's `offload` takes it")
      .def_property_readonly(
          "fine_units", [](const MemoryPlan& plan) { return plan.choice.fine_units; },
          "Whether attention and feed-forward of a block are sharded apart")
      .def("__str__", &MemoryPlan::text)
      .def(
          "apply",
          [](const MemoryPlan& plan, const py::object& model, const py::iterable& blocks,
             const DeviceMesh& mesh, const std::string& strategy,
             const std::optional<MixedPrecision>& precision) {
            const StepModel step = model_of(model, blocks);
            released([&] { plan.apply(step, mesh, sharding_of(strategy, precision)); });
            return model;
          },
          py::arg("model"), py::arg("blocks"), py::arg("mesh"), py::kw_only(),
          py::arg("strategy") = "full_shard", py::arg("mp_policy") = py::none(),
          "Sets what the blocks save, and shards them and the model. Gives the model");
}

/// What else concerns the memory and the values of a module's parameters.
static void bind_checks(py::module_& m) {
  m.def("costly_ops", &costly_ops,
        "Names of the ops that compute matrix products and attention, to be kept by a "
        "recomputation");
  m.def("check_replicas", &check_replicas, Released(), py::arg("module"),
        "Compares by hash the parameters that several ranks of a mesh hold alike. ValueError, on "
        "all ranks, names the first that differs and two ranks. Call it on all ranks");
}

void bind_memory_budget(py::module_& m) {
  bind_checks(m);
  bind_plan(m);
  m.def(
      "plan_memory",
      [](const py::function& build, const DeviceMesh& mesh, int64_t memory,
         const std::string& directory, int micro_steps, const std::string& strategy,
         const std::optional<MixedPrecision>& precision) {
        const Callable kept(build);
        return released([&] {
          return plan_memory([&](const DeviceMesh& root) { return built_by(kept, root); }, mesh,
                             sharding_of(strategy, precision), {memory, directory},
                             {.micro_steps = micro_steps});
        });
      },
      py::arg("build"), py::arg("mesh"), py::arg("memory"), py::kw_only(),
      py::arg("directory") = "", py::arg("micro_steps") = 1, py::arg("strategy") = "full_shard",
      py::arg("mp_policy") = py::none(),
      "Chooses what blocks save for backward, whether parameters stay gathered, how many units "
      "are gathered early, whether the parts of blocks are units and, with a directory, what rests "
      "on disk there, so that a training step "
      "with AdamW takes at most `memory` bytes of each rank. build(mesh) gives a model over a mesh "
      "like `mesh.root()`, its blocks in the order of forward, and a function that runs forward "
      "and "
      "backward of one micro-step on device \"meta\"; it is called several times. ValueError with "
      "the least that would fit where nothing does. Computed without communication; ranks that "
      "call it alike choose alike");
}

}  // namespace weft::python
