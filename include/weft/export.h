// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks the symbols that libweft.so exports; all others are hidden.
#define WEFT_API __attribute__((visibility("default")))
