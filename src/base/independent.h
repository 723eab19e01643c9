// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Placed before a loop, states that no iteration reads what another one writes, so that the
/// compiler may vectorise the loop without checks of the pointers.
#ifdef __clang__
#define WEFT_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define WEFT_INDEPENDENT _Pragma("GCC ivdep")
#endif
