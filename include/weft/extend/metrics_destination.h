// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "weft/export.h"

namespace weft {

/// The format of metrics: a JSON object a line, comma-separated values, or TensorBoard's events.
enum class MetricsForm : uint8_t { json_lines, csv, events };

/// A destination of metrics: the form, and the file, or the directory of event files.
struct MetricsDestination {
  MetricsForm form = MetricsForm::json_lines;
  std::string path;
};

/// The metrics that a run writes to the folder of its checkpoints.
inline std::string run_metrics(const std::string& folder) { return folder + "/metrics.jsonl"; }

/// Reads "run.jsonl", "run.csv", "tensorboard:DIR", "DIR/" or the name of a directory.
WEFT_API MetricsDestination metrics_destination(const std::string& destination);

}  // namespace weft
