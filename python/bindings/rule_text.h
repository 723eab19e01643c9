// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::python {

/// Returns a docstring: the text, followed by the sharding rule of the op of that name, which also
/// states the shapes. Valid for the life of the module.
const char* with_rule(const char* op, const char* text);

}  // namespace weft::python
