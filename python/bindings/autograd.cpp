// SPDX-License-Identifier: Apache-2.0
#include "weft/autograd.h"

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/storage.h"
#include "weft/trace.h"

namespace weft::python {

/// One gradient for each root; empty for a root of one element, whose gradient is 1.
static Tensors gradients_for(const Tensors& roots,
                             const std::optional<std::vector<std::optional<Tensor>>>& given) {
  Tensors gradients(roots.size());
  for (size_t i = 0; given && i < given->size() && i < gradients.size(); ++i) {
    if ((*given)[i]) gradients[i] = *(*given)[i];
  }
  return gradients;
}

static void bind_memory(py::module_& m) {
  m.def(
      "memory_statistics",
      [](Device device) {
        const MemoryStatistics statistics = memory_statistics(device.kind);
        const auto use = [](const MemoryUse& of) {
          py::dict both;
          both["current"] = of.current;
          both["peak"] = of.peak;
          return both;
        };
        py::dict all;
        for (int i = 0; i < kPurposes; ++i) {
          all[py::str(std::string(name_of(static_cast<Purpose>(i))))] =
              use(statistics.by_purpose[static_cast<size_t>(i)]);
        }
        all["total"] = use(statistics.total);
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

void bind_autograd(py::module_& m) {
  m.def(
      "backward",
      [](const Tensors& roots, const std::optional<std::vector<std::optional<Tensor>>>& given) {
        const Tensors gradients = gradients_for(roots, given);
        released([&] { backward(roots, gradients); });
      },
      py::arg("roots"), py::arg("gradients") = py::none(),
      "Gradients of all leaves that `roots` depend on, given the roots' gradients (None: one)");
  m.def(
      "engine_statistics",
      [] {
        const EngineStatistics& s = engine_statistics();
        py::dict all;
        all["calls"] = s.calls;
        all["route_hits"] = s.route_hits;
        all["route_misses"] = s.route_misses;
        all["route_evictions"] = s.route_evictions;
        all["gradients_in_place"] = s.gradients_in_place;
        all["gradient_copies"] = s.gradient_copies;
        all["gradient_copy_bytes"] = s.gradient_copy_bytes;
        all["implicit_redistributions"] = s.implicit_redistributions;
        all["implicit_bytes"] = s.implicit_bytes;
        return all;
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
