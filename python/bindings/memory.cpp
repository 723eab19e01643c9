// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/bindings.h"
#include "weft/error.h"
#include "weft/storage.h"

namespace weft::python {

void bind_memory(py::module_& m) {
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

}  // namespace weft::python
