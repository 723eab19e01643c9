// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the symbols that libweft.so exports; all others are hidden.
#define WEFT_API __attribute__((visibility("default")))

/// Marks thread_local variables of hot paths: they are found without a call, in static TLS. One
/// such variable moves all of the library's thread_local variables there. A process has less than 2
/// KiB of static TLS for all libraries that are loaded late, so variables of more than a few words
/// are held by a std::unique_ptr.
#define WEFT_STATIC_TLS [[gnu::tls_model("initial-exec")]]

namespace weft {

/// The base of classes whose objects are not copied.
struct WEFT_API NotCopied {
  NotCopied() = default;
  NotCopied(const NotCopied&) = delete;
  NotCopied& operator=(const NotCopied&) = delete;
};

}  // namespace weft
