// SPDX-License-Identifier: Apache-2.0
#include "weft/generate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>

#include "data/generation/decoder.h"
#include "data/generation/sampling.h"
#include "weft/error.h"

namespace weft {

using Prompt = std::vector<int64_t>;
using UseId = std::function<bool(size_t prompt, std::optional<int64_t> id)>;

static void check_prompt(const TransformerConfig& config, const std::string& name,
                         const Prompt& prompt) {
  if (prompt.empty()) fail("generate: ", name, " has 0 tokens, expected at least 1");
  if (static_cast<int64_t>(prompt.size()) > config.max_sequence) {
    fail("generate: ", name, " has ", prompt.size(), " tokens, expected at most ",
         config.max_sequence);
  }
  for (const int64_t id : prompt) {
    if (id >= 0 && id < config.vocabulary) continue;
    fail("generate: a token of ", name, " is ", id, ", expected 0 to ", config.vocabulary - 1);
  }
}

static void check_call(const TransformerModel& model, const std::vector<Prompt>& prompts,
                       const GenerateOptions& options) {
  if (options.tokens < 1) fail("generate: tokens is ", options.tokens, ", expected at least 1");
  if (options.batch < 1) fail("generate: batch is ", options.batch, ", expected at least 1");
  check_sampling(options.sampling);
  if (!options.seeds.empty() && options.seeds.size() != prompts.size()) {
    fail("generate: number of seeds is ", options.seeds.size(), ", expected that of the prompts, ",
         prompts.size());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(model.config(), prompts.size() == 1 ? "the prompt" : concat("prompt ", i),
                 prompts[i]);
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

/// Sets what the number of steps, the draws and errors follow from to that of the first rank, and
/// returns its prompts.
static std::vector<Prompt> agreed(const DeviceMesh& mesh, std::span<const Prompt> own,
                                  GenerateOptions& options) {
  using Sampling = std::array<int64_t, sizeof(SamplingOptions) / sizeof(int64_t)>;
  auto sampling = std::bit_cast<Sampling>(options.sampling);
  std::vector<int64_t> all = {options.tokens, options.batch,
                              static_cast<int64_t>(options.seeds.size())};
  all.insert(all.end(), sampling.begin(), sampling.end());
  all.insert(all.end(), options.seeds.begin(), options.seeds.end());
  for (const Prompt& prompt : own) {
    all.push_back(static_cast<int64_t>(prompt.size()));
    all.insert(all.end(), prompt.begin(), prompt.end());
  }
  all = of_first(mesh, std::move(all));
  options.tokens = all[0];
  options.batch = all[1];
  auto at = all.begin() + 3;
  std::copy_n(at, sampling.size(), sampling.begin());
  options.sampling = std::bit_cast<SamplingOptions>(sampling);
  at += sampling.size();
  options.seeds.assign(at, at + all[2]);
  at += all[2];
  std::vector<Prompt> prompts;
  while (at != all.end()) {
    const auto size = static_cast<ptrdiff_t>(*at++);
    prompts.emplace_back(at, at + size);
    at += size;
  }
  return prompts;
}

namespace {

/// Continues prompts together.
class Generation {
 public:
  Generation(TransformerModel& model, const DeviceMesh& mesh, const GenerateOptions& options,
             const UseId& use)
      : model_(model), mesh_(mesh), options_(options), use_(use) {}

  std::vector<Prompt> run(const std::vector<Prompt>& prompts) {
    made_.resize(prompts.size());
    for (size_t next = 0; next < prompts.size() || !rows_.empty();) {
      while (next < prompts.size() && static_cast<int64_t>(rows_.size()) < options_.batch) {
        rows_.push_back(begun(next, prompts[next]));
        ++next;
      }
      draw();
      advance();
    }
    return std::move(made_);
  }

 private:
  /// A prompt that is being continued.
  struct Row {
    size_t number;
    size_t begun;
    /// The prompt and the tokens added so far.
    std::vector<int64_t> all;
    Decoder decoder;
    std::mt19937_64 random;
    std::vector<double> logits = {};
  };

  Row begun(size_t number, const Prompt& prompt) const {
    const auto size = static_cast<int64_t>(prompt.size());
    const int64_t context = size + std::min(options_.tokens, model_.config().max_sequence - size);
    const uint64_t seed =
        options_.seeds.empty() ? options_.sampling.seed + number : options_.seeds[number];
    Row row{number, prompt.size(), prompt, Decoder(model_, mesh_, context), std::mt19937_64(seed)};
    row.logits = row.decoder.next(prompt);
    return row;
  }

  /// Draws a token for each row and removes the rows that have ended.
  void draw() {
    const bool is_first = mesh_.size() == 1 || mesh_.communicator().rank() == 0;
    std::vector<int64_t> drawn;
    for (Row& row : rows_) {
      const std::vector<double> weights =
          next_probabilities(row.logits, row.all, options_.sampling);
      const int64_t id =
          std::discrete_distribution<int64_t>(weights.begin(), weights.end())(row.random);
      const bool ends = std::ranges::find(options_.end_ids, id) != options_.end_ids.end();
      const bool stops = is_first && !ends && use_ && !use_(row.number, id);
      drawn.insert(drawn.end(), {id, ends, stops});
    }
    drawn = of_first(mesh_, std::move(drawn));
    std::vector<Row> going;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const int64_t id = drawn[3 * i];
      const bool ends = drawn[3 * i + 1] != 0, stops = drawn[3 * i + 2] != 0;
      if (!ends) {
        rows_[i].all.push_back(id);
        if (!is_first && use_) use_(rows_[i].number, id);
      }
      if (ends || stops || is_full(rows_[i])) {
        finish(rows_[i]);
      } else {
        going.push_back(std::move(rows_[i]));
      }
    }
    rows_ = std::move(going);
  }

  bool is_full(const Row& row) const {
    return row.decoder.position() == row.decoder.cache().context ||
           static_cast<int64_t>(row.all.size() - row.begun) == options_.tokens;
  }

  void finish(const Row& row) {
    made_[row.number].assign(row.all.begin() + static_cast<ptrdiff_t>(row.begun), row.all.end());
    if (use_) use_(row.number, std::nullopt);
  }

  /// Computes the logits that follow the last token of each row.
  void advance() {
    std::vector<Decoder*> decoders;
    std::vector<int64_t> last;
    for (Row& row : rows_) {
      decoders.push_back(&row.decoder);
      last.push_back(row.all.back());
    }
    auto logits = Decoder::next(decoders, last);
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].logits = std::move(logits[i]);
  }

  TransformerModel& model_;
  const DeviceMesh& mesh_;
  const GenerateOptions& options_;
  const UseId& use_;
  std::vector<Row> rows_;
  std::vector<Prompt> made_;
};

/// Makes text of the tokens of one prompt, up to a stop text.
class TextOfTokens {
 public:
  TextOfTokens(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : tokenizer_(&tokenizer), stream_(tokenizer), stop_(stops) {}

  bool has_stopped() const { return stop_.has_stopped(); }
  /// The text that is complete. A model may have more rows than its tokenizer has tokens.
  std::string push(int64_t id) {
    return stop_.push(id < tokenizer_->size() ? stream_.push(id) : "");
  }
  std::string finish() {
    std::string rest = stop_.push(stream_.finish());
    if (!stop_.has_stopped()) rest += stop_.finish();
    return rest;
  }

 private:
  const Tokenizer* tokenizer_;
  TextStream stream_;
  StopTexts stop_;
};

}  // namespace

std::vector<Prompt> generate(TransformerModel& model, const DeviceMesh& mesh,
                             std::span<const Prompt> own, const GenerateOptions& given,
                             const UseId& use) {
  GenerateOptions options = given;
  const std::vector<Prompt> prompts = agreed(mesh, own, options);
  check_call(model, prompts, options);
  return Generation(model, mesh, options, use).run(prompts);
}

std::vector<int64_t> generate(TransformerModel& model, const DeviceMesh& mesh,
                              std::span<const int64_t> prompt, const GenerateOptions& options,
                              const std::function<bool(int64_t id)>& use) {
  const Prompt one(prompt.begin(), prompt.end());
  const UseId each = [&](size_t, std::optional<int64_t> id) { return !id || use(*id); };
  return generate(model, mesh, std::span(&one, 1), options, use ? each : UseId())[0];
}

std::vector<std::string> generate_text(
    TransformerModel& model, const DeviceMesh& mesh, const Tokenizer& tokenizer,
    std::span<const Prompt> prompts, const GenerateOptions& given,
    const std::vector<std::string>& stops,
    const std::function<void(size_t prompt, const std::string& text, bool is_last)>& use) {
  GenerateOptions options = given;
  const auto& ends = tokenizer.end_ids();
  options.end_ids.insert(options.end_ids.end(), ends.begin(), ends.end());
  std::vector<TextOfTokens> texts;
  std::vector<std::string> whole;
  // The first rank may have more prompts.
  const auto make_texts = [&](size_t count) {
    while (texts.size() < count) texts.emplace_back(tokenizer, stops);
    whole.resize(texts.size());
  };
  make_texts(prompts.size());
  const auto made =
      generate(model, mesh, prompts, options, [&](size_t i, std::optional<int64_t> id) {
        make_texts(i + 1);
        const std::string part = id ? texts[i].push(*id) : texts[i].finish();
        whole[i] += part;
        if (use) use(i, part, !id);
        return !texts[i].has_stopped();
      });
  whole.resize(made.size());
  return whole;
}

std::string generate_text(TransformerModel& model, const DeviceMesh& mesh,
                          const Tokenizer& tokenizer, std::span<const int64_t> prompt,
                          const GenerateOptions& options, const std::vector<std::string>& stops,
                          const std::function<void(const std::string& text)>& use) {
  const Prompt one(prompt.begin(), prompt.end());
  return generate_text(model, mesh, tokenizer, std::span(&one, 1), options, stops,
                       [&](size_t, const std::string& text, bool is_last) {
                         if (use && !(is_last && text.empty())) use(text);
                       })[0];
}

}  // namespace weft
