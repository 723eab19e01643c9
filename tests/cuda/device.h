// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "weft/device.h"

namespace weft {

inline constexpr Device gpu{DeviceKind::cuda, 0};

/// Tests on a GPU, or on the emulated one. Without either the program skips them all.
class OnGpu : public testing::Test {};

}  // namespace weft
