// SPDX-License-Identifier: Apache-2.0
// Compiled as the rest of the library.
#include "src/base/processor.h"

namespace weft {

#if defined __AVX2__ && defined __FMA__
constinit const bool kNeedsX8664V3 = true;
#else
constinit const bool kNeedsX8664V3 = false;
#endif

#if defined __AVX512VL__ && defined __AVX512BW__ && defined __AVX512DQ__
constinit const bool kNeedsX8664V4 = true;
#else
constinit const bool kNeedsX8664V4 = false;
#endif

}  // namespace weft
