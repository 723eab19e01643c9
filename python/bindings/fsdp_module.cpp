// SPDX-License-Identifier: Apache-2.0
#include "weft/fsdp_module.h"

#include <range/v3/numeric/accumulate.hpp>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "python/bindings/modules.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/memory_budget.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft::python {

/// Elements of a collective's memory as a flat tensor.
static Tensor flat(const void* data, int64_t count, DType dtype, Device device) {
  const auto bytes = static_cast<size_t>(count) * size_of(dtype);
  return tensor_in(Storage::wrap(const_cast<void*>(data), bytes, device), 0, {count}, dtype, {});
}

/// Calls a collective written in Python, comm(output, input, group, counts), for each piece, and
/// waits for what it returns if that can be waited for.
static CustomCollective collective_of(const py::object& given, bool gathers) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given)), gathers](const Communicator& ranks,
                                                         std::span<const Piece> pieces) {
    const NoGrad no_grad;
    for (const Piece& piece : pieces) {
      const int64_t whole = ranges::accumulate(piece.counts, int64_t{0});
      const int64_t own = piece.counts[static_cast<size_t>(ranks.rank())];
      const Tensor input = flat(piece.send, gathers ? own : whole, piece.dtype, piece.device);
      const Tensor output = gathers ? flat(piece.recv, whole, piece.dtype, piece.device)
                                    : empty({own}, {.dtype = piece.dtype, .device = piece.device});
      {
        const Locked lock;
        const std::vector<int64_t> counts(piece.counts.begin(), piece.counts.end());
        const py::object work = kept(output, input, ranks, counts);
        if (py::hasattr(work, "wait")) work.attr("wait")();
      }
      if (gathers) continue;
      const Tensor sum = flat(piece.recv, own, piece.recv_dtype, piece.device);
      copy_(sum, piece.accumulate ? sum + output.to(sum.dtype()) : output.to(sum.dtype()));
    }
    return Work();
  };
}

static void bind_handles(py::module_& m) {
  py::class_<UnshardHandle>(m, "UnshardHandle", "An unshard that was started")
      .def("wait", &UnshardHandle::wait, Released(), "Returns when the parameters are there");
  py::class_<GradientReductionHandle>(m, "GradientReductionHandle",
                                      "The reductions that finalize_backward started")
      .def("wait", &GradientReductionHandle::wait, Released(),
           "Ends the step: gradients can be read. RuntimeError after reset_iter_state");
  py::class_<Event>(m, "Event", "A point in a stream's work")
      .def(py::init<>())
      .def(
          "record",
          [](Event& event, Device device) { event = Event::record(current_stream(device)); },
          "device"_a = cpu, "Marks what the current stream of `device` has been given so far")
      .def("synchronize", &Event::synchronize, Released(), "Returns when the point is reached")
      .def("query", &Event::is_reached, "Whether it is reached");
}

/// Binds lists of unsharded and sharded parameters.
static void bind_parameters(py::class_<FsdpModule>& module) {
  module.def(py::init<Module&>(), py::keep_alive<1, 2>(), "module"_a)
      .def_static("is_sharded", &FsdpModule::is_sharded, "module"_a)
      .def("unshard", &FsdpModule::unshard, Released(), "async_op"_a = false)
      .def("reshard", &FsdpModule::reshard, Released())
      .def("set_reshard_after_forward", &FsdpModule::set_reshard_after_forward,
           "reshard_after_forward"_a, "recurse"_a = true)
      .def("set_reshard_after_backward", &FsdpModule::set_reshard_after_backward,
           "reshard_after_backward"_a, "recurse"_a = true)
      .def("set_unshard_in_backward", &FsdpModule::set_unshard_in_backward, "unshard_in_backward"_a)
      .def("set_keep_unsharded_storage", &FsdpModule::set_keep_unsharded_storage, "keep"_a,
           "recurse"_a = true)
      .def(
          "set_custom_all_gather",
          [](FsdpModule& self, const py::object& comm) {
            self.set_custom_all_gather(collective_of(comm, true));
          },
          "comm"_a)
      .def("set_post_optim_event", &FsdpModule::set_post_optim_event, "event"_a);
  const auto takes_modules = [&](const char* name,
                                 void (FsdpModule::*set)(const std::vector<Module*>&)) {
    module.def(
        name,
        [set](FsdpModule& self, const py::iterable& given) { (self.*set)(modules_in(given)); },
        "modules"_a);
  };
  takes_modules("set_modules_to_forward_prefetch", &FsdpModule::set_modules_to_forward_prefetch);
  takes_modules("set_modules_to_backward_prefetch", &FsdpModule::set_modules_to_backward_prefetch);
}

static void bind_gradients(py::class_<FsdpModule>& module) {
  module
      .def("set_requires_gradient_sync", &FsdpModule::set_requires_gradient_sync,
           "requires_gradient_sync"_a, "recurse"_a = true)
      .def("set_requires_all_reduce", &FsdpModule::set_requires_all_reduce, "requires_all_reduce"_a,
           "recurse"_a = true)
      .def(
          "set_all_reduce_hook",
          [](FsdpModule& self, const py::object& hook) {
            self.set_all_reduce_hook(function_in<void, const Tensor&>(hook));
          },
          "hook"_a)
      .def("set_gradient_divide_factor", &FsdpModule::set_gradient_divide_factor, "factor"_a)
      .def("set_force_sum_reduction_for_comms", &FsdpModule::set_force_sum_reduction_for_comms,
           "enable"_a)
      .def("set_is_last_backward", &FsdpModule::set_is_last_backward, "is_last_backward"_a)
      .def(
          "set_custom_reduce_scatter",
          [](FsdpModule& self, const py::object& comm) {
            self.set_custom_reduce_scatter(collective_of(comm, false));
          },
          "comm"_a)
      .def("set_reduce_scatter_unused_params", &FsdpModule::set_reduce_scatter_unused_params,
           "reduce_scatter_unused_params"_a, "recurse"_a = true)
      .def("set_manual_backward_finalization", &FsdpModule::set_manual_backward_finalization,
           "enabled"_a)
      .def("finalize_backward", &FsdpModule::finalize_backward, Released(), "async_op"_a = false)
      .def("reset_iter_state", &FsdpModule::reset_iter_state, Released());
}

/// Counts of the ranks' parts; equal ones by default.
static std::vector<int64_t> counts_of(const Communicator& group, const Tensor& part,
                                      const std::optional<std::vector<int64_t>>& counts) {
  return counts.value_or(std::vector<int64_t>(static_cast<size_t>(group.size()), part.numel()));
}

static void check_flat(const char* what, const char* name, const Tensor& x, int64_t count) {
  if (x.block().is_dense() && !x.is_sharded() && x.numel() == count) return;
  fail(what, ": ", name, " is ", x.shape(), ", expected a dense tensor of one device of ", count,
       " elements");
}

static void bind_collectives(py::module_& m) {
  m.def(
      "all_reduce",
      [](const Tensor& tensor, const Communicator& group) {
        check_flat("all_reduce", "tensor", tensor, tensor.numel());
        const int64_t count[] = {tensor.numel()};
        void* data = tensor.block().data;
        group
            .all_reduce(std::vector<Piece>{{.send = data,
                                            .recv = data,
                                            .dtype = tensor.dtype(),
                                            .counts = count,
                                            .device = tensor.device()}},
                        ReduceOp::sum)
            .wait();
        tensor.storage()->mark_changed();
      },
      Released(), "tensor"_a, "group"_a,
      "Replaces the elements of a tensor of one device by their sums over the group's ranks");
  const auto moves = [](const char* what, bool gathers) {
    return [what, gathers](const Tensor& output, const Tensor& input, const Communicator& group,
                           const std::optional<std::vector<int64_t>>& given) {
      const std::vector<int64_t> counts = counts_of(group, gathers ? input : output, given);
      if (static_cast<int>(counts.size()) != group.size()) {
        fail(what, ": number of counts is ", counts.size(), ", expected ", group.size());
      }
      const int64_t whole = ranges::accumulate(counts, int64_t{0});
      const int64_t own = counts[static_cast<size_t>(group.rank())];
      check_flat(what, "output", output, gathers ? whole : own);
      check_flat(what, "input", input, gathers ? own : whole);
      const std::vector<Piece> pieces{{.send = input.block().data,
                                       .recv = output.block().data,
                                       .dtype = input.dtype(),
                                       .counts = counts,
                                       .recv_dtype = output.dtype(),
                                       .device = input.device()}};
      (gathers ? group.all_gather(pieces) : group.reduce_scatter(pieces, ReduceOp::sum)).wait();
      output.storage()->mark_changed();
    };
  };
  m.def("all_gather_into_tensor", moves("all_gather_into_tensor", true), Released(),
        "output_tensor"_a, "input_tensor"_a, "group"_a, "counts"_a = py::none(),
        "Writes the parts of the group's ranks, of `counts` elements (equal ones by default), one "
        "after the other into `output_tensor`");
  m.def(
      "reduce_scatter_tensor", moves("reduce_scatter_tensor", false), Released(), "output_tensor"_a,
      "input_tensor"_a, "group"_a, "counts"_a = py::none(),
      "Writes this rank's part, of `counts` elements (equal ones by default), of the sum over the "
      "group's ranks into `output_tensor`");
}

/// Calls a method as `Module.__call__` calls forward: with the hooks around it.
static py::object called_as_forward(const ModuleObject& module, const py::function& method,
                                    const py::args& given, const py::kwargs& named) {
  auto& self = module.cast<Module&>();
  const ArgumentsPtr arguments = kept_arguments(method, given, named);
  const auto run = [arguments, kept = Callable(method)](const Tensors& inputs) {
    const Locked lock;
    return tensors_of("forward method", arguments->pass(kept.function(), inputs));
  };
  return one_or_all(released([&] { return self.call(arguments->tensors(), run); }));
}

void bind_fsdp_module(py::module_& m) {
  bind_handles(m);
  py::class_<FsdpModule> module(m, "_FsdpModule");
  bind_parameters(module);
  bind_gradients(module);
  bind_collectives(m);
  m.def("_call_as_forward", &called_as_forward);
  m.def(
      "share_comm_ctx",
      [](const py::iterable& modules) {
        const std::vector<Module*> all = modules_in(modules);
        released([&] { share_comm_ctx(all); });
      },
      "modules"_a,
      "Lets sharded models, e.g. the stages of a pipeline, use the same buffers and streams. Each "
      "is the outermost sharded module of its model");
}

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
          "model"_a, "blocks"_a, "mesh"_a, py::kw_only(), "strategy"_a = "full_shard",
          "mp_policy"_a = py::none(),
          "Sets what the blocks save, and shards them and the model. Gives the model");
}

/// What else concerns the memory and the values of a module's parameters.
static void bind_checks(py::module_& m) {
  m.def("costly_ops", &costly_ops,
        "Names of the ops that compute matrix products and attention, to be kept by a "
        "recomputation");
  m.def("check_replicas", &check_replicas, Released(), "module"_a,
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
      "build"_a, "mesh"_a, "memory"_a, py::kw_only(), "directory"_a = "", "micro_steps"_a = 1,
      "strategy"_a = "full_shard", "mp_policy"_a = py::none(),
      "Chooses what blocks save for backward, whether parameters stay gathered, how many units are "
      "gathered early, whether the parts of blocks are units and, with a directory, what rests on "
      "disk there, so that a training step with AdamW takes at most `memory` bytes of each rank. "
      "build(mesh) gives a model over a mesh like `mesh.root()`, its blocks in the order of "
      "forward, and a function that runs forward and backward of one micro-step on device "
      "\"meta\"; it is called several times. ValueError with the least that would fit where "
      "nothing does. Computed without communication; ranks that call it alike choose alike");
}

}  // namespace weft::python
