// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "c/guarded.h"
#include "weft/mesh.h"
#include "weft/placement.h"
#include "weft/sharding.h"

namespace weft::c {

/// The axes of "rows=2,columns=3"; one without a size gets the rest of the `ranks`.
std::vector<MeshAxis> axes_in(const Call& call, const char* text, int ranks);
/// The placements of "S(0),R" or "rows=S(0)"; NULL is "".
Placements placements_in(const Call& call, const char* text);
/// The same over the mesh of a handle; without one empty.
Sharding sharding_in(const Call& call, weft_mesh mesh, const char* text, int ndim);
/// The names of "weights,bias", of which there are `count`.
std::vector<std::string> names_in(const Call& call, const char* text, int count);

}  // namespace weft::c
