// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "weft/module.h"

namespace weft::tp {

using NamedModules = std::vector<std::pair<std::string, Module*>>;

/// Returns the parts of a dotted path; none for "".
std::vector<std::string> parts_of(const std::string& path);

/// True for a name of digits, like those of the children of a Sequential.
bool is_number(const std::string& part);

/// Whether `pattern` matches a dotted path; `*` matches any part of one name.
bool matches(const std::string& pattern, const std::string& path);

/// Returns the modules that `pattern` matches; std::invalid_argument lists close paths if none
/// does.
NamedModules matching(const NamedModules& modules, const std::string& pattern);

}  // namespace weft::tp
