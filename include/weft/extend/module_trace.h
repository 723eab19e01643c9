// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "weft/export.h"
#include "weft/tensor.h"

namespace weft {

/// Records a call of a module in the rank's trace, with the shapes of its inputs and the memory in
/// use behind it. A module is known by its address, once it has a name.
class WEFT_API ModuleTrace : NotCopied {
 public:
  /// True when the rank has a trace.
  static bool is_active();
  static bool has_name(const void* module);
  static void set_name(const void* module, const std::string& path);

  ModuleTrace(const void* module, std::span<const Tensor> inputs);
  ~ModuleTrace();

 private:
  const void* module_;
  std::span<const Tensor> inputs_;
  int64_t begin_;
};

}  // namespace weft
