// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::cli {

/// Rates of one rank of a machine, per second, while all ranks are busy.
struct Machine {
  std::string name;
  /// Operations of matrix products, in the dtype that is computed in.
  double operations = 0;
  /// Bytes of memory read and written by all other ops.
  double memory_bytes = 0;
  /// Received from ranks of the same host, and of others.
  double host_bytes = 0;
  double network_bytes = 0;
  /// A rank's memory; 0: not known.
  double memory = 0;
  /// A collective's wait, in seconds.
  double latency = 0;
  /// Communication goes on while the rank computes; otherwise it takes the rank's own time.
  bool overlaps = false;
};

/// "this": measured now, for a second, with `ranks` ranks as threads of this process; "h100",
/// "h200", "a100": what products and links reach in practice. `dtype` is "f32" or "bf16".
/// std::invalid_argument for any other name.
Machine machine_named(const std::string& name, const std::string& dtype, int ranks);

/// The one above that has such GPUs, by a GPU's name; nothing where none has.
std::optional<Machine> machine_of_device(std::string_view device_name, const std::string& dtype);

/// Operations that a device of that name does in a second at most, by its maker's data sheet: dense
/// products computed in "bf16" or "f32", TF32 off. Nothing for a device that no table here has.
std::optional<double> peak_operations(std::string_view device_name, std::string_view dtype);

}  // namespace weft::cli
