// SPDX-License-Identifier: Apache-2.0
#include "cli/conversation.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "cli/ordered_texts.h"
#include "weft/error.h"
#include "weft/generate.h"

namespace weft::cli {

/// The next line that is not empty, with its line end; "" at the end of the input.
static std::string next_line() {
  std::string line;
  if (isatty(STDIN_FILENO)) std::fputs("> ", stderr);
  while (std::getline(std::cin, line)) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) return line + '\n';
  }
  return {};
}

void converse(const ServeOptions& options, const Prompts& prompts, TransformerModel& model,
              const DeviceMesh& mesh) {
  const Communicator& world = mesh.communicator();
  const bool prints = world.rank() == 0;
  const Tokenizer& tokenizer = *prompts.tokenizer();
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  GenerateOptions generation{.sampling = options.sampling, .tokens = options.tokens};
  for (int turn = 1;; ++turn, ++generation.sampling.seed) {
    std::string line = world.broadcast(prints ? next_line() : "", 0);
    if (line.empty()) return;
    line.pop_back();
    messages.push_back({"user", line});
    const std::vector<int64_t> ids = tokenizer.encode(tokenizer.chat(messages), false);
    check_prompt(concat("sample: the conversation up to message ", turn, " of standard input"), ids,
                 "token", model.config());
    std::optional<OrderedTexts> printed;
    if (prints) printed.emplace(std::vector<std::string>(1));
    messages.push_back({"assistant", generate_text(model, mesh, tokenizer, ids, generation,
                                                   options.stops, [&](const std::string& part) {
                                                     if (printed) printed->add(0, part);
                                                   })});
    if (printed) printed->end(0);
  }
}

}  // namespace weft::cli
