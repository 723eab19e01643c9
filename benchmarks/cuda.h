// SPDX-License-Identifier: Apache-2.0
// The parts of bench_cuda.
#pragma once

#include <functional>
#include <memory>

#include "benchmarks/report.h"
#include "weft/stream.h"
#include "weft/tensor.h"
#include "weft/transformer_config.h"

namespace weft::bench {

/// A point of a device's stream and its time by the device's clock (the host's when emulated).
class Moment {
 public:
  static Moment on(const Stream& stream);
  /// Waits until the stream has reached it.
  void wait() const;
  double seconds_after(const Moment& earlier) const;

 private:
  std::shared_ptr<void> handle_;
};

/// Seconds of device time per call of f(), from several repetitions of `seconds` each. Calls follow
/// each other without waits, so that host work is hidden behind the device's if that takes longer.
Spread device_seconds(Device device, double seconds, const std::function<void()>& f);

// Direct calls of NVIDIA's libraries on the current stream of the tensors' device, for comparison
// with weft's ops. A call is prepared once and keeps its tensors; it is empty when the library is
// missing or does not support it.
using VendorCall = std::function<void()>;

/// c = a b of bf16 matrices, dense by row or by column, by cuBLASLt's first heuristic.
VendorCall cublaslt_product(const Tensor& a, const Tensor& b, const Tensor& c);

/// Causal attention of bf16 tensors with the layout of weft::attention, by a cuDNN graph: forward,
/// or forward and backward.
VendorCall cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v, bool backward);

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
