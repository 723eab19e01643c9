// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// Kinds of devices. `meta` has shapes and counts bytes but holds no memory.
enum class DeviceKind : uint8_t { cpu, cuda, meta };

/// A device and its index among those of its kind.
struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

inline constexpr Device cpu{DeviceKind::cpu, 0};
inline constexpr Device meta{DeviceKind::meta, 0};

/// "cpu", "meta", "cuda" or "cuda:3".
WEFT_API Device device_named(std::string_view name);

/// Returns the number of devices of a kind that this process can use: 0 GPUs when there is none or
/// the build has no CUDA.
WEFT_API int device_count(DeviceKind kind);
/// Throws std::invalid_argument with the reason unless `device` is available.
WEFT_API void check_available(Device device);
/// Returns the vendor's name of an available GPU, "NVIDIA H100 80GB HBM3"; else "cpu" or "meta".
WEFT_API std::string device_name(Device device);

WEFT_API std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace weft
