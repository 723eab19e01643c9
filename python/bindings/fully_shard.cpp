// SPDX-License-Identifier: Apache-2.0
#include "weft/expert_parallel.h"
#include "weft/fsdp.h"

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"

namespace weft::python {

static Strategy strategy_of(const py::object& given) {
  if (PyUnicode_Check(given.ptr())) return Strategy::named(given.cast<std::string>());
  return given.cast<Strategy>();
}

static Reshard reshard_of(const py::object& given) {
  if (PyUnicode_Check(given.ptr())) return Reshard(given.cast<std::string>());
  if (given.is_none()) return Reshard(true);
  if (PyLong_Check(given.ptr()) && !PyBool_Check(given.ptr())) return Reshard(given.cast<int>());
  return Reshard(given.cast<bool>());
}

/// None, a Shard, or a ShardPlacementResult, of fn(parameter).
static std::function<ShardPlacement(const NamedParameter&)> shard_placements_of(
    const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](const NamedParameter& p) {
    const Locked lock;
    const py::object placement = kept(p.parameter);
    check_value(placement);
    if (placement.is_none()) return ShardPlacement();
    const auto dim_of = [&](int dim) { return dim < 0 ? dim + p.parameter->shape().ndim() : dim; };
    if (py::isinstance<ShardPlacement>(placement)) {
      auto result = placement.cast<ShardPlacement>();
      if (result.dim) result.dim = dim_of(*result.dim);
      return result;
    }
    const auto shard = placement.cast<Placement>();
    if (!shard.is_shard()) {
      fail("fully_shard: shard_placement_fn returns ", shard, " for ", p.name(),
           ", expected a Shard, a ShardPlacementResult or None");
    }
    return ShardPlacement{.dim = dim_of(shard.dim())};
  };
}

namespace {

/// A wire format written in Python: an object with the two methods.
class WrittenExtension final : public AllGatherExtension {
 public:
  explicit WrittenExtension(const py::object& written)
      : pre_(py::function(written.attr("fsdp_pre_all_gather"))),
        post_(py::function(written.attr("fsdp_post_all_gather"))) {}

  Tensors fsdp_pre_all_gather(const Tensor& slice) override {
    const Locked lock;
    return tensors_of("fsdp_pre_all_gather", pre_(slice));
  }
  void fsdp_post_all_gather(const Tensors& received, const Tensor& out) override {
    const Locked lock;
    post_(for_python(received), out);
  }

 private:
  Callable pre_, post_;
};

}  // namespace

static std::function<std::shared_ptr<AllGatherExtension>(const NamedParameter&)> extension_of(
    const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](
             const NamedParameter& p) -> std::shared_ptr<AllGatherExtension> {
    const Locked lock;
    const py::object written = kept(p.name(), p.parameter);
    if (written.is_none()) return nullptr;
    return std::make_shared<WrittenExtension>(written);
  };
}

/// The names of axes in None, a string or a sequence of strings.
static std::vector<std::string> axes_in(const py::object& given) {
  if (given.is_none()) return {};
  if (PyUnicode_Check(given.ptr())) return {given.cast<std::string>()};
  return given.cast<std::vector<std::string>>();
}

static void bind_placement(py::module_& m) {
  py::class_<ShardPlacement>(m, "ShardPlacementResult",
                             "Where fully_shard shards a parameter: a Shard, and a mesh and its "
                             "strategy if they are not those of the module")
      .def(py::init([](const std::optional<Placement>& placement,
                       const std::optional<DeviceMesh>& mesh, const py::object& strategy) {
             ShardPlacement result{.mesh = mesh.value_or(DeviceMesh())};
             if (placement && !placement->is_shard()) {
               fail("fully_shard: placement of ShardPlacementResult is ", *placement,
                    ", expected a Shard");
             }
             if (placement) result.dim = placement->dim();
             if (!strategy.is_none()) result.strategy = strategy_of(strategy);
             return result;
           }),
           "placement"_a = py::none(), "mesh"_a = py::none(), "strategy"_a = py::none());
  using Dims = DataParallelMeshDims;
  bind_options<Dims>(m, "DataParallelMeshDims",
                     "The axes of a mesh over which fully_shard shards parameters, and those over "
                     "which it replicates them",
                     converted("shard"_a = py::none(), &Dims::shard, axes_in),
                     converted("replicate"_a = py::none(), &Dims::replicate, axes_in))
      .def_readonly("shard", &Dims::shard)
      .def_readonly("replicate", &Dims::replicate);
}

static void bind_strategy(py::module_& m) {
  using Row = std::tuple<Placement, Placement, Placement>;
  py::class_<Strategy>(m, "Strategy",
                       "Where parameters, their gradients between micro-steps and the optimizer's "
                       "state are along each axis of a mesh: a row (parameter, gradient, state) an "
                       "axis, or one for all axes. By name: full_shard, zero2, zero1, ddp, hsdp")
      .def(py::init([](const std::string& name, const std::vector<Row>& rows) {
             Strategy strategy{name, {}};
             for (const auto& [parameter, gradient, state] : rows) {
               strategy.rows.push_back({parameter, gradient, state});
             }
             return strategy;
           }),
           "name"_a, "rows"_a)
      .def_static("named", &Strategy::named, "name"_a, "ValueError lists the names")
      .def_readonly("name", &Strategy::name)
      .def_property_readonly("rows", [](const Strategy& s) {
        std::vector<Row> rows;
        for (const StrategyRow& row : s.rows)
          rows.emplace_back(row.parameter, row.gradient, row.state);
        return rows;
      });
}

static void bind_precision(py::module_& m) {
  using P = MixedPrecision;
  bind_options<P>(m, "MixedPrecision",
                  "Dtypes of floating parameters by what they are for: `storage` of what the "
                  "optimizer changes, `compute`, `gather` and `reduce` on the wire, `accumulate` "
                  "of reduced gradients, `buffers` of ignored parameters, `inputs` and `outputs` "
                  "of the module. None leaves each as it is",
                  option("compute", &P::compute), option("reduce", &P::reduce), py::kw_only(),
                  option("gather", &P::gather), option("storage", &P::storage),
                  option("accumulate", &P::accumulate), option("buffers", &P::buffers),
                  option("inputs", &P::inputs), option("outputs", &P::outputs));
}

static py::dict as_dict(const FullyShardBytes& bytes) {
  py::dict by_axes;
  for (const AxisTraffic& traffic : bytes.by_axes) by_axes[traffic.axes.c_str()] = traffic.bytes;
  return py::dict("parameters"_a = bytes.parameters, "gradients"_a = bytes.gradients,
                  "buffers"_a = bytes.buffers, "received"_a = bytes.received, "by_axes"_a = by_axes,
                  "copied"_a = bytes.copied);
}

static void bind_questions(py::module_& m) {
  def(m, "predicted_bytes(model, micro_steps=1)",
      "Bytes that sharding will own on this rank and receive in a step, by arithmetic",
      [](Module& model, int micro_steps) {
        return as_dict(released([&] { return predicted_bytes(model, micro_steps); }));
      });
  def(m, "measured_bytes(model)",
      "What it took: the most since the model was sharded, and the traffic",
      [](Module& model) { return as_dict(released([&] { return measured_bytes(model); })); });
  def(m, "explain_schedule(model, *, training=True, sync=True, updated=True)",
      "What is gathered, computed, freed and reduced when, a line each",
      [](Module& model, bool training, bool sync, bool updated) {
        return explain_schedule(model, {training, sync, updated});
      });
}

static Offload offload_of(const std::vector<std::string>& names) {
  Offload offload;
  for (const std::string& item : names) {
    const size_t equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    const Tier tier = equals == item.size()
                          ? Tier(true)
                          : Tier::named("fully_shard: offload", item.substr(equals + 1));
    if (name == "parameters") {
      offload.parameters = tier;
    } else if (name == "gradients") {
      offload.gradients = tier;
    } else if (name == "activations") {
      offload.activations = tier;
    } else {
      fail("fully_shard: offload is ", in_quotes(item),
           ", expected \"parameters\", \"gradients\" or \"activations\", and a tier behind it, as "
           "in \"parameters=disk:DIR\"; AdamW(offload=...) keeps the optimizer's state");
    }
  }
  return offload;
}

/// The modules of a single one or of a list.
static std::vector<Module*> modules_of(const py::object& given) {
  if (py::isinstance<Module>(given)) return {&given.cast<Module&>()};
  std::vector<Module*> modules;
  const bool is_list = py::hasattr(given, "__iter__");
  for (const py::handle module : is_list ? given : py::make_tuple(given)) {
    if (!py::isinstance<Module>(module)) {
      throw py::type_error(concat("fully_shard: module is a ", type_of(module),
                                  ", expected a Module or a list of Modules"));
    }
    check_value(module);
    modules.push_back(&module.cast<Module&>());
  }
  return modules;
}

void bind_fully_shard(py::module_& m) {
  bind_strategy(m);
  bind_precision(m);
  bind_placement(m);
  m.def(
      "fully_shard",
      [](const py::object& module, const DeviceMesh& mesh, const py::object& strategy,
         const py::object& reshard, const std::optional<MixedPrecision>& precision, int prefetch,
         const std::vector<std::string>& ignored, const py::object& shard_dim, int64_t bucket_bytes,
         double gradient_divide_factor, const std::vector<std::string>& offload,
         const py::object& placement, const py::object& ignored_params,
         const std::optional<DataParallelMeshDims>& dims, const py::object& extension,
         std::optional<DType> quantized_gather, std::optional<DType> quantized_gradients,
         int64_t quantization_block, bool error_feedback,
         const std::optional<std::string>& quantized_within,
         const std::optional<std::string>& expert_axis) {
        FullyShardOptions options{.reshard_after_forward = reshard_of(reshard),
                                  .prefetch = prefetch,
                                  .ignored = ignored,
                                  .strategy = strategy_of(strategy),
                                  .precision = precision.value_or(MixedPrecision()),
                                  .quantization = {.gather = quantized_gather,
                                                   .reduce = quantized_gradients,
                                                   .block = quantization_block,
                                                   .error_feedback = error_feedback,
                                                   .within = quantized_within},
                                  .offload = offload_of(offload),
                                  .shard_dim = function_of_parameter<int>(shard_dim),
                                  .shard_placement_fn = shard_placements_of(placement),
                                  .dp_mesh_dims = dims,
                                  .extension = extension_of(extension),
                                  .bucket_bytes = bucket_bytes,
                                  .gradient_divide_factor = gradient_divide_factor};
        if (!ignored_params.is_none()) {
          for (const py::handle p : ignored_params) {
            check_value(p);
            options.ignored_params.push_back(p.cast<ParameterPtr>());
          }
        }
        const std::vector<Module*> modules = modules_of(module);
        if (expert_axis) options = with_experts(options, modules, mesh, *expert_axis);
        released([&] { fully_shard(modules, mesh, options); });
        return module;
      },
      "module"_a, "mesh"_a, "strategy"_a = "full_shard", py::kw_only(),
      "reshard_after_forward"_a = true, "mp_policy"_a = py::none(), "prefetch"_a = 1,
      "ignored"_a = std::vector<std::string>{}, "shard_dim"_a = py::none(),
      "bucket_bytes"_a = int64_t{25} << 20, "gradient_divide_factor"_a = 1.0,
      "offload"_a = std::vector<std::string>{}, "shard_placement_fn"_a = py::none(),
      "ignored_params"_a = py::none(), "dp_mesh_dims"_a = py::none(), "extension"_a = py::none(),
      "quantized_gather"_a = py::none(), "quantized_gradients"_a = py::none(),
      "quantization_block"_a = Quantization().block, "error_feedback"_a = false,
      "quantized_within"_a = py::none(), "expert_axis"_a = py::none(),
      "Shards the module's parameters over the axes of `mesh`: whole when used, a slice at rest. "
      "Shard the parts first, then the whole model. The batch is sharded over these axes too, and "
      "the loss is a mean over all of it. A list of modules is one group. `strategy` is a name "
      "(full_shard, zero2, zero1, ddp, hsdp) or a Strategy; `mp_policy` a MixedPrecision; "
      "reshard_after_forward may name an axis, or a number of ranks. `offload` names what rests in "
      "pinned memory of the host: \"parameters\", \"gradients\", and between forward and backward "
      "\"activations\", which recomputation saves; \"parameters=disk:DIR\" rest in files without a "
      "name. shard_placement_fn(parameter) gives a Shard, a ShardPlacementResult or None. "
      "extension(name, parameter) gives an object whose fsdp_pre_all_gather(slice) returns what is "
      "sent, and whose fsdp_post_all_gather(received, out) writes a rank's part. quantized_gather "
      "(int8, float8_e4m3fn) and quantized_gradients (int8, bfloat16) are what gathers and "
      "reduce-scatters send, 8 bits with a scale for each quantization_block elements; "
      "error_feedback adds what gradients lost to the next ones. quantized_within is the axis "
      "within a host, over which codes move apart from the other axes (\"\": they do not; None: if "
      "it is predicted to be faster). expert_axis is the axis of `mesh` that cuts experts too "
      "(expert_styles): they are sharded over the others only. ValueError, with nothing changed, "
      "when the strategy does not fit. Gives the module");
  py::class_<NoSync>(m, "_NoSync").def(py::init<Module&, bool>(), Released(), "model"_a, "holds"_a);
  bind_questions(m);
}

}  // namespace weft::python
