// SPDX-License-Identifier: Apache-2.0

// The calls of one MPI ABI: this source is compiled against the mpi.h of each, to a library of its
// own that refers to nothing of weft, and to MPI's functions by their names only.

// MPI's own C++ interface was removed from the standard and does not compile without warnings.
#define OMPI_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#include WEFT_MPI_HEADER

#include <dlfcn.h>

#include <bit>
#include <cstring>
#include <vector>

#include "src/comm/mpi/calls.h"

namespace weft {

#define WEFT_MPI_FUNCTIONS(X) \
  X(MPI_Cancel);              \
  X(MPI_Comm_create_keyval);  \
  X(MPI_Comm_free);           \
  X(MPI_Comm_get_attr);       \
  X(MPI_Comm_idup);           \
  X(MPI_Comm_rank);           \
  X(MPI_Comm_set_attr);       \
  X(MPI_Comm_set_errhandler); \
  X(MPI_Comm_size);           \
  X(MPI_Comm_test_inter);     \
  X(MPI_Error_string);        \
  X(MPI_Finalize);            \
  X(MPI_Finalized);           \
  X(MPI_Get_count);           \
  X(MPI_Get_library_version); \
  X(MPI_Iallgather);          \
  X(MPI_Init_thread);         \
  X(MPI_Initialized);         \
  X(MPI_Irecv);               \
  X(MPI_Is_thread_main);      \
  X(MPI_Isend);               \
  X(MPI_Query_thread);        \
  X(MPI_Test);                \
  X(MPI_Testsome);            \
  X(MPI_Wait)

// Each name hides that of the header: calls go through the loaded library.
namespace {
#define WEFT_MPI_DECLARE(name) decltype(&::name) name = nullptr
WEFT_MPI_FUNCTIONS(WEFT_MPI_DECLARE);
}  // namespace

#ifdef OPEN_MPI
/// An object of Open MPI, whose address its macros take.
struct MpiObject {
  void* address = nullptr;
  void* operator&() const { return address; }  // NOLINT(google-runtime-operator)
};
#define WEFT_MPI_OBJECTS(X)  \
  X(ompi_mpi_byte);          \
  X(ompi_mpi_comm_null);     \
  X(ompi_mpi_comm_self);     \
  X(ompi_mpi_comm_world);    \
  X(ompi_mpi_errors_return); \
  X(ompi_request_null)
#define WEFT_MPI_DECLARE_OBJECT(name) static MpiObject name
WEFT_MPI_OBJECTS(WEFT_MPI_DECLARE_OBJECT);
#endif

/// Returns the name of a function that the library lacks, or null.
static const char* load(void* mpi) {
#define WEFT_MPI_LOAD(name) \
  if (!(name = reinterpret_cast<decltype(name)>(::dlsym(mpi, #name)))) return #name
  WEFT_MPI_FUNCTIONS(WEFT_MPI_LOAD);
#ifdef OPEN_MPI
  // First the program's: a linker may have copied MPI's objects into it, which MPI then uses, too.
#define WEFT_MPI_LOAD_OBJECT(name)             \
  name.address = ::dlsym(RTLD_DEFAULT, #name); \
  if (!name.address && !(name.address = ::dlsym(mpi, #name))) return #name
  WEFT_MPI_OBJECTS(WEFT_MPI_LOAD_OBJECT);
#endif
  return nullptr;
}

// An MpiHandle holds MPI's own handle in its first bytes.
static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(MPI_Comm) <= sizeof(MpiHandle) && sizeof(MPI_Request) <= sizeof(MpiHandle));

template <class T> static T own(MpiHandle handle) {
  T value;
  std::memcpy(&value, &handle, sizeof value);
  return value;
}
template <class T> static MpiHandle handle_of(T value) {
  MpiHandle handle = 0;
  std::memcpy(&handle, &value, sizeof value);
  return handle;
}
static MPI_Comm comm_of(MpiHandle handle) { return own<MPI_Comm>(handle); }
/// MPI writes there: its handle, into memory that is otherwise 0.
template <class T> static T* into(MpiHandle* handle) {
  if (sizeof(T) < sizeof(MpiHandle)) *handle = handle_of(own<T>(*handle));
  return reinterpret_cast<T*>(handle);
}

static void error_text(int code, char* text) {
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) std::strcpy(text, "unknown error");
}

static void version(char* text) {
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) std::strcpy(text, "unknown version");
}

static int state(int* is_initialized, int* is_finalized) {
  const int code = MPI_Initialized(is_initialized);
  return code == MPI_SUCCESS ? MPI_Finalized(is_finalized) : code;
}

static int init() {
  int level = 0;
  return MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
}

static int level(MpiLevel* level, int* is_main_thread) {
  int own = MPI_THREAD_SINGLE;
  if (const int code = MPI_Query_thread(&own)) return code;
  *level = own >= MPI_THREAD_MULTIPLE     ? MpiLevel::multiple
           : own >= MPI_THREAD_SERIALIZED ? MpiLevel::serialized
           : own >= MPI_THREAD_FUNNELED   ? MpiLevel::funneled
                                          : MpiLevel::single;
  return MPI_Is_thread_main(is_main_thread);
}

static void (*end_before_finalize)() = nullptr;

/// MPI_Finalize first deletes the attributes of MPI_COMM_SELF.
static int before_finalize(void (*end)()) {
  if (end_before_finalize) return MPI_SUCCESS;
  end_before_finalize = end;
  const auto copy = [](MPI_Comm, int, void*, void*, void*, int* is_copied) -> int {
    *is_copied = 0;
    return MPI_SUCCESS;
  };
  const auto remove = [](MPI_Comm, int, void*, void*) -> int {
    end_before_finalize();
    return MPI_SUCCESS;
  };
  int key = MPI_KEYVAL_INVALID;
  if (const int code = MPI_Comm_create_keyval(copy, remove, &key, nullptr)) return code;
  return MPI_Comm_set_attr(MPI_COMM_SELF, key, nullptr);
}

static int describe(MpiHandle comm, int* rank, int* size, int* is_inter) {
  if (const int code = MPI_Comm_test_inter(comm_of(comm), is_inter)) return code;
  if (const int code = MPI_Comm_rank(comm_of(comm), rank)) return code;
  return MPI_Comm_size(comm_of(comm), size);
}

static int greatest_tag(MpiHandle comm, int* tag) {
  int* greatest = nullptr;
  int is_found = 0;
  const int code = MPI_Comm_get_attr(comm_of(comm), MPI_TAG_UB, &greatest, &is_found);
  *tag = code == MPI_SUCCESS && is_found ? *greatest : 32767;  // the standard's minimum
  return code;
}

static int duplicate(MpiHandle comm, MpiHandle* made, MpiHandle* request) {
  return MPI_Comm_idup(comm_of(comm), into<MPI_Comm>(made), into<MPI_Request>(request));
}

static int return_errors(MpiHandle comm) {
  return MPI_Comm_set_errhandler(comm_of(comm), MPI_ERRORS_RETURN);
}

static int free_comm(MpiHandle* comm) { return MPI_Comm_free(into<MPI_Comm>(comm)); }

static int all_gather(const void* own, void* all, int bytes, MpiHandle comm, MpiHandle* request) {
  return MPI_Iallgather(own, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm_of(comm),
                        into<MPI_Request>(request));
}

static int send(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request) {
  return MPI_Isend(data, bytes, MPI_BYTE, to, tag, comm_of(comm), into<MPI_Request>(request));
}

static int receive(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* request) {
  return MPI_Irecv(data, bytes, MPI_BYTE, from < 0 ? MPI_ANY_SOURCE : from, tag, comm_of(comm),
                   into<MPI_Request>(request));
}

static int test(MpiHandle* request, int* is_done, MpiArrival* arrival) {
  MPI_Status status;
  const int code = MPI_Test(into<MPI_Request>(request), is_done, &status);
  if (code != MPI_SUCCESS || !*is_done || !arrival) return code;
  arrival->from = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, &arrival->bytes);
}

static int test_some(int count, MpiHandle* requests, int* done, int* indices) {
  if constexpr (sizeof(MPI_Request) == sizeof(MpiHandle)) {
    return MPI_Testsome(count, reinterpret_cast<MPI_Request*>(requests), done, indices,
                        MPI_STATUSES_IGNORE);
  } else {
    static thread_local std::vector<MPI_Request> own_requests;
    own_requests.clear();
    for (int i = 0; i < count; ++i) own_requests.push_back(own<MPI_Request>(requests[i]));
    const int code = MPI_Testsome(count, own_requests.data(), done, indices, MPI_STATUSES_IGNORE);
    for (int i = 0; i < *done; ++i) requests[indices[i]] = handle_of(MPI_REQUEST_NULL);
    return code;
  }
}

static int cancel(MpiHandle* request) {
  if (const int code = MPI_Cancel(into<MPI_Request>(request))) return code;
  return MPI_Wait(into<MPI_Request>(request), MPI_STATUS_IGNORE);
}

static_assert(MPI_MAX_ERROR_STRING <= kMpiTextBytes);
static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= kMpiTextBytes);

extern "C" [[gnu::visibility("default")]] const MpiCalls* weft_mpi_calls_1(void* mpi,
                                                                           const char** missing) {
  *missing = load(mpi);
  if (*missing) return nullptr;
  static const MpiCalls calls{.success = MPI_SUCCESS,
                              .world = handle_of(MPI_COMM_WORLD),
                              .null_comm = handle_of(MPI_COMM_NULL),
                              .null_request = handle_of(MPI_REQUEST_NULL),
                              .error_text = error_text,
                              .version = version,
                              .state = state,
                              .init = init,
                              .finalize = MPI_Finalize,
                              .level = level,
                              .before_finalize = before_finalize,
                              .describe = describe,
                              .greatest_tag = greatest_tag,
                              .duplicate = duplicate,
                              .return_errors = return_errors,
                              .free = free_comm,
                              .all_gather = all_gather,
                              .send = send,
                              .receive = receive,
                              .test = test,
                              .test_some = test_some,
                              .cancel = cancel};
  return &calls;
}

}  // namespace weft
