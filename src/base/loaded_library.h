// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <utility>

namespace weft {

/// A shared library that is loaded when one of its functions is first called. A copy that the
/// process has loaded already, by another path too, is used. It is never unloaded.
class LoadedLibrary {
 public:
  /// `file` is the name under which the dynamic linker searches; `directory` is where the library
  /// was when weft was built, tried if the search fails. `is_global`: plugins of the library refer
  /// to its symbols.
  constexpr LoadedLibrary(const char* file, const char* directory, bool is_global = false)
      : file_(file), directory_(directory), is_global_(is_global) {}

  /// The handle of dlopen. std::runtime_error when the library cannot be loaded.
  void* handle() const;
  /// std::runtime_error naming the library when it has no such symbol.
  void* symbol(const char* name) const;
  bool can_be_loaded() const noexcept;

 private:
  const char *const file_, *const directory_;
  const bool is_global_;
  mutable std::atomic<void*> handle_ = nullptr;
};

/// A function or variable of such a library, with the type and the name of its declaration.
template <class T> class Loaded {
 public:
  constexpr Loaded(const LoadedLibrary& library, const char* name)
      : library_(library), name_(name) {}

  T* get() const {
    void* address = address_.load(std::memory_order_acquire);
    if (!address) [[unlikely]]
      address_.store(address = library_.symbol(name_), std::memory_order_release);
    return reinterpret_cast<T*>(address);
  }
  template <class... Args> auto operator()(Args&&... args) const {
    return get()(std::forward<Args>(args)...);
  }
  /// Macros of <mpi.h> take the address of variables.
  T* operator&() const { return get(); }  // NOLINT(google-runtime-operator)

 private:
  const LoadedLibrary& library_;
  const char* const name_;
  mutable std::atomic<void*> address_ = nullptr;
};

}  // namespace weft

/// Declares, in a namespace of weft, a name that hides the global `name` of a library's header.
#define WEFT_LOADED(library, name) \
  inline constinit const ::weft::Loaded<decltype(::name)> name { library, #name }
