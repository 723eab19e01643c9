// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::nccl::emulated {

// Test controls of the emulated NCCL.

/// Makes the next collective hang on its streams until it is aborted.
void hang_next();
/// Makes the next moves fail, as with a broken link.
void fail_next();

}  // namespace weft::nccl::emulated
