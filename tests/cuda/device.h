// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "weft/device.h"

namespace weft {

inline constexpr Device gpu{DeviceKind::cuda, 0};

/// Tests on a GPU or the emulated device. The program skips them when there is neither.
class OnGpu : public testing::Test {};

}  // namespace weft
