// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/device.h"
#include "weft/transformer.h"

namespace weft::bench {

/// Parameters of the training measurement.
struct DeviceTraining {
  TransformerConfig model;
  int64_t batch = 4;
  int64_t sequence = 2048;
  int steps = 10;
  int warmup = 3;
  /// The device's peak operations per second; 0 if unknown.
  double peak = 0;
};

/// Measures training steps of one rank with weights in f32 and computation in bf16, by the FSDP
/// engine over one rank or without it, where the program keeps the bf16 copies. Prints one line.
void measure_training(Device device, const DeviceTraining& training, bool by_engine);

}  // namespace weft::bench
