// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "src/comm/mpi/calls.h"
#include "weft/export.h"
#include "weft/extend/mpi_abi.h"

namespace weft {

/// The MPI library of this process, and the library by which weft calls it. Never unloaded.
class MpiLibrary : NotCopied {
 public:
  /// Returns the library of that ABI that the program has loaded. std::runtime_error when there is
  /// none, or when weft was built without its ABI.
  static const MpiLibrary& of_program(MpiAbi abi);
  /// Returns the library that the program has loaded; if there is none, loads one of the kind that
  /// the job's launcher belongs to. std::runtime_error naming what could not be loaded.
  static const MpiLibrary& of_job();
  /// Returns whether the program has initialised MPI and has not finalised it; loads nothing.
  static bool is_initialized_by_program();
  MpiLibrary(MpiAbi abi, const MpiCalls& calls, std::string name)
      : abi_(abi), calls_(calls), name_(std::move(name)) {}

  MpiAbi abi() const { return abi_; }
  const MpiCalls* operator->() const { return &calls_; }
  /// Throws std::runtime_error with the name of the call and the library unless it succeeded.
  void check(int code, const char* call) const {
    if (code != calls_.success) [[unlikely]]
      fail(code, call);
  }
  /// Throws std::runtime_error unless MPI is in use and the calling thread may call it.
  void check_thread() const;
  /// The library's name, and that of weft's library for it.
  std::string in_words() const;

 private:
  static const MpiLibrary& loaded(MpiAbi abi, void* mpi, const std::string& path);
  [[noreturn]] void fail(int code, const char* call) const;

  const MpiAbi abi_;
  const MpiCalls& calls_;
  const std::string name_;
};

}  // namespace weft
