// SPDX-License-Identifier: Apache-2.0
#include "src/base/loaded_library.h"

#include <dlfcn.h>

#include "weft/error.h"

namespace weft {

static void* open_library(const char* file, const char* directory, bool is_global) {
  const int flags = RTLD_NOW | (is_global ? RTLD_GLOBAL : RTLD_LOCAL);
  void* handle = ::dlopen(file, flags);
  return handle ? handle : ::dlopen(concat(directory, '/', file).c_str(), flags);
}

void* LoadedLibrary::handle() const {
  void* handle = handle_.load(std::memory_order_acquire);
  if (handle) return handle;
  handle = open_library(file_, directory_, is_global_);
  if (!handle) {
    const char* reason = ::dlerror();
    fail_call("dlopen", file_, " cannot be loaded; ", reason ? reason : "no reason is known");
  }
  handle_.store(handle, std::memory_order_release);
  return handle;
}

void* LoadedLibrary::symbol(const char* name) const {
  void* found = ::dlsym(handle(), name);
  if (!found) fail_call("dlsym", file_, " has no ", name, "; another version of it was loaded");
  return found;
}

bool LoadedLibrary::can_be_loaded() const noexcept {
  return open_library(file_, directory_, is_global_) != nullptr;
}

}  // namespace weft
