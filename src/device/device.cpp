// SPDX-License-Identifier: Apache-2.0
#include "weft/device.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <map>
#include <ostream>
#include <utility>

#include "src/base/parallel.h"
#include "src/device/context_scope.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"
#include "weft/stream.h"

namespace weft {

Device device_named(std::string_view name) {
  if (name == "cpu") return cpu;
  if (name == "meta") return meta;
  if (name == "cuda") return {DeviceKind::cuda, 0};
  constexpr std::string_view prefix = "cuda:";
  if (name.starts_with(prefix)) {
    int index = -1;
    const char* end = name.data() + name.size();
    auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, index);
    if (error == std::errc() && stop == end && index >= 0 && index < 128) {
      return {DeviceKind::cuda, static_cast<int8_t>(index)};
    }
  }
  fail("device: name is ", in_quotes(name), ", expected cpu, meta, cuda or cuda:<index>");
}

int device_count(DeviceKind kind) { return kind == DeviceKind::cuda ? cuda::device_count() : 1; }

void check_available(Device device) {
  const int count = device_count(device.kind);
  if (device.index >= 0 && device.index < count) return;
  if (count == 0) {
    fail("device: ", device, " does not exist: ", cuda::why_no_device(), "; use device cpu");
  }
  fail("device: ", device, " does not exist, expected cuda:0",
       count == 1 ? "" : concat(" to cuda:", count - 1));
}

std::string device_name(Device device) {
  if (device.kind != DeviceKind::cuda) return concat(device);
  check_available(device);
  return cuda::device_name(device.index);
}

std::ostream& operator<<(std::ostream& out, Device device) {
  switch (device.kind) {
    case DeviceKind::cpu: return out << "cpu";
    case DeviceKind::meta: return out << "meta";
    case DeviceKind::cuda: break;
  }
  return out << "cuda:" << int{device.index};
}

namespace {

/// The streams of one thread, destroyed with it.
struct ThreadStreams {
  std::map<int, std::array<void*, kStreamRoles>> by_device;

  ~ThreadStreams() {
    for (const auto& [device, handles] : by_device) {
      for (void* handle : handles) {
        if (handle) cuda::destroy_stream(device, handle);
      }
    }
  }
};

}  // namespace

static ThreadStreams& thread_streams() {
  WEFT_STATIC_TLS thread_local const auto streams = std::make_unique<ThreadStreams>();
  return *streams;
}

bool cuda::is_side(const Stream& stream) {
  if (!stream.handle || stream.device.kind != DeviceKind::cuda) return false;
  const auto& all = thread_streams().by_device;
  const auto found = all.find(stream.device.index);
  return found != all.end() &&
         found->second[static_cast<size_t>(StreamRole::side)] == stream.handle;
}

Stream stream_for(Device device, StreamRole role) {
  if (device.kind != DeviceKind::cuda) return {};
  ThreadStreams& streams = thread_streams();
  const auto of_device = streams.by_device.find(device.index);
  if (of_device == streams.by_device.end()) check_available(device);
  cuda::use_device(device.index);
  void*& handle = streams.by_device[device.index][static_cast<size_t>(role)];
  if (!handle) [[unlikely]]
    handle = cuda::create_stream(device.index);
  return {device, handle};
}

Stream current_stream(Device device) {
  const Stream& given = Context::current().stream;
  // A Context on the CPU has a null stream handle.
  if (!given.handle || given.device != device) return stream_for(device, StreamRole::compute);
  cuda::use_device(device.index);
  return given;
}

StreamScope::StreamScope(const Stream& stream)
    : before_(std::exchange(Context::current().stream, stream)) {}

StreamScope::~StreamScope() { Context::current().stream = before_; }

Event Event::record(const Stream& stream) {
  Event event;
  if (stream.device.kind != DeviceKind::cuda) return event;
  event.handle_ = {cuda::create_event(stream), cuda::destroy_event};
  return event;
}

void Event::wait(const Stream& stream) const {
  if (!handle_) return;
  if (stream.device.kind == DeviceKind::cuda) {
    cuda::wait_event(stream, handle_.get());
  } else {
    synchronize();
  }
}

bool Event::is_reached() const { return !handle_ || cuda::event_done(handle_.get()); }

void Event::synchronize() const {
  if (!handle_) return;
  if (cuda::is_capturing()) {
    fail(
        "graph: the host waits for the GPU in the recorded work, expected no wait; such as for "
        "what is kept on the host");
  }
  cuda::synchronize_event(handle_.get());
}

void Event::synchronize_quietly() const noexcept {
  try {
    if (handle_ && !cuda::is_capturing()) cuda::synchronize_event(handle_.get());
  } catch (const std::exception&) {
  }
}

constinit thread_local Context* Context::current_ = nullptr;

/// A child of fork lacks its parent's OpenMP threads, and a parallel region would wait for them.
WEFT_STATIC_TLS static thread_local bool is_without_threads = false;
static void use_one_thread() {
  is_without_threads = true;
  omp_set_num_threads(1);
  Context::current().threads = 1;
}
static const int use_one_thread_in_children = pthread_atfork(nullptr, nullptr, use_one_thread);

int usable_by_caller(int threads) { return is_without_threads ? 1 : threads; }

/// The default context of a thread without a ContextScope; destroyed before its other locals.
struct DefaultContext {
  Context context;
  ContextScope scope{context};
  DefaultContext() { context.threads = omp_get_max_threads(); }
};

Context& Context::of_thread() {
  static thread_local const auto made = std::make_unique<DefaultContext>();
  return made->context;
}

static std::atomic<bool>& is_deterministic() {
  static std::atomic<bool> on{[] {
    const char* asked = std::getenv("WEFT_DETERMINISTIC");
    return asked && std::string_view(asked) == "1";
  }()};
  return on;
}

void use_deterministic_algorithms(bool on) { is_deterministic() = on; }
bool uses_deterministic_algorithms() { return is_deterministic(); }

void manual_seed(uint64_t seed) { Context::current().random = {seed, 0}; }

}  // namespace weft
