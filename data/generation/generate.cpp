// SPDX-License-Identifier: Apache-2.0
#include "weft/generate.h"

#include <algorithm>
#include <random>

#include "data/generation/decoder.h"
#include "data/generation/stop_texts.h"
#include "weft/error.h"

namespace weft {

static void check_prompt(const Llama& model, std::span<const int64_t> prompt,
                         const GenerateOptions& options) {
  const LlamaConfig& config = model.config();
  if (options.tokens < 1) fail("generate: tokens is ", options.tokens, ", expected at least 1");
  if (prompt.empty()) fail("generate: the prompt has 0 tokens, expected at least 1");
  if (static_cast<int64_t>(prompt.size()) > config.max_sequence) {
    fail("generate: the prompt has ", prompt.size(), " tokens, expected at most ",
         config.max_sequence);
  }
  for (const int64_t id : prompt) {
    if (id >= 0 && id < config.vocabulary) continue;
    fail("generate: a token of the prompt is ", id, ", expected 0 to ", config.vocabulary - 1);
  }
}

std::vector<int64_t> generate(Llama& model, const DeviceMesh& mesh, std::span<const int64_t> prompt,
                              const GenerateOptions& options,
                              const std::function<bool(int64_t id)>& use) {
  check_prompt(model, prompt, options);
  const auto begun = static_cast<int64_t>(prompt.size());
  const int64_t context = std::min(model.config().max_sequence, begun + options.tokens);
  Decoder decoder(model, mesh, context);
  std::mt19937_64 random(options.sampling.seed);
  std::vector<int64_t> all(prompt.begin(), prompt.end());
  std::span<const int64_t> next = prompt;
  while (true) {
    const std::vector<double> weights =
        next_probabilities(decoder.next(next), all, options.sampling);
    const int64_t id = std::discrete_distribution<int64_t>(weights.begin(), weights.end())(random);
    if (std::ranges::find(options.end_ids, id) != options.end_ids.end()) break;
    all.push_back(id);
    if (use && !use(id)) break;
    if (decoder.position() == context) break;
    if (static_cast<int64_t>(all.size()) == begun + options.tokens) break;
    next = std::span(all).last(1);
  }
  return {all.begin() + begun, all.end()};
}

std::string generate_text(Llama& model, const DeviceMesh& mesh, const Tokenizer& tokenizer,
                          std::span<const int64_t> prompt, const GenerateOptions& options,
                          const std::vector<std::string>& stops,
                          const std::function<void(const std::string& text)>& use) {
  GenerateOptions with_ends = options;
  const auto& ends = tokenizer.end_ids();
  with_ends.end_ids.insert(with_ends.end_ids.end(), ends.begin(), ends.end());
  TextStream stream(tokenizer);
  StopTexts stop(stops);
  std::string whole;
  const auto pass_on = [&](const std::string& text) {
    whole += text;
    if (use) use(text);
  };
  generate(model, mesh, prompt, with_ends, [&](int64_t id) {
    // A model may have more rows than its tokenizer has tokens.
    pass_on(stop.push(id < tokenizer.size() ? stream.push(id) : ""));
    return !stop.has_stopped();
  });
  std::string rest = stop.push(stream.finish());
  if (!stop.has_stopped()) rest += stop.finish();
  if (!rest.empty()) pass_on(rest);
  return whole;
}

}  // namespace weft
