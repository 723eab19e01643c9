// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "weft/export.h"

namespace weft {

/// Opens on /dev/null those of the descriptors 0 to 2 (stdin, stdout, stderr) that are closed. A
/// file that is opened later gets a higher number, so that no printed text is written into it: call
/// it before a file is opened for writing, which may be long after the program has closed them.
/// `run_ranks`, `connect`, `launch` and whatever in weft writes files call it.
WEFT_API void open_standard_descriptors() noexcept;

/// Moves a descriptor that the system has just returned to the first free number from 3 on, closed
/// on exec, in case another thread closes stdin, stdout or stderr meanwhile. Returns other
/// descriptors, and negative values with their errno, as they are; -1 and errno when no number is
/// left.
WEFT_API int above_standard(int descriptor) noexcept;

/// Owns a descriptor: closes it at its end. -1: none.
class WEFT_API OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : descriptor_(other.release()) {}
  OwnedDescriptor& operator=(OwnedDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~OwnedDescriptor() { close(); }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }
  void close();

 private:
  int descriptor_;
};

/// Opens a file: above the standard descriptors, closed on exec, no terminal; a file that is made
/// has that mode. Gives -1 and errno when the system refuses.
WEFT_API OwnedDescriptor opened_descriptor(const std::string& path, int flags,
                                           unsigned mode = 0666);

}  // namespace weft
