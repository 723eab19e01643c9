// SPDX-License-Identifier: Apache-2.0
#include "weft/device.h"

#include <charconv>
#include <ostream>

#include "src/device/cuda/runtime.h"
#include "weft/error.h"

namespace weft {

Device device_named(std::string_view name) {
  if (name == "cpu") return cpu;
  if (name == "meta") return meta;
  if (name == "cuda") return {DeviceKind::cuda, 0};
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix)) {
    int index = -1;
    const char* end = name.data() + name.size();
    auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0 && index < 128) {
      return {DeviceKind::cuda, static_cast<int8_t>(index)};
    }
  }
  fail("device: name is ", in_quotes(name), ", expected cpu, meta, cuda or cuda:<index>");
}

int device_count(DeviceKind kind) { return kind == DeviceKind::cuda ? cuda::device_count() : 1; }

void check_available(Device device) {
  const int count = device_count(device.kind);
  if (device.index >= 0 && device.index < count) return;
  if (count == 0) {
    fail("device: ", device, " does not exist: ", cuda::why_no_device(), "; use device cpu");
  }
  fail("device: ", device, " does not exist, expected cuda:0",
       count == 1 ? "" : concat(" to cuda:", count - 1));
}

std::string device_name(Device device) {
  if (device.kind != DeviceKind::cuda) return concat(device);
  check_available(device);
  return cuda::device_name(device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) {
  switch (device.kind) {
    case DeviceKind::cpu: return out << "cpu";
    case DeviceKind::meta: return out << "meta";
    case DeviceKind::cuda: break;
  }
  return out << "cuda:" << int{device.index};
}

}  // namespace weft
