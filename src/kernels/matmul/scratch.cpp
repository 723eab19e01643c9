// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/matmul/scratch.h"

#include <memory>

namespace weft {

static constexpr size_t kKeptBytes = size_t{128} << 10;

struct KeptBuffer {
  size_t used = 0;
  alignas(64) std::byte bytes[kKeptBytes];
};

static KeptBuffer& kept_buffer() {
  WEFT_STATIC_TLS static thread_local std::unique_ptr<KeptBuffer> buffer;
  if (!buffer) [[unlikely]]
    buffer.reset(new KeptBuffer);  // make_unique would clear it
  return *buffer;
}

Scratch::Scratch() : mark_(kept_buffer().used) {}

Scratch::~Scratch() { kept_buffer().used = mark_; }

void* Scratch::take_bytes(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  KeptBuffer& kept = kept_buffer();
  if (bytes <= kKeptBytes - kept.used) {
    void* piece = kept.bytes + kept.used;
    kept.used += bytes;
    return piece;
  }
  PurposeScope purpose(Purpose::other);
  large_.push_back(Storage::allocate(bytes));
  return large_.back()->data();
}

}  // namespace weft
