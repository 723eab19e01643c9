// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/ops/along_dim.h"
#include "weft/ops/complex.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/experts.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/ops/indexing.h"
#include "weft/ops/networks.h"
#include "weft/ops/products.h"
#include "weft/ops/reductions.h"
#include "weft/ops/shapes.h"
#include "weft/ops/special.h"
