// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Marks what libweft.so shows; everything else is hidden.
#define WEFT_API __attribute__((visibility("default")))
