// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "data/tokenizer/json_part.h"
#include "data/tokenizer/text_model.h"

namespace weft::text {

/// Fills `model.texts` from the tokens and the decoder of a tokenizer.json, which may be null.
void add_decoder(const JsonPart& root, TextModel& model);

}  // namespace weft::text
