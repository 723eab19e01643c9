// SPDX-License-Identifier: Apache-2.0
#include "weft/context.h"
#include "weft/communicator.h"
#include "weft/ranks.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "python/bindings/bindings.h"
#include "python/bindings/callable.h"
#include "python/bindings/lock.h"
#include "python/bindings/rank_run.h"
#include "weft/error.h"
#include "weft/warnings.h"

namespace weft::python {

static Traffic traffic_named(const std::string& name) {
  if (name == "allow") return Traffic::allow;
  if (name == "free_only") return Traffic::free_only;
  if (name == "forbid") return Traffic::forbid;
  fail("traffic: mode is ", in_quotes(name), ", expected allow, free_only or forbid");
}

static const char* name_of(Traffic traffic) {
  constexpr const char* names[] = {"allow", "free_only", "forbid"};
  return names[static_cast<int>(traffic)];
}

/// Converts a deadline in seconds; deadlines above `kLongest` are unlimited in practice.
static std::chrono::milliseconds milliseconds_of(double deadline) {
  constexpr double kLongest = 10 * 365.0 * 24 * 3600;
  if (!(deadline > 0)) fail("deadline: it is ", deadline, " s, expected a number above 0");
  return std::chrono::milliseconds(
      std::max<int64_t>(1, static_cast<int64_t>(std::min(deadline, kLongest) * 1e3)));
}

static RunOptions options_of(double deadline, int threads_per_rank, uint64_t seed,
                             std::optional<bool> checks_equality) {
  RunOptions options;
  options.deadline = milliseconds_of(deadline);
  options.threads_per_rank = threads_per_rank;
  options.seed = seed;
  options.checks_equality = checks_equality;
  return options;
}

/// Binds the state that the ranks of this thread see; the package's context managers set and
/// restore it.
static void bind_state(py::module_& m) {
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

void bind_context(py::module_& m) {
  set_warning_handler(
      receiver(py::module_::import("warnings").attr("warn"), "warnings.warn called by weft"));
  constexpr double kDeadline = 600;
  bind_state(m);
  m.def(
      "run_ranks",
      [](int ranks, const py::function& body, double deadline, int threads_per_rank, uint64_t seed,
         std::optional<bool> checks_equality) {
        return run_python_ranks(ranks, body,
                                options_of(deadline, threads_per_rank, seed, checks_equality));
      },
      py::arg("ranks"), py::arg("body"), py::kw_only(), py::arg("deadline") = kDeadline,
      py::arg("threads_per_rank") = 0, py::arg("seed") = 0, py::arg("checks_equality") = py::none(),
      "Calls body(world) on `ranks` threads of this process, each a rank, and returns what they "
      "returned, by rank. When one raises, the others end too and its exception is raised here; "
      "so at Ctrl-C. Waits for other ranks end after `deadline` seconds with a CommError. "
      "threads_per_rank 0 shares the machine's cores evenly. checks_equality: whether tensors "
      "given to distribute are compared between ranks; None compares a sample of the first ones");
  m.def("launched_ranks", &launched_ranks,
        "Ranks of the job that this process is one rank of (weft run, mpirun, torchrun, srun); 1 "
        "for a process that is alone");
  m.def(
      "_connect",
      [](double deadline, int threads_per_rank, uint64_t seed) {
        return connect(options_of(deadline, threads_per_rank, seed, {}));
      },
      Released(), py::arg("deadline") = kDeadline, py::arg("threads_per_rank") = 0,
      py::arg("seed") = 0);
  m.def(
      "_abort", [](const Communicator& world, const std::string& why) { world.abort(why); },
      Released(), py::arg("world"), py::arg("why"));
  m.def("fake_world", &fake_world, py::arg("rank"), py::arg("size"), py::arg("ranks_per_host") = 8,
        py::arg("in_memory") = true,
        "A communicator of `size` ranks of which only `rank` exists: collectives move nothing but "
        "count the bytes that would come. For planning on clusters you do not have");
}

}  // namespace weft::python
