// SPDX-License-Identifier: Apache-2.0
#include "weft/generate.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "data/generation/decoder.h"
#include "data/generation/stop_texts.h"
#include "weft/error.h"

namespace weft {

static void check_prompt(const TransformerModel& model, std::span<const int64_t> prompt,
                         const GenerateOptions& options) {
  const TransformerConfig& config = model.config();
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

/// The numbers of the mesh's first rank: logits, clocks and callers may differ between ranks, but
/// what they give to the model may not.
static std::vector<int64_t> of_first(const DeviceMesh& mesh, std::vector<int64_t> own) {
  if (mesh.size() == 1) return own;
  std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof own[0]);
  bytes = mesh.communicator().broadcast(std::move(bytes), 0);
  own.resize(bytes.size() / sizeof own[0]);
  std::memcpy(own.data(), bytes.data(), bytes.size());
  return own;
}

std::vector<int64_t> generate(TransformerModel& model, const DeviceMesh& mesh,
                              std::span<const int64_t> prompt, const GenerateOptions& given,
                              const std::function<bool(int64_t id)>& use) {
  std::vector<int64_t> all(prompt.begin(), prompt.end());
  all.push_back(given.tokens);
  all = of_first(mesh, std::move(all));
  GenerateOptions options = given;
  options.tokens = all.back();
  all.pop_back();
  check_prompt(model, all, options);
  const auto begun = static_cast<int64_t>(all.size());
  const int64_t context = begun + std::min(options.tokens, model.config().max_sequence - begun);
  Decoder decoder(model, mesh, context);
  std::mt19937_64 random(options.sampling.seed);
  const bool is_first = mesh.size() == 1 || mesh.communicator().rank() == 0;
  std::span<const int64_t> next = all;
  while (true) {
    const std::vector<double> weights =
        next_probabilities(decoder.next(next), all, options.sampling);
    int64_t id = std::discrete_distribution<int64_t>(weights.begin(), weights.end())(random);
    const bool ends = std::ranges::find(options.end_ids, id) != options.end_ids.end();
    const bool stops = is_first && !ends && use && !use(id);
    const std::vector<int64_t> first = of_first(mesh, {id, ends, stops});
    id = first[0];
    if (first[1] != 0) break;
    all.push_back(id);
    if (!is_first && use) use(id);
    if (first[2] != 0 || decoder.position() == context) break;
    if (static_cast<int64_t>(all.size()) - begun == options.tokens) break;
    next = std::span(all).last(1);
  }
  return {all.begin() + begun, all.end()};
}

std::string generate_text(TransformerModel& model, const DeviceMesh& mesh,
                          const Tokenizer& tokenizer, std::span<const int64_t> prompt,
                          const GenerateOptions& options, const std::vector<std::string>& stops,
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
