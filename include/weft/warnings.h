// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "weft/error.h"

namespace weft {

/// Receives a warning: one sentence without a full stop.
using WarningHandler = std::function<void(const std::string& sentence)>;

/// Sets the receiver of all warnings of this process and returns the one before; ranks call it on
/// their threads. Without one, warnings are dropped; the
/// program `weft` prints them to stderr, and Python passes them to `warnings.warn`.
WEFT_API WarningHandler set_warning_handler(WarningHandler handler);

/// Passes a sentence to the handler.
WEFT_API void give_warning(const std::string& sentence);

/// Passes all parts to the handler as one sentence.
template <class... Parts> [[gnu::cold]] void warn(const Parts&... parts) {
  give_warning(concat(parts...));
}

}  // namespace weft
