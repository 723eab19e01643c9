// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/tokenizer/json_part.h"
#include "data/tokenizer/text_model.h"

namespace weft::text {

/// The most steps of a normalizer, a pre-tokenizer or a decoder.
inline constexpr size_t kMostSteps = 100;

// The parts of a tokenizer.json that are lists of steps.

void add_normalizer(const JsonPart& part, Normalizer& normalizer);
/// Returns whether words are bytes written as characters afterwards.
bool add_pre_tokenizer(const JsonPart& part, Splitter& splitter);
/// Tokens that the post-processor puts around a text.
void add_template(const JsonPart& part, TextModel& model);
/// Fills `model.texts` from the tokens and the decoder of a tokenizer.json, which may be null.
void add_decoder(const JsonPart& root, TextModel& model);

}  // namespace weft::text
