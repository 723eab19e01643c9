// SPDX-License-Identifier: Apache-2.0
#include "weft/schedules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "weft/error.h"

namespace weft {

namespace {

/// The parts of a run that schedules are made of.
struct Phases {
  ScheduleOptions options;

  double warming(int64_t step) const {
    const double done = static_cast<double>(options.from_zero ? step : step + 1);
    return done / static_cast<double>(options.warmup);
  }
  /// The part of the steps between warm-up and end that is over.
  double progress(int64_t step) const {
    const int64_t whole = std::max<int64_t>(1, options.total - options.warmup);
    return std::min(1.0, static_cast<double>(step - options.warmup) / static_cast<double>(whole));
  }
  /// The rate at a height from 0, the floor, to 1, the peak.
  double at_height(double height) const {
    return options.floor + (options.peak - options.floor) * height;
  }
};

}  // namespace

static double half_cosine(double way) { return 0.5 * (1 + std::cos(std::numbers::pi * way)); }

static void check_step_of(const char* what, int64_t step) {
  if (step < 0) fail(what, ": step is ", step, ", expected at least 0");
}

static void check_options(const char* what, const ScheduleOptions& o) {
  if (o.warmup < 0 || o.warmup > o.total) {
    fail(what, ": warmup is ", o.warmup, ", expected 0 to ", o.total, " steps");
  }
  if (!(o.floor >= 0) || !(o.peak >= o.floor)) {
    fail(what, ": peak and floor are ", o.peak, " and ", o.floor,
         ", expected a floor from 0 to the peak");
  }
}

/// A linear warm-up; then `height` of the phases and step; at the end the floor, if it `ends`.
template <class Height>
static Schedule after_warmup(const char* what, const ScheduleOptions& options, const Height& height,
                             bool ends = true) {
  check_options(what, options);
  return [what, height, ends, phases = Phases{options}](int64_t step) {
    check_step_of(what, step);
    const ScheduleOptions& o = phases.options;
    if (step < o.warmup) return o.peak * phases.warming(step);
    if (ends && step >= o.total) return o.floor;
    return phases.at_height(height(phases, step));
  };
}

Schedule constant_schedule(const ScheduleOptions& options) {
  ScheduleOptions without_end = options;
  without_end.total = std::max(options.total, options.warmup);
  return after_warmup(
      "constant schedule", without_end, [](const Phases&, int64_t) { return 1.0; }, false);
}

Schedule linear_schedule(const ScheduleOptions& options) {
  return after_warmup("linear schedule", options,
                      [](const Phases& phases, int64_t step) { return 1 - phases.progress(step); });
}

Schedule cosine_schedule(const ScheduleOptions& options) {
  if (!(options.cosine_cycles > 0)) {
    fail("cosine schedule: cycles are ", options.cosine_cycles, ", expected more than 0");
  }
  const auto height = [](const Phases& phases, int64_t step) {
    return half_cosine(2 * phases.options.cosine_cycles * phases.progress(step));
  };
  return after_warmup("cosine schedule", options, height, false);
}

Schedule restarts_schedule(const ScheduleOptions& options) {
  if (options.restarts < 1) {
    fail("cosine schedule with restarts: restarts are ", options.restarts, ", expected at least 1");
  }
  return after_warmup(
      "cosine schedule with restarts", options, [](const Phases& phases, int64_t step) {
        const double falls = static_cast<double>(phases.options.restarts) * phases.progress(step);
        return half_cosine(std::fmod(falls, 1.0));
      });
}

Schedule polynomial_schedule(const ScheduleOptions& options) {
  if (!(options.power > 0)) {
    fail("polynomial schedule: power is ", options.power, ", expected more than 0");
  }
  return after_warmup("polynomial schedule", options, [](const Phases& phases, int64_t step) {
    return std::pow(1 - phases.progress(step), phases.options.power);
  });
}

Schedule inverse_sqrt_schedule(const ScheduleOptions& options) {
  if (options.timescale < 0) {
    fail("inverse sqrt schedule: timescale is ", options.timescale, ", expected at least 0");
  }
  ScheduleOptions own = options;
  own.floor = 0;
  own.total = std::max(options.total, options.warmup);
  if (own.timescale == 0) own.timescale = own.warmup > 0 ? own.warmup : 10000;
  const auto height = [](const Phases& phases, int64_t step) {
    const int64_t since = step - phases.options.warmup + phases.options.timescale;
    return std::sqrt(static_cast<double>(phases.options.timescale) / static_cast<double>(since));
  };
  return after_warmup("inverse sqrt schedule", own, height, false);
}

/// The height of a fall of this type when part `way` of it is over.
static double fall(const std::string& type, double way) {
  if (type == "linear") return 1 - way;
  return type == "cosine" ? half_cosine(way) : 1 - std::sqrt(way);
}

Schedule wsd_schedule(const ScheduleOptions& options) {
  constexpr const char* kWhat = "wsd schedule";
  check_options(kWhat, options);
  if (options.decay < 0 || options.decay > options.total - options.warmup) {
    fail(kWhat, ": decay is ", options.decay, ", expected 0 to ", options.total - options.warmup,
         " steps");
  }
  const std::string& type = options.decay_type;
  if (type != "linear" && type != "cosine" && type != "1-sqrt") {
    fail(kWhat, ": decay type is ", in_quotes(type), ", expected linear, cosine or 1-sqrt");
  }
  return [phases = Phases{options}](int64_t step) {
    check_step_of(kWhat, step);
    const ScheduleOptions& o = phases.options;
    if (step < o.warmup) return phases.at_height(phases.warming(step));
    if (step < o.total - o.decay) return o.peak;
    if (step >= o.total) return o.floor;
    const auto way = static_cast<double>(step - o.total + o.decay);
    return phases.at_height(fall(o.decay_type, way / static_cast<double>(o.decay)));
  };
}

Schedule one_cycle_schedule(const ScheduleOptions& options) {
  constexpr const char* kWhat = "one-cycle schedule";
  if (!(options.rising >= 0 && options.rising <= 1) || options.total < 1) {
    fail(kWhat, ": rising part and total are ", options.rising, " and ", options.total,
         ", expected a part from 0 to 1 of at least 1 step");
  }
  if (!(options.first_divisor > 0) || !(options.last_divisor > 0)) {
    fail(kWhat, ": divisors are ", options.first_divisor, " and ", options.last_divisor,
         ", expected both above 0");
  }
  return [o = options](int64_t step) {
    check_step_of(kWhat, step);
    const double first = o.peak / o.first_divisor, last = first / o.last_divisor;
    const double top = o.rising * static_cast<double>(o.total) - 1;
    const auto end = static_cast<double>(o.total - 1), at = static_cast<double>(step);
    if (at >= end) return last;
    if (at <= top) return o.peak + (first - o.peak) * half_cosine(top > 0 ? at / top : 1);
    return last + (o.peak - last) * half_cosine((at - top) / (end - top));
  };
}

using ScheduleMaker = Schedule (*)(const ScheduleOptions&);

static const std::vector<std::pair<std::string_view, ScheduleMaker>>& named_schedules() {
  static const std::vector<std::pair<std::string_view, ScheduleMaker>> all{
      {"constant", constant_schedule},
      {"constant_with_warmup", constant_schedule},
      {"linear", linear_schedule},
      {"cosine", cosine_schedule},
      {"cosine_with_min_lr", cosine_schedule},
      {"cosine_with_restarts", restarts_schedule},
      {"polynomial", polynomial_schedule},
      {"inverse_sqrt", inverse_sqrt_schedule},
      {"wsd", wsd_schedule},
      {"warmup_stable_decay", wsd_schedule},
      {"one_cycle", one_cycle_schedule}};
  return all;
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const auto& [name, make] : named_schedules()) names.emplace_back(name);
  return names;
}

Schedule schedule_named(std::string_view name, const ScheduleOptions& options) {
  std::string known;
  for (const auto& [own, make] : named_schedules()) {
    if (own == name) return make(options);
    known += known.empty() ? std::string(own) : concat(", ", own);
  }
  fail("schedule: name is ", in_quotes(std::string(name)), ", expected ", known);
}

}  // namespace weft
