// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/prompts.h"
#include "cli/serve.h"
#include "weft/mesh.h"
#include "weft/transformer.h"

namespace weft::cli {

/// Answers each line of standard input as the next message of one conversation, until it ends.
/// std::invalid_argument names a line with which the conversation is longer than the model takes.
/// Collective; the first rank reads and prints.
void converse(const ServeOptions& options, const Prompts& prompts, TransformerModel& model,
              const DeviceMesh& mesh);

}  // namespace weft::cli
