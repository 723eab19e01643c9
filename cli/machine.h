// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/memory_budget.h"

namespace weft::cli {

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
