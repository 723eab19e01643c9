// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft {

/// A communicator or a request of MPI, which is a pointer or an int by MPI's ABI.
using MpiHandle = uintptr_t;

/// Bytes of MPI's longest text, with its end.
inline constexpr int kMpiTextBytes = 8192;

/// The thread levels of MPI, whose values differ between ABIs.
enum class MpiLevel : int { single, funneled, serialized, multiple };

/// The sender and the bytes of a received message.
struct MpiArrival {
  int from;
  int bytes;
};

/// The calls of MPI that weft makes. `abi.cpp` implements them in a small library for each MPI ABI,
/// which has no other symbols of weft. The functions return MPI's error codes.
struct MpiCalls {
  int success;
  MpiHandle world, null_comm, null_request;

  void (*error_text)(int code, char* text);
  void (*version)(char* text);
  int (*state)(int* is_initialized, int* is_finalized);
  /// Initialises MPI at MpiLevel::serialized, or at the level it can.
  int (*init)();
  int (*finalize)();
  int (*level)(MpiLevel* level, int* is_main_thread);
  /// Calls `end` at the start of MPI_Finalize, while MPI can still be used.
  int (*before_finalize)(void (*end)());

  int (*describe)(MpiHandle comm, int* rank, int* size, int* is_inter);
  int (*greatest_tag)(MpiHandle comm, int* tag);
  int (*duplicate)(MpiHandle comm, MpiHandle* made, MpiHandle* request);
  int (*return_errors)(MpiHandle comm);
  int (*free)(MpiHandle* comm);
  int (*all_gather)(const void* own, void* all, int bytes, MpiHandle comm, MpiHandle* request);

  int (*send)(const void* data, int bytes, int to, int tag, MpiHandle comm, MpiHandle* request);
  /// `from` is -1 for any sender.
  int (*receive)(void* data, int bytes, int from, int tag, MpiHandle comm, MpiHandle* request);
  int (*test)(MpiHandle* request, int* is_done, MpiArrival* arrival);
  int (*test_some)(int count, MpiHandle* requests, int* done, int* indices);
  /// Cancels a receive and waits for its end.
  int (*cancel)(MpiHandle* request);
};

/// The function of such a library that returns its calls into `mpi`, the handle of a loaded MPI
/// library; or null and the name of a function that this MPI lacks. Its name changes when MpiCalls
/// does.
using MpiCallsOf = const MpiCalls*(void* mpi, const char** missing);
inline constexpr const char* kMpiCallsOf = "weft_mpi_calls_1";

}  // namespace weft
