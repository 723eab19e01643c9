// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"
#include "weft/context.h"

namespace weft::python {

/// Runs body(world) on threads of this process, as `run_ranks` does. Gives what the ranks returned.
/// On the main thread Ctrl-C raises KeyboardInterrupt in all ranks, and here when they have ended.
py::list run_python_ranks(int ranks, const py::function& body, const RunOptions& options);

}  // namespace weft::python
