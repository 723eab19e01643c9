// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "python/bindings/modules.h"
#include "weft/fsdp.h"
#include "weft/tensor_parallel.h"

// The layout of modules over a mesh: fully_shard, and parallelize.

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
    if (shard.has_sizes() || shard.outer() > 1) {
      fail("fully_shard: shard_placement_fn returns ", shard, " for ", p.name(),
           ", expected a Shard of a dim alone; fully_shard chooses the parts");
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
                             "The sharding of a parameter: a Shard, and a mesh and its "
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
                       "Layouts of parameters, gradients between micro-steps and the optimizer's "
                       "state along each axis of a mesh: a row (parameter, gradient, state) an "
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
      "The measured bytes: the most since the model was sharded, and the traffic",
      [](Module& model) { return as_dict(released([&] { return measured_bytes(model); })); });
  def(m, "explain_schedule(model, *, training=True, sync=True, updated=True)",
      "Lists what is gathered, computed, freed and reduced, and when, a line each",
      [](Module& model, bool training, bool sync, bool updated) {
        return explain_schedule(model, {training, sync, updated});
      });
}

static Offload offload_of(const std::vector<std::string>& names) {
  const std::map<std::string, Tier Offload::*> parts = {{"parameters", &Offload::parameters},
                                                        {"gradients", &Offload::gradients},
                                                        {"activations", &Offload::activations}};
  Offload offload;
  for (const std::string& item : names) {
    const size_t equals = std::min(item.find('='), item.size());
    const auto part = parts.find(item.substr(0, equals));
    if (part == parts.end()) {
      fail("fully_shard: offload is ", in_quotes(item),
           ", expected \"parameters\", \"gradients\" or \"activations\", and a tier behind it, as "
           "in \"parameters=disk:DIR\"; AdamW(offload=...) keeps the optimizer's state");
    }
    offload.*part->second = equals == item.size()
                                ? Tier(true)
                                : Tier::named("fully_shard: offload", item.substr(equals + 1));
  }
  return offload;
}

static std::vector<ParameterPtr> parameters_or_none(const py::object& given) {
  return given.is_none() ? std::vector<ParameterPtr>() : parameters_of(given);
}

namespace {

/// The arguments of fully_shard: options, and the axis that cuts experts too.
struct ShardArguments : FullyShardOptions {
  std::optional<std::string> expert_axis = {};
};

}  // namespace

static py::object shard(const py::object& module, const DeviceMesh& mesh,
                        const ShardArguments& given) {
  const bool is_list = !py::isinstance<Module>(module) && py::hasattr(module, "__iter__");
  const auto modules = modules_in("fully_shard", is_list ? module : py::make_tuple(module));
  FullyShardOptions options = given;
  if (given.expert_axis) options = with_experts(given, modules, mesh, *given.expert_axis);
  released([&] { fully_shard(modules, mesh, options); });
  return module;
}

void bind_fully_shard(py::module_& m) {
  bind_strategy(m);
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
  bind_placement(m);
  using F = FullyShardOptions;
  using Q = Quantization;
  const auto sent = [](const char* name, auto member) {
    return within(&F::quantization, option(name, member));
  };
  const auto none = [](const char* name) { return py::arg(name) = py::none(); };
  bind_with_fields<ShardArguments, py::object, DeviceMesh>(
      m, "fully_shard", shard, "module"_a, "mesh"_a,
      converted("strategy"_a = "full_shard", &F::strategy, strategy_of), py::kw_only(),
      converted("reshard_after_forward"_a = true, &F::reshard_after_forward, reshard_of),
      converted(none("mp_policy"), &F::precision, or_default<MixedPrecision>),
      option("prefetch", &F::prefetch), option("ignored", &F::ignored),
      converted(none("shard_dim"), &F::shard_dim, function_of_parameter<int>),
      option("bucket_bytes", &F::bucket_bytes),
      option("gradient_divide_factor", &F::gradient_divide_factor),
      converted("offload"_a = std::vector<std::string>{}, &F::offload, offload_of),
      converted(none("shard_placement_fn"), &F::shard_placement_fn, shard_placements_of),
      converted(none("ignored_params"), &F::ignored_params, parameters_or_none),
      option("dp_mesh_dims", &F::dp_mesh_dims),
      converted(none("extension"), &F::extension, extension_of),
      sent("quantized_gather", &Q::gather), sent("quantized_gradients", &Q::reduce),
      sent("quantization_block", &Q::block), sent("error_feedback", &Q::error_feedback),
      sent("quantized_within", &Q::within), option("expert_axis", &ShardArguments::expert_axis),
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

static std::vector<std::pair<std::string, Placement>> pairs_of(
    const std::map<std::string, Placement>& parameters) {
  return {parameters.begin(), parameters.end()};
}

template <class Cut> static void bind_cut(py::module_& m, const char* name, const char* text) {
  bind_options<Cut>(m, name, text, py::kw_only(), option("output_layouts", &Cut::output),
                    option("heads", &Cut::heads), option("parts", &Cut::parts));
}

static void bind_styles(py::module_& m) {
  bind_cut<Colwise>(
      m, "Colwise",
      "A Linear cut along its outputs, an Embedding along its width: the output is cut along its "
      "last dim, or brought to `output_layouts`. `heads`: so many heads stay whole. `parts`: the "
      "product begins with parts of a gathered input while others arrive");
  bind_cut<Rowwise>(m, "Rowwise",
                    "A Linear cut along its inputs, an Embedding along its vocabulary: addends of "
                    "the output are added up to `output_layouts`. `parts`: one part of the product "
                    "is summed and scattered while the next one is computed");
  bind_options<SequenceParallel>(m, "SequenceParallel",
                                 "Whole parameters, and an input cut along dim `sequence_dim`",
                                 py::kw_only(), option("sequence_dim", &SequenceParallel::dim));
  bind_options<ExpertParallel>(m, "ExpertParallel",
                               "Separate experts for each rank: parameters stacked by expert are "
                               "cut along dim 0, and tokens travel to their experts");
  bind_options<PrepareInput>(m, "PrepareInput", "Inputs by number are brought to these layouts",
                             needed("input_layouts", &PrepareInput::inputs));
  bind_options<PrepareOutput>(m, "PrepareOutput", "Outputs by number are brought to these layouts",
                              needed("output_layouts", &PrepareOutput::outputs));
  bind_options<Layouts>(
      m, "Layouts",
      "Own parameters by name, inputs and outputs by number: a style for modules of one's own",
      py::kw_only(),
      converted("parameters"_a = std::map<std::string, Placement>{}, &Layouts::parameters,
                pairs_of),
      option("inputs", &Layouts::inputs), option("outputs", &Layouts::outputs));
}

static Style style_of(py::handle path, py::handle given) {
  try {
    return given.cast<Style>();
  } catch (const py::cast_error&) {
    fail_type("parallelize: the style of ", py::repr(path), " is a ", type_of(given),
              ", expected Colwise, Rowwise, SequenceParallel, ExpertParallel, "
              "PrepareInput, PrepareOutput or Layouts");
  }
}

/// Parses {path: style or list of styles}, in order.
static std::vector<ModuleStyle> styles_of(const py::dict& plan) {
  std::vector<ModuleStyle> styles;
  for (const auto& [path, given] : plan) {
    if (!PyUnicode_Check(path.ptr())) {
      fail_type("parallelize: path is ", py::repr(path),
                ", expected a string such as 'layers.*.wq'");
    }
    const bool is_list = PyList_Check(given.ptr()) || PyTuple_Check(given.ptr());
    const py::object all =
        is_list ? py::reinterpret_borrow<py::object>(given) : py::object(py::make_tuple(given));
    for (const py::handle style : all) {
      styles.push_back({path.cast<std::string>(), style_of(path, style)});
    }
  }
  return styles;
}

static py::dict as_dict(const std::vector<ModuleStyle>& styles) {
  py::dict plan;
  for (const ModuleStyle& style : styles) {
    const py::str path(style.path);
    if (!plan.contains(path)) plan[path] = py::list();
    plan[path].cast<py::list>().append(py::cast(style.style));
  }
  return plan;
}

void bind_tensor_parallel(py::module_& m) {
  bind_styles(m);
  def(m, "parallelize(module, mesh, plan)",
      "Lays out the module's parameters along `mesh`, a view of one axis (mesh['tp']), as the plan "
      "says, {path: style or list of styles} with * for any part of one name; whole along other "
      "axes. Inputs must be laid out over the root mesh. Call it before fully_shard. ValueError, "
      "with nothing changed, for a path that matches nothing, heads that are not divided, or a "
      "style that does not fit its module. Gives the module",
      [](const ModuleObject& module, const DeviceMesh& axis, const py::dict& plan) {
        auto& tree = module.cast<Module&>();
        const std::vector<ModuleStyle> styles = styles_of(plan);
        released([&] { parallelize(tree, axis, styles); });
        return module;
      });
  def(m, "transformer_styles(config, *, sequence_parallel=False, parts=1)",
      "The plan of a TransformerModel: embedding, head and loss cut over the vocabulary, attention "
      "by heads, the feed-forward along its width. `parts`: products are split so that gathers and "
      "reductions overlap with them",
      [](const TransformerConfig& config, bool sequence_parallel, int parts) {
        return as_dict(
            transformer_styles(config, {.sequence_parallel = sequence_parallel, .parts = parts}));
      });
  def(m, "expert_styles()",
      "The plan that gives each rank of an axis its own experts of all layers of a "
      "TransformerModel; apply it before transformer_styles",
      [] { return as_dict(expert_styles()); });
  def(m, "explain_model(model, loss)",
      "The collectives of one training step of a parallelized model, by layer, found by running "
      "loss() and its backward on device meta, where its tensors must be. Nothing is communicated",
      [](Module& model, const py::function& loss) {
        const Callable kept(loss);
        return released([&] {
          return explain(model, [&kept] {
            const Locked lock;
            return tensors_of("explain_model", kept()).at(0);
          });
        });
      });
}

}  // namespace weft::python
