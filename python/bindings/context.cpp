// SPDX-License-Identifier: Apache-2.0
#include "weft/context.h"

#include <utility>

#include "python/bindings/bindings.h"
#include "python/bindings/lock.h"
#include "weft/error.h"
#include "weft/warnings.h"

namespace weft::python {

static const char* name_of(Traffic traffic) {
  constexpr const char* names[] = {"allow", "free_only", "forbid"};
  return names[static_cast<int>(traffic)];
}

static Traffic traffic_named(const std::string& name) {
  for (const Traffic traffic : {Traffic::allow, Traffic::free_only, Traffic::forbid}) {
    if (name == name_of(traffic)) return traffic;
  }
  fail("traffic: mode is ", in_quotes(name), ", expected allow, free_only or forbid");
}

/// Binds the state that the ranks of this thread see; the package's context managers set and
/// restore it.
void bind_context(py::module_& m) {
  set_warning_handler(
      receiver(py::module_::import("warnings").attr("warn"), "warnings.warn called by weft"));
  m.def(
      "is_grad_enabled", [] { return Context::current().grad_enabled; },
      "Whether ops of this rank are recorded for backward");
  m.def(
      "set_grad_enabled",
      [](bool enabled) { return std::exchange(Context::current().grad_enabled, enabled); },
      py::arg("enabled"),
      "Gives what was in force before; `with weft.no_grad():` is a scope of it");
  m.def(
      "get_traffic", [] { return name_of(Context::current().traffic); },
      "'allow', 'free_only' or 'forbid': which implicit traffic ops of this rank may cause");
  m.def(
      "set_traffic",
      [](const std::string& policy) {
        return name_of(std::exchange(Context::current().traffic, traffic_named(policy)));
      },
      py::arg("policy"),
      "Gives what was in force before; `with weft.traffic(...)` is a scope of it");
  m.def("manual_seed", &manual_seed, py::arg("seed"),
        "Random numbers of this rank start again from `seed`; call it with one seed on all ranks");
  m.def(
      "get_rng_state",
      [] {
        const RandomState& state = Context::current().random;
        return std::pair(state.seed, state.stream);
      },
      "(seed, stream): all the state of this rank's random numbers");
  m.def(
      "set_rng_state",
      [](std::pair<uint64_t, uint64_t> state) {
        Context::current().random = {state.first, state.second};
      },
      py::arg("state"), "Lets them go on from a state that get_rng_state gave");
  m.def(
      "get_num_threads", [] { return Context::current().threads; },
      "Threads that this rank's kernels may use");
}

}  // namespace weft::python
