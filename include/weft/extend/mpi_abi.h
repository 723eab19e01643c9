// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft {

/// The binary interface of an MPI library: Open MPI's, that of MPICH and the libraries derived from
/// it, or that of the MPI 5 standard.
enum class MpiAbi : int { openmpi, mpich, standard };

}  // namespace weft
