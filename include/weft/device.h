// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string_view>

#include "weft/export.h"

namespace weft {

/// Where memory lives. `meta` has shapes and counts bytes but holds no memory.
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

WEFT_API std::ostream& operator<<(std::ostream& out, Device device);

}  // namespace weft
