// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// Rates of one rank of a machine, per second, while all ranks are busy.
struct Machine {
  std::string name = "cpu";
  /// Operations of matrix products, in the dtype that is computed in.
  double operations = 60e9;
  /// Bytes of memory read and written by all other ops.
  double memory_bytes = 8e9;
  /// Received from ranks of the same host, and of others.
  double host_bytes = 8e9, network_bytes = 1e9;
  /// A rank's memory; 0: not known.
  double memory = 0;
  /// A collective's wait, in seconds.
  double latency = 2e-5;
  /// Communication goes on while the rank computes; otherwise it takes the rank's own time.
  bool overlaps = false;
  /// Read from or written to files.
  double disk_bytes = 1e9;
};

/// Returns the rates of "this", measured now, for a second, with `ranks` ranks as threads of this
/// process, or of "h100", "h200" or "a100": what products and links reach in practice. `dtype` is
/// "f32" or "bf16". std::invalid_argument, which begins with `what`, for any other name.
WEFT_API Machine machine_named(const std::string& name, const std::string& dtype, int ranks,
                               const std::string& what = "machine");
/// Returns the one above that has such GPUs, by a GPU's name; nothing where none has.
WEFT_API std::optional<Machine> machine_of_device(std::string_view device_name,
                                                  const std::string& dtype);
/// Returns the operations that a device of that name does in a second at most, by its maker's data
/// sheet: dense products computed in 8 bits, bf16 or f32, TF32 off. Nothing for unknown devices.
WEFT_API std::optional<double> peak_operations(std::string_view device_name,
                                               const std::string& dtype, bool float8 = false);

}  // namespace weft
