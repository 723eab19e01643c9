// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"

namespace weft {

/// While an instance exists, the bits of an element of a product of matrices on the calling thread
/// do not depend on the number of its threads, and where `have_equal_parts`, nor on the numbers of
/// rows and columns, so that a product of a part has the bits of that part: the reduced dim is cut
/// at fixed places. Without it oneDNN cuts that dim by the shape and the number of threads.
class WEFT_API FixedProducts : NotCopied {
 public:
  explicit FixedProducts(bool on = true);
  ~FixedProducts();
  static bool are_on();
  /// False where oneDNN's kernels, which add in an order that depends on the shape, are not those
  /// of AVX-512.
  static bool have_equal_parts();

 private:
  bool before_;
};

}  // namespace weft
