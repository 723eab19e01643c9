// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unordered_map>
#include <variant>

#include "weft/c/core.h"
#include "weft/c/models.h"
#include "weft/c/tensors.h"
#include "weft/communicator.h"
#include "weft/error.h"
#include "weft/mesh.h"
#include "weft/shape.h"
#include "weft/tensor.h"
#include "weft/transformer.h"

namespace weft::c {

struct LoadedModel {
  DeviceMesh mesh;
  std::shared_ptr<TransformerModel> model;
};

/// An object that a handle stands for; a handle's upper byte is the index of its kind, from 1 on.
using Object = std::variant<DeviceMesh, Tensor, LoadedModel>;
enum Kind : size_t { kMesh, kTensor, kModel };

/// What the C interface keeps for a thread. Handles are numbers that are never given twice, so that
/// a freed one, or one of another thread, is found to be wrong.
struct ThreadState {
  Communicator world;
  std::unordered_map<uint64_t, Object> objects;
  /// The exception of the last call that failed, and its text.
  std::exception_ptr failure;
  std::string error;
  /// The last text that was given out.
  std::string text;

  static ThreadState& current();
};

/// One call of a C function: checks arguments, with errors that begin with the function's name.
struct Call {
  const char* function;

  /// The communicator of the calling rank; std::invalid_argument when it is not connected.
  const Communicator& world() const;
  void check(const void* pointer, const char* name) const;
  void check_at_least(int64_t least, int64_t number, const char* name) const;
  DType dtype(weft_dtype dtype) const;
  Shape shape(int ndim, const int64_t* sizes) const;

  const Tensor& tensor(weft_tensor handle, const char* name) const {
    return std::get<Tensor>(object(handle.id, kTensor, name));
  }
  Tensors tensors(int count, const weft_tensor* handles, const char* name) const;
  const DeviceMesh& mesh(weft_mesh handle) const {
    return std::get<DeviceMesh>(object(handle.id, kMesh, "mesh"));
  }
  const LoadedModel& model(weft_model handle) const {
    return std::get<LoadedModel>(object(handle.id, kModel, "model"));
  }
  void free(uint64_t id, Kind kind, const char* name) const;

 private:
  const Object& object(uint64_t id, Kind kind, const char* name) const;
};

/// Keeps an object and returns its handle's number, the next one in its lower 56 bits.
uint64_t kept(Object object);
uint64_t last_number();
/// Notes the exception that is being handled, and returns its status.
weft_status noted_failure(const char* function) noexcept;

/// The body of every function that returns a status: no exception leaves it.
template <class Body> weft_status guarded(const char* function, const Body& body) noexcept {
  try {
    body(Call{function});
    return WEFT_OK;
  } catch (...) {
    return noted_failure(function);
  }
}

/// The same for a function that makes the object of a handle: what `body` returns.
template <class Handle, class Body>
weft_status makes(const char* function, Handle* result, const Body& body) noexcept {
  return guarded(function, [&](const Call& call) {
    call.check(result, "result");
    result->id = kept(body(call));
  });
}

}  // namespace weft::c
