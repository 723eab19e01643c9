// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"

namespace weft::python {

void bind_memory_budget(py::module_& m);

}  // namespace weft::python
