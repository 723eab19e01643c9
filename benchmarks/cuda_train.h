// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/device.h"
#include "weft/llama.h"

namespace weft::bench {

/// How the training step is measured.
struct DeviceTraining {
  LlamaConfig model;
  int64_t batch = 4;
  int64_t sequence = 2048;
  int steps = 10;
  int warmup = 3;
  /// Operations that the device does in a second at most; 0: not known.
  double peak = 0;
};

/// Steps of one rank with weights that are computed with in bf16 and kept in f32, by the FSDP
/// engine over one rank, or without it, where the program itself keeps the copies in bf16. Prints
/// one line.
void measure_training(Device device, const DeviceTraining& training, bool by_engine);

}  // namespace weft::bench
