// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/report.h"

#include <algorithm>
#include <cmath>
#include <iostream>

namespace weft::bench {

Spread spread_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const size_t n = times.size(), half = n / 2;
  const double median = n % 2 ? times[half] : (times[half - 1] + times[half]) / 2;
  return {median, times[n / 10], times[n - 1 - n / 10], n};
}

void print(const Line& line) { std::cout << line.dump() << std::endl; }

double rounded(double value, int digits) {
  const double factor = std::pow(10, digits);
  return std::round(value * factor) / factor;
}

int run_program(CLI::App& app, int argc, char** argv, const std::function<void()>& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    run();
    return 0;
  } catch (const std::invalid_argument& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 2;
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 1;
  }
}

}  // namespace weft::bench
