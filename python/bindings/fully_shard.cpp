// SPDX-License-Identifier: Apache-2.0
#include "weft/fsdp.h"

#include "python/bindings/callable.h"
#include "python/bindings/lock.h"
#include "python/bindings/modules.h"
#include "weft/error.h"

namespace weft::python {

static Strategy strategy_of(const py::object& given) {
  if (PyUnicode_Check(given.ptr())) return Strategy::named(given.cast<std::string>());
  return given.cast<Strategy>();
}

static Reshard reshard_of(const py::object& given) {
  if (PyUnicode_Check(given.ptr())) return Reshard(given.cast<std::string>());
  return Reshard(given.cast<bool>());
}

static std::function<int(const NamedParameter&)> shard_dim_of(const py::object& given) {
  if (given.is_none()) return {};
  return [kept = Callable(py::function(given))](const NamedParameter& p) {
    const Locked lock;
    return kept(p.name(), p.parameter).cast<int>();
  };
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
           py::arg("name"), py::arg("rows"))
      .def_static("named", &Strategy::named, py::arg("name"), "ValueError lists the names")
      .def_readonly("name", &Strategy::name)
      .def_property_readonly("rows", [](const Strategy& s) {
        std::vector<Row> rows;
        for (const StrategyRow& row : s.rows)
          rows.emplace_back(row.parameter, row.gradient, row.state);
        return rows;
      });
}

static void bind_precision(py::module_& m) {
  using MaybeDType = std::optional<DType>;
  py::class_<MixedPrecision>(
      m, "MixedPrecision",
      "Dtypes of floating parameters by what they are for: `storage` of what "
      "the optimizer changes, `compute`, `gather` and `reduce` on the wire, "
      "`accumulate` of reduced gradients, `buffers` of ignored parameters, "
      "`inputs` and `outputs` of the module. None leaves each as it is")
      .def(py::init([](MaybeDType compute, MaybeDType reduce, MaybeDType gather, MaybeDType storage,
                       MaybeDType accumulate, MaybeDType buffers, MaybeDType inputs,
                       MaybeDType outputs) {
             return MixedPrecision{.storage = storage,
                                   .compute = compute,
                                   .gather = gather,
                                   .reduce = reduce,
                                   .accumulate = accumulate,
                                   .buffers = buffers,
                                   .inputs = inputs,
                                   .outputs = outputs};
           }),
           py::arg("compute") = py::none(), py::arg("reduce") = py::none(), py::kw_only(),
           py::arg("gather") = py::none(), py::arg("storage") = py::none(),
           py::arg("accumulate") = py::none(), py::arg("buffers") = py::none(),
           py::arg("inputs") = py::none(), py::arg("outputs") = py::none());
}

static py::dict as_dict(const FullyShardBytes& bytes) {
  py::dict all, by_axes;
  for (const AxisTraffic& traffic : bytes.by_axes) by_axes[traffic.axes.c_str()] = traffic.bytes;
  all["parameters"] = bytes.parameters;
  all["gradients"] = bytes.gradients;
  all["buffers"] = bytes.buffers;
  all["received"] = bytes.received;
  all["by_axes"] = by_axes;
  all["copied"] = bytes.copied;
  return all;
}

static void bind_questions(py::module_& m) {
  m.def(
      "predicted_bytes",
      [](Module& model, int micro_steps) {
        return as_dict(released([&] { return predicted_bytes(model, micro_steps); }));
      },
      py::arg("model"), py::arg("micro_steps") = 1,
      "Bytes that sharding will own on this rank and receive in a step, by arithmetic");
  m.def(
      "measured_bytes",
      [](Module& model) { return as_dict(released([&] { return measured_bytes(model); })); },
      py::arg("model"), "What it took: the most since the model was sharded, and the traffic");
  m.def(
      "explain_schedule",
      [](Module& model, bool training, bool sync, bool updated) {
        return explain_schedule(model, {training, sync, updated});
      },
      Released(), py::arg("model"), py::kw_only(), py::arg("training") = true,
      py::arg("sync") = true, py::arg("updated") = true,
      "What is gathered, computed, freed and reduced when, a line each");
}

static Offload offload_of(const std::vector<std::string>& names) {
  Offload offload;
  for (const std::string& name : names) {
    if (name == "parameters") {
      offload.parameters = true;
    } else if (name == "gradients") {
      offload.gradients = true;
    } else {
      fail("fully_shard: offload is ", in_quotes(name),
           ", expected \"parameters\" or \"gradients\"; AdamW(offload=True) keeps the optimizer's "
           "state");
    }
  }
  return offload;
}

void bind_fully_shard(py::module_& m) {
  bind_strategy(m);
  bind_precision(m);
  m.def(
      "fully_shard",
      [](const ModuleObject& module, const DeviceMesh& mesh, const py::object& strategy,
         const py::object& reshard, const std::optional<MixedPrecision>& precision, int prefetch,
         const std::vector<std::string>& ignored, const py::object& shard_dim, int64_t bucket_bytes,
         double gradient_divide_factor, const std::vector<std::string>& offload) {
        const FullyShardOptions options{.reshard_after_forward = reshard_of(reshard),
                                        .prefetch = prefetch,
                                        .ignored = ignored,
                                        .strategy = strategy_of(strategy),
                                        .precision = precision.value_or(MixedPrecision()),
                                        .offload = offload_of(offload),
                                        .shard_dim = shard_dim_of(shard_dim),
                                        .bucket_bytes = bucket_bytes,
                                        .gradient_divide_factor = gradient_divide_factor};
        auto& tree = module.cast<Module&>();
        released([&] { fully_shard(tree, mesh, options); });
        return module;
      },
      py::arg("module"), py::arg("mesh"), py::arg("strategy") = "full_shard", py::kw_only(),
      py::arg("reshard_after_forward") = true, py::arg("mp_policy") = py::none(),
      py::arg("prefetch") = 1, py::arg("ignored") = std::vector<std::string>{},
      py::arg("shard_dim") = py::none(), py::arg("bucket_bytes") = int64_t{25} << 20,
      py::arg("gradient_divide_factor") = 1.0, py::arg("offload") = std::vector<std::string>{},
      "Shards the module's parameters over the axes of `mesh`: whole when used, a slice at rest. "
      "Shard the parts first, then the whole model. The batch is sharded over these axes too, and "
      "the loss is a mean over all of it. `strategy` is a name (full_shard, zero2, zero1, ddp, "
      "hsdp) or a Strategy; `mp_policy` a MixedPrecision; reshard_after_forward may name an axis. "
      "`offload` names what rests in pinned memory of the host: \"parameters\", \"gradients\". "
      "ValueError, with nothing changed, when the strategy does not fit. Gives the module");
  py::class_<NoSync>(m, "_NoSync")
      .def(py::init<Module&, bool>(), Released(), py::arg("model"), py::arg("holds"));
  bind_questions(m);
}

}  // namespace weft::python
