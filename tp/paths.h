// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/module.h"

namespace weft::tp {

using NamedModules = std::vector<std::pair<std::string, Module*>>;

/// The parts of a dotted path; none of "".
std::vector<std::string> parts_of(const std::string& path);

/// True for a name of digits, as the children of a Sequential have.
bool is_number(const std::string& part);

/// Whether a dotted path is meant by `pattern`, in which `*` is any part of one name.
bool matches(const std::string& pattern, const std::string& path);

/// The modules that `pattern` means; std::invalid_argument with close paths when there are none.
NamedModules matching(const NamedModules& modules, const std::string& pattern);

}  // namespace weft::tp
