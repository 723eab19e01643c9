// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <vector>

#include "python/bindings/optimizers.h"
#include "weft/ema.h"
#include "weft/loss_scaler.h"
#include "weft/schedules.h"

namespace weft::python {

/// The time in which parameters are their averages, for `with`.
struct AppliedEma {
  Ema& ema;
  std::unique_ptr<Ema::Applied> applied = {};
};

static void bind_ema(py::module_& m) {
  py::class_<Ema> ema(m, "Ema",
                      "Averages of parameters over the steps of a run: average = decay * average + "
                      "(1 - decay) * parameter; the first update copies. In float32, laid out as "
                      "the parameters");
  ema.def(py::init([](const py::object& parameters, double decay) {
            return std::make_unique<Ema>(named_parameters_of(parameters), decay);
          }),
          "parameters"_a, "decay"_a = 0.999,
          "parameters: a module, its named_parameters() or parameters()");
  def(ema, "update()", "Takes the parameters as they are now, after an optimizer's step",
      Released(), [](Ema& self) { self.update(); });
  ema.def_property("decay", &Ema::decay, &Ema::set_decay)
      .def_property_readonly("updates", &Ema::updates, "Number of updates")
      .def_property_readonly("averages", &Ema::averages, "Averages in the order of `names`");
  getter(ema, "names", "Names of the parameters", [](const Ema& self) {
    std::vector<std::string> names;
    for (const NamedParameter& named : self.parameters()) names.push_back(named.name());
    return names;
  });
  py::class_<AppliedEma> applied(m, "_AppliedEma");
  applied
      .def("__enter__",
           [](AppliedEma& self) {
             released([&] { self.applied = std::make_unique<Ema::Applied>(self.ema); });
           })
      .def("__exit__",
           [](AppliedEma& self, const py::args&) { released([&] { self.applied.reset(); }); });
  ema.def(
      "applied", [](Ema& self) { return std::make_unique<AppliedEma>(AppliedEma{self}); },
      py::keep_alive<0, 1>(), "`with ema.applied():` the parameters are their averages inside");
}

static void bind_loss_scaler(py::module_& m) {
  using O = LossScalerOptions;
  py::class_<LossScaler> scaler(m, "LossScaler",
                                "Scales a loss so that gradients of float16 neither vanish nor "
                                "overflow; GradScaler has PyTorch's methods");
  const auto make = [](const O& options) { return std::make_unique<LossScaler>(options); };
  bind_constructor<O>(scaler, make, option("init_scale", &O::scale),
                      option("growth_factor", &O::growth), option("backoff_factor", &O::backoff),
                      option("growth_interval", &O::growth_interval),
                      option("enabled", &O::enabled));
  scaler
      .def("scale", py::overload_cast<const Tensor&>(&LossScaler::scale, py::const_), Released(),
           "loss"_a)
      .def("get_scale", [](const LossScaler& self) { return self.scale(); })
      .def("unscaled", &LossScaler::unscaled, "norm"_a)
      .def("update", &LossScaler::update, "is_finite"_a)
      .def("_set", &LossScaler::set)
      .def_property_readonly("growth_tracker", &LossScaler::growth_tracker)
      .def_property_readonly("_options", [](const LossScaler& self) {
        const O& o = self.options();
        return py::make_tuple(o.growth, o.backoff, o.growth_interval, o.enabled);
      });
  def(scaler, "step(optimizer, norm, clip=None)",
      "The optimizer's step with the gradients divided by the scale, and times clip, unless norm, "
      "that of the scaled gradients, is infinite or NaN; changes the scale. Returns whether there "
      "was a step",
      Released(),
      [](LossScaler& self, Optimizer& optimizer, const Tensor& norm, const MaybeTensor& clip) {
        return self.step(optimizer, norm, clip);
      });
  py::class_<NonFinitePolicy> policy(m, "NonFinitePolicy",
                                     "Skips and counts steps whose gradients are not finite, and "
                                     "stops after several in a row");
  policy.def(py::init<int64_t>(), "stop_after"_a = 10, "0: never")
      .def("admits", &NonFinitePolicy::admits, "norm"_a,
           "Returns whether to make a step with this norm of the gradients; RuntimeError at the "
           "last of "
           "stop_after in a row that are not finite")
      .def_property_readonly("skipped", &NonFinitePolicy::skipped)
      .def_property_readonly("in_a_row", &NonFinitePolicy::in_a_row);
}

/// A schedule of C++, which Python calls.
struct BoundSchedule {
  Schedule rate;
};

static void bind_schedules(py::module_& m) {
  using O = ScheduleOptions;
  py::class_<BoundSchedule>(m, "Schedule", "A learning rate by step, counted from 0")
      .def(
          "__call__", [](const BoundSchedule& self, int64_t step) { return self.rate(step); },
          "step"_a);
  const auto make = [](const std::string& name, const O& options) {
    return BoundSchedule{schedule_named(name, options)};
  };
  bind_with_fields<O, std::string>(
      m, "schedule_named", make, "name"_a, option("peak", &O::peak), option("warmup", &O::warmup),
      option("total", &O::total), option("floor", &O::floor), py::kw_only(),
      option("from_zero", &O::from_zero), option("cosine_cycles", &O::cosine_cycles),
      option("restarts", &O::restarts), option("power", &O::power), option("decay", &O::decay),
      option("decay_type", &O::decay_type), option("timescale", &O::timescale),
      option("rising", &O::rising), option("first_divisor", &O::first_divisor),
      option("last_divisor", &O::last_divisor),
      "The schedule of that name (see schedule_names()), with the rates of "
      "transformers.get_scheduler: warm-up to `peak`, then a fall to `floor` at step `total`. "
      "from_zero=False: the first rate is peak / warmup, not 0");
  m.def("schedule_names", &schedule_names, "The names that schedule_named takes");
}

void bind_training_parts(py::module_& m) {
  bind_ema(m);
  bind_loss_scaler(m);
  bind_schedules(m);
}

}  // namespace weft::python
