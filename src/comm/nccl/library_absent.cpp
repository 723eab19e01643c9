// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/library.h"
#include "weft/error.h"

namespace weft::nccl {

bool is_present() { return false; }

// Never called: callers check `is_present` first.

[[noreturn]] static void refuse_nccl() {
  throw_runtime_error("nccl: this build of weft has no NCCL");
}

UniqueId new_id() { refuse_nccl(); }
void* begin(int, const UniqueId&, int, int) { refuse_nccl(); }
void queue(void*, std::span<const Move>, const Stream&) { refuse_nccl(); }
Status status(void*) { refuse_nccl(); }
void finish(void*) { refuse_nccl(); }
void destroy(void*) noexcept {}
void abort(void*) noexcept {}

}  // namespace weft::nccl
