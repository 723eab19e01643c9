// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the symbols that libweft.so exports; all others are hidden.
#define WEFT_API __attribute__((visibility("default")))

/// Marks thread_local variables of hot paths: they are found without a call, in static TLS, of
/// which a process has little (2 KiB for all libraries that are loaded late).
#define WEFT_STATIC_TLS [[gnu::tls_model("initial-exec")]]

namespace weft {

/// The base of classes whose objects are not copied.
struct WEFT_API NotCopied {
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;
};

}  // namespace weft
