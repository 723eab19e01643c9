// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "python/bindings/casters.h"
#include "weft/mesh.h"
#include "weft/ops/factories.h"

namespace weft::python {

/// Converts the keywords that all factories share, for a tensor of `ndim` dims. Without a
/// device, the mesh's or the CPU. Throws ValueError for placements without a mesh.
TensorOptions options_of(int ndim, DType dtype, const std::optional<Device>& device,
                         const std::optional<DeviceMesh>& mesh,
                         const std::optional<Placements>& placements);

}  // namespace weft::python
