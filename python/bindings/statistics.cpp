// SPDX-License-Identifier: Apache-2.0
#include "weft/autograd.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/storage.h"
#include "weft/trace.h"

namespace weft::python {

static py::dict as_dict(const MemoryUse& use) {
  return py::dict(py::arg("current") = use.current, py::arg("peak") = use.peak);
}

static void bind_memory(py::module_& m) {
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
      py::arg("device") = cpu,
      "Bytes of the calling rank by purpose (parameters, gradients, optimizer, activations, "
      "gathered, other), current and peak; `meta` memory is counted as if it were there");
  m.def(
      "reset_peak_memory", [](Device device) { reset_peak_memory(device.kind); },
      py::arg("device") = cpu, "Peaks start again from the current bytes");
  m.def("release_cached_memory", &release_cached_memory,
        "Gives cached memory of the calling rank back to the system");
}

void bind_statistics(py::module_& m) {
  m.def(
      "engine_statistics",
      [] {
        const EngineStatistics& s = engine_statistics();
        return py::dict(py::arg("calls") = s.calls, py::arg("route_hits") = s.route_hits,
                        py::arg("route_misses") = s.route_misses,
                        py::arg("route_evictions") = s.route_evictions,
                        py::arg("gradients_in_place") = s.gradients_in_place,
                        py::arg("gradient_copies") = s.gradient_copies,
                        py::arg("gradient_copy_bytes") = s.gradient_copy_bytes,
                        py::arg("implicit_redistributions") = s.implicit_redistributions,
                        py::arg("implicit_bytes") = s.implicit_bytes);
      },
      "What the calling rank's engine did since the rank began: calls, routes found and made, "
      "gradients written in place and copied, implicit redistributions and their bytes");
  m.def("implicit_traffic", &implicit_traffic,
        "Implicit traffic of the calling rank by op, as lines 'op: count, bytes'");
  bind_memory(m);
  py::class_<TraceScope>(m, "_TraceScope")
      .def(py::init<int64_t>(), py::arg("most_events"))
      .def("events", &TraceScope::events)
      .def("dropped", &TraceScope::dropped)
      .def("write", &TraceScope::write, Released(), py::arg("world"), py::arg("path"));
}

}  // namespace weft::python
