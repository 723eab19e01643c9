// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::nccl::emulated {

// What a test may ask of the NCCL that is not there.

/// The next collective never ends on its streams, until it is aborted.
void hang_next();
/// The next moves fail, as by a broken link.
void fail_next();

}  // namespace weft::nccl::emulated
