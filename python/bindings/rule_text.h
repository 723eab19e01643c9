// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::python {

/// The sentence of a function, and below it the rule of the op of that name, which says the shapes:
/// the result is kept for the module's life.
const char* with_rule(const char* op, const char* text);

}  // namespace weft::python
