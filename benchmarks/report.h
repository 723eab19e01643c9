// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

namespace weft::bench {

/// Statistics of several repetitions, in seconds.
struct Spread {
  double median = 0, p10 = 0, p90 = 0;
  size_t count = 0;
};
/// Needs at least one time.
Spread spread_of(std::vector<double> times);

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Seconds that one call of f() takes.
template <class F> double seconds_of(const F& f) {
  const auto start = Clock::now();
  f();
  return seconds_since(start);
}

/// A line of output; starts with bench, case, value, unit.
using Line = nlohmann::ordered_json;
/// Prints the line and flushes it.
void print(const Line& line);
/// Rounded to `digits` decimals.
double rounded(double value, int digits);

/// Parses the flags of `app` and runs the benchmark. Returns 0, 1 when it failed, 2 for invalid
/// flags.
int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& run);

/// Runs the benchmark with the flags that options.add_to() declares; its help shows `about` and
/// their defaults.
template <class Options>
int run_program(const char* name, const char* about, int argc, char** argv,
                void (*run)(const Options&)) {
  Options options;
  CLI::App app(about, name);
  app.option_defaults()->always_capture_default();
  options.add_to(app);
  return run_program(app, argc, argv, [&] { run(options); });
}

}  // namespace weft::bench
