// SPDX-License-Identifier: Apache-2.0
#include "weft/fsdp_module.h"

#include <range/v3/numeric/accumulate.hpp>

#include "python/bindings/bindings.h"
#include "python/bindings/modules.h"
#include "weft/context.h"
#include "weft/memory_budget.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/optimizer_named.h"

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
      .def("query", &Event::is_reached, "True when it is reached");
}

/// A method that starts something, and gives its handle if `async_op`.
template <class Handle> static auto started(Handle (FsdpModule::*start)(bool)) {
  return [start](Module& module, bool async_op) {
    const std::optional<Handle> handle = (FsdpModule(module).*start)(async_op);
    return async_op ? handle : std::nullopt;
  };
}

using Methods = py::class_<FsdpModule>;

/// Binds a method of FsdpModule as one of a Module.
template <class... Args>
static void def(Methods& methods, const Signature& signature, void (FsdpModule::*method)(Args...),
                const char* text) {
  def(methods, signature, text, Released(),
      [method](Module& module, Args... args) { (FsdpModule(module).*method)(args...); });
}

static void bind_parameters(Methods& methods) {
  using F = FsdpModule;
  def(methods, "unshard(async_op=False)",
      "Gathers the module's parameters, without those of modules below; the next forward finds "
      "them unsharded. `async_op` gives a handle, whose wait() returns when they are there",
      Released(), started(&F::unshard));
  def(methods, "reshard()", &F::reshard,
      "Frees the unsharded parameters, also those that the strategy keeps");
  def(methods, "set_reshard_after_forward(reshard_after_forward, recurse=True)",
      "Replaces the option of fully_shard, also for the outermost module and in evaluation",
      [](Module& module, const py::object& reshards, bool recurses) {
        if (!PyBool_Check(reshards.ptr())) {
          fail("set_reshard_after_forward: value is of type ", Py_TYPE(reshards.ptr())->tp_name,
               ", expected a bool; fully_shard takes an axis or a number of ranks");
        }
        F(module).set_reshard_after_forward(reshards.cast<bool>(), recurses);
      });
  def(methods, "set_reshard_after_backward(reshard_after_backward, *, recurse=True)",
      &F::set_reshard_after_backward,
      "False: parameters stay unsharded after backward, until they change or reshard()");
  def(methods, "set_unshard_in_backward(unshard_in_backward)", &F::set_unshard_in_backward,
      "False: backward does not unshard, and raises where it reads a parameter");
  def(methods, "set_keep_unsharded_storage(keep, *, recurse=True)", &F::set_keep_unsharded_storage,
      "True: resharding keeps the memory, at the same address, for the next unshard");
  def(methods, "set_post_optim_event(event)", &F::set_post_optim_event,
      "The next unshard after an update waits for this Event in place of the current stream");
  const auto takes_modules = [&](const char* name, void (F::*set)(const std::vector<Module*>&),
                                 const char* text) {
    def(methods, concat(name, "(modules)"), text,
        [set, name](Module& module, const py::iterable& given) {
          (F(module).*set)(modules_in(name, given));
        });
  };
  takes_modules("set_modules_to_forward_prefetch", &F::set_modules_to_forward_prefetch,
                "The modules to unshard early at this one's forward; [] for the recorded order");
  takes_modules("set_modules_to_backward_prefetch", &F::set_modules_to_backward_prefetch,
                "The modules to unshard early at this one's backward; [] for the recorded order");
  def(methods, "set_custom_all_gather(comm)",
      "comm(output_tensor, input_tensor, group, counts) gathers in place of weft, once for each "
      "parameter: flat tensors, and how many elements each rank sends. None restores weft's",
      [](Module& module, const py::object& comm) {
        FsdpModule(module).set_custom_all_gather(collective_of(comm, true));
      });
}

static void bind_gradients(Methods& methods) {
  using F = FsdpModule;
  def(methods, "set_requires_gradient_sync(requires_gradient_sync, *, recurse=True)",
      &F::set_requires_gradient_sync,
      "False: backwards reduce nothing, and add unsharded gradients");
  def(methods, "set_requires_all_reduce(requires_all_reduce, *, recurse=True)",
      &F::set_requires_all_reduce,
      "False: as in no_sync, the reductions of the last micro-step wait");
  def(methods, "set_gradient_divide_factor(factor)", &F::set_gradient_divide_factor,
      "The module's own gradients are divided by it after their reduction. 1 gives the gradients "
      "of the loss over the whole batch");
  def(methods, "set_reduce_scatter_divide_factor(factor)", &F::set_gradient_divide_factor,
      "set_gradient_divide_factor");
  def(methods, "set_force_sum_reduction_for_comms(enable)", &F::set_force_sum_reduction_for_comms,
      "True holds always; ValueError for False");
  def(methods, "set_is_last_backward(is_last_backward)", &F::set_is_last_backward,
      "False: the end of a backward leaves reductions under way, and gradients cannot be read "
      "until the last backward");
  def(methods, "set_reduce_scatter_unused_params(reduce_scatter_unused_params, *, recurse=True)",
      &F::set_reduce_scatter_unused_params, "True holds always; ValueError for False");
  def(methods, "set_manual_backward_finalization(enabled)", &F::set_manual_backward_finalization,
      "Set on the outermost module. True: no backward ends the step, finalize_backward() does");
  def(methods, "finalize_backward(*, async_op=False)",
      "Completes the reductions of the backwards before. `async_op` gives a handle; gradients "
      "cannot be read before its wait()",
      Released(), started(&F::finalize_backward));
  def(methods, "reset_iter_state()", &F::reset_iter_state,
      "Call it on the outermost module after an exception in forward or backward: ends what is "
      "under way, reshards, and clears all gradients");
  def(methods, "set_all_reduce_hook(hook, *, stream=None)",
      "hook(gradients) gets the reduced gradients of a step as a flat tensor, and may change it in "
      "place, before they are added to those of earlier steps. None removes it",
      [](Module& module, const py::object& hook, const py::object& stream) {
        if (!stream.is_none()) {
          fail(
              "set_all_reduce_hook: stream is given, expected None; the hook runs on the stream of "
              "the reductions");
        }
        FsdpModule(module).set_all_reduce_hook(function_in<void, const Tensor&>(hook));
      });
  def(methods, "set_custom_reduce_scatter(comm)",
      "comm(output_tensor, input_tensor, group, counts) reduces in place of weft, once for each "
      "gradient: flat tensors, and how many elements each rank gets. None restores weft's",
      [](Module& module, const py::object& comm) {
        FsdpModule(module).set_custom_reduce_scatter(collective_of(comm, false));
      });
}

/// Binds a method of PyTorch's that has nothing to do here, with `argument` as its first one.
template <class... More>
static void refuse(Methods& methods, const Signature& signature, const char* argument,
                   const std::string& reason) {
  const auto refused = [argument, reason, name = std::string(signature.name())](
                           const Module&, const py::object& value, const More&...) {
    fail(name, ": ", argument, " is ", py::repr(value), ", expected no call; ", reason);
  };
  def(methods, signature, concat("ValueError: ", reason).c_str(), refused);
}

static void bind_refused(Methods& methods) {
  const std::string sent_from = "gradients are written where they are sent from";
  const std::string in_place =
      "collectives read and write parameters and gradients in place, without staging";
  refuse<bool>(methods, "set_reduce_scatter_max_input_buffers(max_input_buffers, *, recurse=True)",
               "value", sent_from + ", and predicted_bytes reports the buffers");
  refuse<bool>(
      methods, "set_separate_reduce_scatter_group(enable=True, *, recurse=True)", "value",
      "gathers and reductions run on two streams over the communicators of the mesh's axes");
  refuse(methods, "set_allocate_memory_from_process_group_for_comm(enable)", "value", in_place);
  refuse(methods, "set_symm_mem_for_comm(backend='NCCL')", "backend", in_place);
  refuse(methods, "set_all_gather_layout(layout)", "layout", "gathers write parameters in place");
  refuse(methods, "set_reduce_scatter_input_fn(function)", "function", sent_from);
  refuse(methods, "get_pending_gradients(*, recurse=True)", "recurse",
         "grad shows a sum that was not reduced yet, as Partial");
  refuse(methods, "synchronize_gradients(*, recurse=True)", "recurse",
         "the backward after set_requires_gradient_sync(True) reduces what earlier ones kept");
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
  def(m, "_is_fully_sharded(module)", "", Held(), &FsdpModule::is_sharded);
  Methods methods(m, "FSDPModule", "A module that was given to `fully_shard`");
  bind_parameters(methods);
  bind_gradients(methods);
  bind_refused(methods);
  m.def("_call_as_forward", &called_as_forward);
  def(m, "share_comm_ctx(modules)",
      "Lets sharded models, e.g. the stages of a pipeline, use the same buffers and streams. Each "
      "is the outermost sharded module of its model",
      [](const py::iterable& modules) {
        const std::vector<Module*> all = modules_in("share_comm_ctx", modules);
        released([&] { share_comm_ctx(all); });
      });
}

static StepModel model_of(const py::object& model, const py::iterable& blocks) {
  return {.model = tree_of<Module>(model.cast<ModuleObject>()),
          .blocks = modules_in("blocks", blocks)};
}

/// The model, its blocks and the function that build(mesh) returns.
static StepModel built_by(const Callable& build, const DeviceMesh& mesh) {
  const Locked lock;
  const py::object made = build(mesh);
  if (!py::isinstance<py::tuple>(made) || py::len(made) != 3) {
    fail_type("plan_memory: build returns a ", type_of(made),
              ", expected a tuple of a model, its blocks and a function that runs a micro-step");
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

static void bind_plan(py::module_& m) {
  py::class_<MemoryPlan> memory_plan_class(m, "MemoryPlan",
                                           "The fastest choice whose predicted peak fits a budget");
  memory_plan_class.def_readonly("allowed", &MemoryPlan::allowed, "The bytes of the budget")
      .def_readonly("peak", &MemoryPlan::peak, "The most bytes that a step takes")
      .def_readonly("seconds", &MemoryPlan::seconds, "The predicted time of a step");
  getter(memory_plan_class, "blocks",
         "Tensors that each block saves: full (its inputs), attention, op (products too) or "
         "none (everything), with +offload behind it where that rests on disk",
         [](const MemoryPlan& plan) { return plan.choice.blocks; });
  getter(memory_plan_class, "state",
         "Memory tier of the optimizer's state, as AdamW's `offload` takes it",
         [](const MemoryPlan& plan) -> py::object {
           const Tier& tier = plan.choice.state;
           const bool is_named = tier.offloads() && !tier.is_host();
           return is_named ? py::object(py::str(concat(tier))) : py::bool_(tier.offloads());
         });
  getter(memory_plan_class, "fine_units",
         "True when attention and feed-forward of a block are sharded apart",
         [](const MemoryPlan& plan) { return plan.choice.fine_units; });
  memory_plan_class.def("__str__", &MemoryPlan::text);
  def(memory_plan_class, "apply(model, blocks, mesh, *, strategy='full_shard', mp_policy=None)",
      "Sets what the blocks save, and shards them and the model. Gives the model",
      [](const MemoryPlan& plan, const py::object& model, const py::iterable& blocks,
         const DeviceMesh& mesh, const std::string& strategy,
         const std::optional<MixedPrecision>& precision) {
        const StepModel step = model_of(model, blocks);
        released([&] { plan.apply(step, mesh, sharding_of(strategy, precision)); });
        return model;
      });
}

void bind_memory_budget(py::module_& m) {
  def(m, "costly_ops()", &costly_ops,
      "Names of the ops that compute matrix products and attention, to be kept by a recomputation");
  def(m, "check_replicas(module)", &check_replicas,
      "Compares by hash the parameters that several ranks of a mesh hold alike. ValueError, on all "
      "ranks, names the first that differs and two ranks. Call it on all ranks");
  bind_plan(m);
  // `print` of a module needs both.
  def(m, "_strategy_of(module)",
      [](const Module& module) { return FsdpModule::strategy_of(module); });
  def(m, "_layout_of(parameter)", [](const Parameter& parameter) {
    const Tensor& value = parameter.value();
    return value.is_sharded() ? concat(' ', value.sharding()) : "";
  });
  def(m,
      "plan_memory(build, mesh, memory, *, directory='', micro_steps=1, strategy='full_shard', "
      "mp_policy=None, optimizer='adamw')",
      "Chooses what blocks save for backward, whether parameters stay gathered, how many units are "
      "gathered early, whether the parts of blocks are units and, with a directory, what rests on "
      "disk there, so that a training step with `optimizer` takes at most `memory` bytes of each "
      "rank. "
      "build(mesh) gives a model over a mesh like `mesh.root()`, its blocks in the order of "
      "forward, and a function that runs forward and backward of one micro-step on device "
      "\"meta\"; it is called several times. ValueError with the least that would fit where "
      "nothing does. Computed without communication; ranks that call it alike choose alike",
      [](const py::function& build, const DeviceMesh& mesh, int64_t memory,
         const std::string& directory, int micro_steps, const std::string& strategy,
         const std::optional<MixedPrecision>& precision, const std::string& optimizer) {
        const Callable kept(build);
        return released([&] {
          return plan_memory([&](const DeviceMesh& root) { return built_by(kept, root); }, mesh,
                             sharding_of(strategy, precision), {memory, directory},
                             {.micro_steps = micro_steps,
                              .optimizer = [&](std::vector<NamedParameter> parameters) {
                                return optimizer_named(optimizer, std::move(parameters), {});
                              }});
        });
      });
}

}  // namespace weft::python
