// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace weft {

/// A reference count; T of Ref<T> inherits it.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;

  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  /// Does what `retain` does without an atomic addition, for an object that has no handle and that
  /// no other thread has seen.
  void retain_first() const { count_.store(1, std::memory_order_relaxed); }
  /// Drops a handle; true for the last. A sole handle needs no atomic write: nothing can copy it.
  bool release() const {
    return count_.load(std::memory_order_acquire) == 1 ||
           count_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  uint32_t use_count() const { return count_.load(std::memory_order_relaxed); }

 protected:
  ~RefCounted() = default;

 private:
  mutable std::atomic<uint32_t> count_{0};
};

/// Add and drop one handle. A type whose definition users never see overloads both for its pointer.
template <class T> void retain_handle(T* object) { object->RefCounted::retain(); }
template <class T> void release_handle(T* object) {
  if (object->RefCounted::release()) T::destroy(object);
}

/// An intrusive shared handle. T has a static `destroy(T*)`, called with the last handle.
template <class T> class Ref {
 public:
  Ref() = default;
  explicit Ref(T* object) : object_(object) {
    if (object_) retain_handle(object_);
  }
  /// Returns the first handle of a new object.
  static Ref first(T* object) {
    object->RefCounted::retain_first();
    return uncounted(object);
  }
  /// Returns a handle without adding to the count; its destructor subtracts one.
  static Ref uncounted(T* object) {
    Ref handle;
    handle.object_ = object;
    return handle;
  }
  Ref(const Ref& other) : Ref(other.object_) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) release_handle(object_);
  }

  T* get() const { return object_; }
  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

 private:
  T* object_ = nullptr;
};

}  // namespace weft
