// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "src/device/cuda/runtime.h"
#include "weft/error.h"
#include "weft/export.h"

namespace weft::cuda {

namespace {

constexpr size_t kLeast = size_t{64} << 10, kMost = size_t{4} << 20;

/// Pinned memory, and the end of the last copy that used it.
struct Stretch : NotCopied {
  std::byte* data = nullptr;
  size_t bytes = 0;
  Event used;

  Stretch() = default;
  ~Stretch() {
    used.synchronize_quietly();
    if (data) free_pinned(data);
  }

  void resize(size_t wanted) {
    used.synchronize();
    bytes = 0;
    if (data) free_pinned(std::exchange(data, nullptr));
    data = static_cast<std::byte*>(allocate_pinned(wanted));
    bytes = wanted;
  }
};

/// The thread's pinned buffers, used in rotation.
class Staging {
 public:
  static Staging& of_thread() {
    static thread_local const auto staging = std::make_unique<Staging>();
    return *staging;
  }

  /// Returns a buffer for up to `wanted` bytes that no copy is using.
  Stretch& next(size_t wanted) {
    Stretch& stretch = stretches_[at_++ % stretches_.size()];
    const size_t size = std::clamp(std::bit_ceil(wanted), kLeast, kMost);
    if (stretch.bytes < size) stretch.resize(size);
    stretch.used.synchronize();
    return stretch;
  }

 private:
  std::array<Stretch, 4> stretches_;
  size_t at_ = 0;
};

}  // namespace

/// A recorded copy would use the host's data of the recording in every replay.
static void check_not_recorded() {
  if (!is_capturing()) return;
  fail(
      "graph: the recorded work copies between the host and a GPU, expected no such copies; copy "
      "before and after it");
}

void send_to_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  check_not_recorded();
  for (size_t done = 0; done < bytes;) {
    Stretch& stretch = Staging::of_thread().next(bytes - done);
    const size_t part = std::min(bytes - done, stretch.bytes);
    std::memcpy(stretch.data, static_cast<const std::byte*>(from) + done, part);
    copy_to_device(static_cast<std::byte*>(to) + done, stretch.data, part, stream);
    stretch.used = Event::record(stream);
    done += part;
  }
}

namespace {

/// Bytes being copied to the host.
struct Arriving {
  Stretch* stretch = nullptr;
  size_t offset = 0, bytes = 0;

  void take(void* to) const {
    if (!stretch) return;
    stretch->used.synchronize();
    std::memcpy(static_cast<std::byte*>(to) + offset, stretch->data, bytes);
  }
};

}  // namespace

static thread_local void (*check_of_reads)() = nullptr;

void check_reads_by(void (*check)()) { check_of_reads = check; }

void read_from_device(void* to, const void* from, size_t bytes, const Stream& stream) {
  check_not_recorded();
  Arriving before;
  for (size_t done = 0; done < bytes;) {
    Stretch& stretch = Staging::of_thread().next(bytes - done);
    const Arriving arriving{&stretch, done, std::min(bytes - done, stretch.bytes)};
    copy_to_host(stretch.data, static_cast<const std::byte*>(from) + done, arriving.bytes, stream);
    stretch.used = Event::record(stream);
    std::exchange(before, arriving).take(to);
    done += arriving.bytes;
  }
  before.take(to);
  if (check_of_reads) check_of_reads();
}

}  // namespace weft::cuda
