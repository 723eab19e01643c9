// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"
#include "weft/ranks.h"

namespace weft::python {

/// Runs body(world) on threads of this process, as `run_ranks` does, and returns the ranks'
/// results. On the main thread, Ctrl-C raises KeyboardInterrupt in all ranks, and then here.
py::list run_python_ranks(int ranks, const py::function& body, const RunOptions& options);

}  // namespace weft::python
