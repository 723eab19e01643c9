// SPDX-License-Identifier: Apache-2.0
#include "weft/context.h"

#include "python/bindings/bindings.h"
#include "weft/autograd.h"
#include "weft/error.h"
#include "weft/graph.h"
#include "weft/storage.h"
#include "weft/threads.h"
#include "weft/trace.h"

namespace weft::python {

/// The names of the values of Traffic.
static const std::vector<const char*> kTraffic = {"allow", "free_only", "forbid"};

static const char* name_of(Traffic traffic) { return kTraffic[static_cast<size_t>(traffic)]; }

/// Binds the state that the ranks of this thread see; the package's context managers set and
/// restore it.
void bind_context(py::module_& m) {
  set_warning_handler(
      receiver(py::module_::import("warnings").attr("warn"), "warnings.warn called by weft"));
  def(m, "is_grad_enabled()", "True when ops of this rank are recorded for backward", Held(),
      [] { return Context::current().grad_enabled; });
  def(m, "set_grad_enabled(enabled)",
      "Gives what was in force before; `with weft.no_grad():` is a scope of it", Held(),
      [](bool enabled) { return std::exchange(Context::current().grad_enabled, enabled); });
  def(m, "get_traffic()",
      "'allow', 'free_only' or 'forbid': which implicit traffic ops of this rank may cause", Held(),
      [] { return name_of(Context::current().traffic); });
  def(m, "set_traffic(policy)",
      "Gives what was in force before; `with weft.traffic(...)` is a scope of it", Held(),
      [](const std::string& policy) {
        const auto traffic =
            static_cast<Traffic>(number_among("traffic", "mode", policy, kTraffic));
        return name_of(std::exchange(Context::current().traffic, traffic));
      });
  def(m, "manual_seed(seed)", &manual_seed,
      "Random numbers of this rank start again from `seed`; call it with one seed on all ranks");
  def(m, "get_rng_state()", "(seed, stream): all the state of this rank's random numbers", Held(),
      [] {
        const RandomState& state = Context::current().random;
        return std::pair(state.seed, state.stream);
      });
  def(m, "set_rng_state(state)", "Lets them go on from a state that get_rng_state gave", Held(),
      [](std::pair<uint64_t, uint64_t> state) {
        Context::current().random = {state.first, state.second};
      });
  def(m, "get_num_threads()", "Threads that this rank's kernels may use", Held(), get_num_threads);
  def(m, "set_num_threads(threads)", "Sets how many threads this rank's kernels use, 1 to 1024",
      Held(), set_num_threads);
}

static py::dict as_dict(const MemoryUse& use) {
  return py::dict("current"_a = use.current, "peak"_a = use.peak);
}

void bind_statistics(py::module_& m) {
  def(m, "engine_statistics()",
      "Counts of the calling rank's engine since the rank began: calls, routes found and made, "
      "gradients written in place and copied, implicit redistributions and their bytes",
      [] {
        const EngineStatistics& s = engine_statistics();
        return py::dict("calls"_a = s.calls, "route_hits"_a = s.route_hits,
                        "route_misses"_a = s.route_misses, "route_evictions"_a = s.route_evictions,
                        "gradients_in_place"_a = s.gradients_in_place,
                        "gradient_copies"_a = s.gradient_copies,
                        "gradient_copy_bytes"_a = s.gradient_copy_bytes,
                        "implicit_redistributions"_a = s.implicit_redistributions,
                        "implicit_bytes"_a = s.implicit_bytes);
      });
  def(m, "implicit_traffic()", &implicit_traffic,
      "Implicit traffic of the calling rank by op, as lines 'op: count, bytes'");
  m.def(
      "memory_statistics",
      [](Device device) {
        const MemoryStatistics statistics = memory_statistics(device.kind);
        py::dict all;
        for (int i = 0; i < kPurposes; ++i) {
          all[py::str(std::string(name_of(static_cast<Purpose>(i))))] =
              as_dict(statistics.by_purpose[static_cast<size_t>(i)]);
        }
        all["total"] = as_dict(statistics.total);
        all["cached"] = statistics.cached;
        return all;
      },
      "device"_a = cpu,
      "Bytes of the calling rank by purpose (parameters, gradients, optimizer, activations, "
      "gathered, other), current and peak; `meta` memory is counted as if it were there");
  m.def(
      "reset_peak_memory", [](Device device) { reset_peak_memory(device.kind); }, "device"_a = cpu,
      "Peaks start again from the current bytes");
  def(m, "release_cached_memory()", &release_cached_memory,
      "Gives cached memory of the calling rank back to the system");
  py::class_<TraceScope>(m, "_TraceScope")
      .def(py::init<int64_t>(), "most_events"_a)
      .def("write", &TraceScope::write, Released(), "world"_a, "path"_a);
}

namespace {

/// A graph keeps the recorded function, and with it the objects that its variables refer to.
struct GraphObject {
  Graph graph;
  py::function recorded;
};

}  // namespace

static void run_graph(GraphObject& self, const py::function& work) {
  const bool was_recorded = self.graph.is_recorded();
  {
    const Unlocked unlocked;
    self.graph.run([&] {
      const Locked lock;
      work();
    });
  }
  if (!was_recorded && self.graph.is_recorded()) self.recorded = work;
}

void bind_graph(py::module_& m) {
  py::class_<GraphObject>(
      m, "Graph",
      "Work of one GPU that is recorded once and then played: one call of the host instead of one "
      "a kernel. It reads and writes the same memory each time: fill tensors in place (copy_) "
      "before it runs. Belongs to its thread.")
      .def(py::init([](Device device) {
             return std::unique_ptr<GraphObject>(new GraphObject{Graph(device), {}});
           }),
           "device"_a)
      .def("run", &run_graph, "work"_a,
           "Calls `work` twice as it is, then to record it; from then on plays the record instead, "
           "which keeps `work`: leave what its variables name as it is. It neither copies between "
           "the host and the GPU nor draws random numbers, and ids are not checked in the record. "
           "Ranks exchange in it only as processes with a GPU each; all of them record and play "
           "the same.")
      .def_property_readonly("is_recorded",
                             [](const GraphObject& self) { return self.graph.is_recorded(); })
      .def_property_readonly("device", [](const GraphObject& self) { return self.graph.device(); });
}

}  // namespace weft::python
