// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace weft::text {

/// Whether a punctuation, nonspacing mark or format character was assigned after Unicode 8, by
/// whose categories BERT's normalizer and pre-tokenizer of the package `tokenizers` go. Other code
/// points may give either result.
bool is_newer_than_unicode_8(char32_t value);

}  // namespace weft::text
