// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace weft {

static constexpr size_t kLineBytes = 64;

#if defined(__x86_64__)

/// Writes one cache line to an aligned address.
static void write_line(std::byte* to, const std::byte* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#else
  for (size_t i = 0; i < kLineBytes; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#endif
}

void finish_bulk_writes() { _mm_sfence(); }

#else

static void write_line(std::byte* to, const std::byte* from) { std::memcpy(to, from, kLineBytes); }
void finish_bulk_writes() {}

#endif

void copy_around_caches(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  auto* out = static_cast<std::byte*>(to);
  const auto* in = static_cast<const std::byte*>(from);
  const size_t before =
      std::min(bytes, (kLineBytes - reinterpret_cast<uintptr_t>(out) % kLineBytes) % kLineBytes);
  std::memcpy(out, in, before);
  size_t at = before;
  for (; at + kLineBytes <= bytes; at += kLineBytes) write_line(out + at, in + at);
  std::memcpy(out + at, in + at, bytes - at);
}

void copy_bytes(void* to, const void* from, size_t bytes, size_t of) {
  if (of < kBulkBytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return;
  }
  copy_around_caches(to, from, bytes);
  finish_bulk_writes();
}

}  // namespace weft
