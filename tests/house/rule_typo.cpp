// SPDX-License-Identifier: Apache-2.0
// Does not compile: house/rule_typo expects the compiler to show why.
#include "weft/extend/op.h"

weft::OpSpec spec = {.name = "transpose", .rule = "a b -> b c"};
