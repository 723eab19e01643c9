// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "weft/export.h"

namespace weft {

/// While an instance exists, the bits of products of matrices on the calling thread do not depend
/// on the number of its threads: they are cut into tiles by their shapes only, and one thread
/// computes a tile. Without it oneDNN may cut the reduced dim, by the number of threads.
class WEFT_API FixedProducts : NotCopied {
 public:
  explicit FixedProducts(bool on = true);
  ~FixedProducts();
  static bool are_on();

 private:
  bool before_;
};

}  // namespace weft
