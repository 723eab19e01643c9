// SPDX-License-Identifier: Apache-2.0
#include "src/comm/nccl/library.h"

#include <nccl.h>

#include <cstdlib>
#include <cstring>

#include "src/base/loaded_library.h"
#include "src/device/cuda/runtime.h"
#include "weft/error.h"

/// Communicators that do not block, and launch in the order of their calls.
static constexpr int kOldestVersion = NCCL_VERSION(2, 26, 0);
static_assert(NCCL_VERSION_CODE >= kOldestVersion);
static_assert(sizeof(ncclUniqueId) == sizeof(weft::nccl::UniqueId));

namespace weft::nccl {

static constinit const LoadedLibrary kLibrary(WEFT_NCCL_FILE, WEFT_NCCL_DIRECTORY);
WEFT_LOADED(kLibrary, ncclAllGather);
WEFT_LOADED(kLibrary, ncclAllReduce);
WEFT_LOADED(kLibrary, ncclBroadcast);
WEFT_LOADED(kLibrary, ncclCommAbort);
WEFT_LOADED(kLibrary, ncclCommDestroy);
WEFT_LOADED(kLibrary, ncclCommFinalize);
WEFT_LOADED(kLibrary, ncclCommGetAsyncError);
WEFT_LOADED(kLibrary, ncclCommInitRankConfig);
WEFT_LOADED(kLibrary, ncclGetErrorString);
WEFT_LOADED(kLibrary, ncclGetLastError);
WEFT_LOADED(kLibrary, ncclGetUniqueId);
WEFT_LOADED(kLibrary, ncclGroupEnd);
WEFT_LOADED(kLibrary, ncclGroupStart);
WEFT_LOADED(kLibrary, ncclRecv);
WEFT_LOADED(kLibrary, ncclReduceScatter);
WEFT_LOADED(kLibrary, ncclSend);
WEFT_LOADED(kLibrary, ncclGetVersion);

static ncclComm_t comm_of(void* communicator) { return static_cast<ncclComm_t>(communicator); }

static std::string in_words(ncclResult_t result, ncclComm_t comm) {
  return concat(ncclGetErrorString(result), " (", static_cast<int>(result),
                "): ", ncclGetLastError(comm));
}

static void check_nccl(const char* call, ncclResult_t result, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  fail_call(call, in_words(result, comm));
}

bool is_present() { return kLibrary.can_be_loaded(); }

/// Sets a variable that NCCL reads at its first use, unless the user has set it, and checks the
/// version.
static void prepare() {
  // Runs kernels of several communicators in the order of their calls, which is the same on all
  // ranks. Otherwise each could occupy the SMs that another one's peer waits for.
  static const int done = setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  static_cast<void>(done);
  // The process may have loaded another version before weft needed one.
  int version = 0;
  check_nccl("ncclGetVersion", ncclGetVersion(&version));
  if (version < kOldestVersion) {
    fail_call("ncclGetVersion", "NCCL ", version, " is loaded; expected at least ", kOldestVersion);
  }
}

UniqueId new_id() {
  prepare();
  ncclUniqueId made;
  check_nccl("ncclGetUniqueId", ncclGetUniqueId(&made));
  UniqueId id;
  std::memcpy(id.data(), &made, sizeof made);
  return id;
}

void* begin(int ranks, const UniqueId& id, int rank, int device) {
  prepare();
  cuda::use_device(device);
  ncclUniqueId given;
  std::memcpy(&given, id.data(), sizeof given);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  check_nccl("ncclCommInitRankConfig", ncclCommInitRankConfig(&comm, ranks, given, rank, &config));
  return comm;
}

static ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::i64: return ncclInt64;
    case DType::i8: return ncclInt8;
    case DType::u32: return ncclUint32;
    case DType::u64: return ncclUint64;
    // NCCL has no integers of 16 bits; their bits move as those of a half.
    case DType::i16:
    case DType::u16: return ncclFloat16;
    case DType::c64:
    case DType::c128:
      fail("nccl: dtype is ", dtype, ", expected a real one; send view_as_real of the tensor");
    default: return ncclUint8;
  }
}

static ncclRedOp_t op_of(const Move& move) {
  if (move.dtype == DType::i16 || move.dtype == DType::u16 || is_float8(move.dtype)) {
    fail("nccl: dtype of a reduction is ", move.dtype,
         ", expected one that NCCL has; cast it first");
  }
  switch (move.op) {
    case ReduceOp::avg: return ncclAvg;  // floating dtypes: multiplies each by 1/N before adding
    case ReduceOp::max: return ncclMax;
    case ReduceOp::min: return ncclMin;
    default: return move.dtype == DType::boolean ? ncclMax : ncclSum;  // the sum of bools is "any"
  }
}

/// The functions of `queued`, by kind.
static constexpr const char* kMoveCalls[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce",
                                             "ncclBroadcast", "ncclSend",          "ncclRecv"};

static ncclResult_t queued(const Move& move, ncclComm_t comm, cudaStream_t stream) {
  const auto& [kind, send, recv, elements, dtype, op, root] = move;
  const auto count = static_cast<size_t>(elements);
  const ncclDataType_t type = type_of(dtype);
  switch (kind) {
    case Move::Kind::all_gather: return ncclAllGather(send, recv, count, type, comm, stream);
    case Move::Kind::reduce_scatter:
      return ncclReduceScatter(send, recv, count, type, op_of(move), comm, stream);
    case Move::Kind::all_reduce:
      return ncclAllReduce(send, recv, count, type, op_of(move), comm, stream);
    case Move::Kind::broadcast: return ncclBroadcast(send, recv, count, type, root, comm, stream);
    case Move::Kind::send: return ncclSend(send, count, type, root, comm, stream);
    default: return ncclRecv(recv, count, type, root, comm, stream);
  }
}

void queue(void* communicator, std::span<const Move> moves, const Stream& stream) {
  cuda::use_device(stream.device.index);
  check_nccl("ncclGroupStart", ncclGroupStart());
  try {
    ncclComm_t comm = comm_of(communicator);
    for (const Move& move : moves) {
      check_nccl(kMoveCalls[static_cast<size_t>(move.kind)],
                 queued(move, comm, static_cast<cudaStream_t>(stream.handle)), comm);
    }
  } catch (...) {
    ncclGroupEnd();
    throw;
  }
  check_nccl("ncclGroupEnd", ncclGroupEnd(), comm_of(communicator));
}

Status status(void* communicator) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_of(communicator), &state);
  if (asked != ncclSuccess) state = asked;
  if (state == ncclInProgress) return {};
  if (state == ncclSuccess) return {.is_ready = true};
  return {.error = in_words(state, comm_of(communicator))};
}

void finish(void* communicator) {
  check_nccl("ncclCommFinalize", ncclCommFinalize(comm_of(communicator)), comm_of(communicator));
}

void destroy(void* communicator) noexcept { ncclCommDestroy(comm_of(communicator)); }

void abort(void* communicator) noexcept { ncclCommAbort(comm_of(communicator)); }

}  // namespace weft::nccl
