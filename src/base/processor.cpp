// SPDX-License-Identifier: Apache-2.0
// Compiled for every processor of the architecture.
#include "src/base/processor.h"

#include <unistd.h>

#include <string_view>

#if defined __x86_64__
namespace weft {

static void end_unless(bool is_supported, std::string_view what) {
  if (is_supported) return;
  static_cast<void>(::write(STDERR_FILENO, what.data(), what.size()) == 0);
  ::_exit(1);
}

/// Ends the process with a sentence before an instruction of the library that the processor lacks
/// would. Runs before the constructors of the library's objects.
[[gnu::constructor(101)]] static void check_processor() {
  __builtin_cpu_init();
  if (kNeedsX8664V3) {
    end_unless(__builtin_cpu_supports("x86-64-v3"),
               "weft: this processor is older than x86-64-v3, expected x86-64-v3 (AVX2, FMA, BMI2) "
               "or newer\n");
  }
  if (kNeedsX8664V4) {
    end_unless(
        __builtin_cpu_supports("x86-64-v4"),
        "weft: this processor has no AVX-512, expected one like that on which libweft.so was "
        "compiled; compile it with -DWEFT_NATIVE=OFF\n");
  }
}

}  // namespace weft
#endif
