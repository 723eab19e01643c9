// SPDX-License-Identifier: Apache-2.0
#pragma once

// weft for programs in C (C11 or later) and, through iso_c_binding, in Fortran: the module in
// weft/fortran/weft.f90 declares the same functions. Programs in C++ include <weft/weft.h> instead.
//
//   weft_tensor a = {0}, b = {0}, c = {0};
//   if (weft_matmul(a, b, &c) != WEFT_OK) fprintf(stderr, "%s\n", weft_last_error());

#include "weft/c/core.h"
#include "weft/c/models.h"
#include "weft/c/ops.h"
#include "weft/c/tensors.h"
