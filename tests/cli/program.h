// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/command.h"
#include "weft/error.h"

namespace weft::tests {

/// Runs the program with those arguments, errors and output together. `variables` are set for it:
/// "NAME=1 ".
inline Outcome run_weft(const std::string& arguments, const std::string& variables = "") {
  return run_command(concat(variables, WEFT_PROGRAM, ' ', arguments, " 2>&1"));
}

}  // namespace weft::tests
