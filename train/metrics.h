// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "weft/block.h"
#include "weft/trainer.h"

namespace weft {

/// The figures of a step by name; those of one kind are members of an object.
using MetricsLine = nlohmann::ordered_json;
MetricsLine metrics_line(const StepReport& report);

/// A destination of the metrics of a run.
class MetricsWriter : NotCopied {
 public:
  virtual ~MetricsWriter() = default;
  virtual void write(const MetricsLine& line) = 0;
};

/// Opens a destination, whose errors begin with `flag`: event files of TensorBoard for
/// "tensorboard:DIR", for a path that ends with "/" and for a directory; CSV for a name that ends
/// with ".csv"; else one JSON object a step.
///
/// A run that goes on after `done` steps continues after its line of that step: later lines and a
/// torn one are cut, and TensorBoard hides later events. A run that begins at step 1 sets the file
/// of an earlier one aside. std::invalid_argument when it cannot be written.
std::unique_ptr<MetricsWriter> metrics_writer(const std::string& flag,
                                              const std::string& destination, int64_t done);

/// The same for event files alone.
std::unique_ptr<MetricsWriter> event_writer(const std::string& flag, const std::string& directory,
                                            int64_t done);

/// Calls `take(name, value)` for each number, boolean, text and null of a line, not within arrays;
/// names of members are joined by `separator`.
template <class Take>
void for_each_metric(const MetricsLine& line, char separator, const Take& take,
                     const std::string& prefix = "") {
  for (const auto& [key, value] : line.items()) {
    const std::string name = prefix + key;
    if (value.is_object()) {
      for_each_metric(value, separator, take, name + separator);
    } else if (value.is_number() || value.is_null() || value.is_string()) {
      take(name, value);
    }
  }
}

}  // namespace weft
