// SPDX-License-Identifier: Apache-2.0
#include "weft/c/core.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <new>
#include <stdexcept>
#include <utility>

#include "c/guarded.h"
#include "c/texts.h"
#include "weft/context.h"
#include "weft/ranks.h"
#include "weft/threads.h"

namespace weft::c {

ThreadState& ThreadState::current() {
  // Behind a pointer: thread-local memory is scarce in a library that is loaded late.
  struct Owner {
    ThreadState* state = nullptr;
    bool has_ended = false;
    ~Owner() {
      delete std::exchange(state, nullptr);
      has_ended = true;
    }
  };
  static thread_local Owner owner;
  // Handlers that run as the thread ends, such as those of atexit, get one without objects.
  static thread_local ThreadState* late = nullptr;
  ThreadState*& state = owner.has_ended ? late : owner.state;
  if (!state) state = new ThreadState;
  return *state;
}

static weft_status noted(const std::string& error, weft_status status) {
  ThreadState& state = ThreadState::current();
  state.failure = std::current_exception();
  state.error = error;
  return status;
}

weft_status noted_failure(const char* function) noexcept {
  try {
    try {
      throw;
    } catch (const CommError& error) {
      return noted(error.what(), WEFT_COMMUNICATION);
    } catch (const std::invalid_argument& error) {
      return noted(error.what(), WEFT_INVALID);
    } catch (const std::bad_alloc&) {
      return noted(concat(function, ": the memory is exhausted"), WEFT_MEMORY);
    } catch (const std::exception& error) {
      return noted(error.what(), WEFT_FAILED);
    } catch (...) {
      return noted(concat(function, ": an exception without a text was thrown"), WEFT_FAILED);
    }
  } catch (...) {  // no memory for the text
    return WEFT_MEMORY;
  }
}

static std::atomic<uint64_t> last_of_all = 0;

uint64_t last_number() { return last_of_all; }

uint64_t kept(Object object) {
  const uint64_t id = (static_cast<uint64_t>(object.index()) + 1) << 56 | ++last_of_all;
  ThreadState::current().objects.emplace(id, std::move(object));
  return id;
}

const Object& Call::object(uint64_t id, Kind kind, const char* name) const {
  static constexpr std::array<const char*, 3> kKinds = {"a mesh", "a tensor", "a model"};
  if (id == 0) fail(function, ": ", name, " is an empty handle, expected ", kKinds[kind]);
  const uint64_t given = (id >> 56) - 1;
  if (given != kind) {
    fail(function, ": ", name, " is ", given < kKinds.size() ? kKinds[given] : "not a handle",
         ", expected ", kKinds[kind]);
  }
  const auto& objects = ThreadState::current().objects;
  const auto found = objects.find(id);
  if (found == objects.end()) {
    fail(function, ": ", name, " is freed or of another thread, expected ", kKinds[kind],
         " that this thread made and did not free");
  }
  return found->second;
}

void Call::free(uint64_t id, Kind kind, const char* name) const {
  if (id == 0) return;
  object(id, kind, name);
  ThreadState::current().objects.erase(id);
}

Tensors Call::tensors(int count, const weft_tensor* handles, const char* name) const {
  check_at_least(1, count, "count");
  check(handles, name);
  Tensors all;
  for (int i = 0; i < count; ++i) {
    all.push_back(tensor(handles[i], concat(name, '[', i, ']').c_str()));
  }
  return all;
}

const Communicator& Call::world() const {
  const Communicator& world = ThreadState::current().world;
  if (!world) {
    fail(function, ": the calling thread is not connected, expected a rank; call weft_connect ",
         "first, or make the call in the body of weft_run");
  }
  return world;
}

void Call::check(const void* pointer, const char* name) const {
  if (!pointer) fail(function, ": ", name, " is NULL, expected an address");
}

void Call::check_at_least(int64_t least, int64_t number, const char* name) const {
  if (number < least) fail(function, ": ", name, " must be at least ", least, ", got ", number);
}

DType Call::dtype(weft_dtype dtype) const {
  if (dtype < 0 || dtype >= kDTypes) {
    fail(function, ": dtype is ", dtype, ", expected 0 to ", kDTypes - 1, ", such as WEFT_F32");
  }
  return static_cast<DType>(dtype);
}

Shape Call::shape(int ndim, const int64_t* sizes) const {
  if (ndim < 0 || ndim > kMaxDims) {
    fail(function, ": ndim is ", ndim, ", expected 0 to ", kMaxDims);
  }
  if (ndim > 0) check(sizes, "shape");
  Shape shape;
  int64_t bytes = 8;
  bool fits = true;
  for (int dim = 0; dim < ndim; ++dim) {
    check_at_least(0, sizes[dim], concat("shape[", dim, ']').c_str());
    shape.push_back(sizes[dim]);
    fits = fits && !__builtin_mul_overflow(bytes, std::max<int64_t>(sizes[dim], 1), &bytes);
  }
  if (!fits) fail(function, ": shape is ", shape, ", expected fewer than 2^60 elements");
  return shape;
}

/// Makes the thread a rank while a body runs, which ends its handles.
class RankScope : NotCopied {
 public:
  explicit RankScope(const Communicator& world) {
    before_.world = std::exchange(ThreadState::current().world, world);
    std::swap(before_.objects, ThreadState::current().objects);
  }
  ~RankScope() {
    ThreadState::current().world = before_.world;
    std::swap(before_.objects, ThreadState::current().objects);
  }

 private:
  ThreadState before_;
};

static void run_body(weft_status (*body)(void*), void* data, const Communicator& world) {
  const RankScope scope(world);
  ThreadState& state = ThreadState::current();
  state.failure = nullptr;
  const weft_status status = body(data);
  if (status == WEFT_OK) return;
  if (state.failure) std::rethrow_exception(state.failure);
  fail_call("weft_run", "the body of rank ", world.rank(), " returned status ", status,
            " although none of its calls failed");
}

}  // namespace weft::c

using weft::c::Call;
using weft::c::guarded;
using weft::c::makes;
using weft::c::ThreadState;

const char* weft_version(void) { return WEFT_VERSION; }
const char* weft_last_error(void) { return ThreadState::current().error.c_str(); }

weft_status weft_connect(void) {
  return guarded(__func__, [](const Call&) {
    ThreadState& state = ThreadState::current();
    if (!state.world) state.world = weft::connect();
  });
}

weft_status weft_disconnect(void) {
  return guarded(__func__, [](const Call&) {
    ThreadState::current().objects.clear();
    ThreadState::current().world = {};
  });
}

weft_status weft_run(int ranks, weft_status (*body)(void* data), void* data) {
  return guarded(__func__, [&](const Call& call) {
    call.check(reinterpret_cast<const void*>(body), "body");
    weft::run_world(ranks,
                    [&](const weft::Communicator& world) { weft::c::run_body(body, data, world); });
  });
}

weft_status weft_rank(int* rank) {
  return guarded(__func__, [&](const Call& call) {
    call.check(rank, "rank");
    *rank = call.world().rank();
  });
}

weft_status weft_size(int* size) {
  return guarded(__func__, [&](const Call& call) {
    call.check(size, "size");
    *size = call.world().size();
  });
}

weft_status weft_barrier(void) {
  return guarded(__func__, [](const Call& call) { call.world().barrier(); });
}

weft_status weft_manual_seed(uint64_t seed) {
  return guarded(__func__, [&](const Call&) { weft::manual_seed(seed); });
}

weft_status weft_set_num_threads(int threads) {
  return guarded(__func__, [&](const Call&) { weft::set_num_threads(threads); });
}

weft_status weft_mesh_create(const char* axes, weft_mesh* mesh) {
  return makes(__func__, mesh, [&](const Call& call) {
    const weft::Communicator& world = call.world();
    return weft::DeviceMesh(world, weft::c::axes_in(call, axes, world.size()));
  });
}

weft_status weft_mesh_axis_size(weft_mesh mesh, const char* axis, int* size) {
  return guarded(__func__, [&](const Call& call) {
    call.check(axis, "axis");
    call.check(size, "size");
    const weft::DeviceMesh& found = call.mesh(mesh);
    *size = found.axis_size(found.axis(axis));
  });
}

weft_status weft_mesh_coordinate(weft_mesh mesh, const char* axis, int* coordinate) {
  return guarded(__func__, [&](const Call& call) {
    call.check(axis, "axis");
    call.check(coordinate, "coordinate");
    const weft::DeviceMesh& found = call.mesh(mesh);
    *coordinate = found.coordinate(found.axis(axis));
  });
}

weft_status weft_mesh_free(weft_mesh mesh) {
  return guarded(__func__, [&](const Call& call) { call.free(mesh.id, weft::c::kMesh, "mesh"); });
}
