// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft {

/// Whether `key` is `name` or the name of something that belongs to it, "<name>.<moment>".
inline bool belongs_to(const std::string& key, const std::string& name) {
  return key == name || key.starts_with(name + ".");
}

}  // namespace weft
