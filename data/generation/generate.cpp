// SPDX-License-Identifier: Apache-2.0
#include "weft/generate.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <random>

#include "data/generation/generation.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"

namespace weft {

using Prompt = std::vector<int64_t>;
using UseId = std::function<bool(size_t prompt, std::optional<int64_t> id)>;

static void check_prompt(const TransformerConfig& config, const std::string& name,
                         const Prompt& prompt, bool has_window) {
  if (prompt.empty()) fail("generate: ", name, " has 0 tokens, expected at least 1");
  if (!has_window && static_cast<int64_t>(prompt.size()) > config.max_sequence) {
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
  if (options.window < 0 || options.window > model.config().max_sequence) {
    fail("generate: window is ", options.window, ", expected 0 to ", model.config().max_sequence);
  }
  check_sampling(options.sampling);
  if (!options.seeds.empty() && options.seeds.size() != prompts.size()) {
    fail("generate: number of seeds is ", options.seeds.size(), ", expected that of the prompts, ",
         prompts.size());
  }
  for (size_t i = 0; i < prompts.size(); ++i) {
    check_prompt(model.config(), prompts.size() == 1 ? "the prompt" : concat("prompt ", i),
                 prompts[i], options.window > 0);
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
  std::vector<int64_t> all = {options.tokens, options.batch, options.window,
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
  options.window = all[2];
  auto at = all.begin() + 4;
  std::copy_n(at, sampling.size(), sampling.begin());
  options.sampling = std::bit_cast<SamplingOptions>(sampling);
  at += sampling.size();
  options.seeds.assign(at, at + all[3]);
  at += all[3];
  std::vector<Prompt> prompts;
  while (at != all.end()) {
    const auto size = static_cast<ptrdiff_t>(*at++);
    prompts.emplace_back(at, at + size);
    at += size;
  }
  return prompts;
}

Decoder::Decoder(TransformerModel& model, const DeviceMesh& mesh, int64_t context, int64_t window)
    : model_(model), mesh_(mesh), cache_{.context = context}, window_(window) {
  if (window == 0 && (context < 1 || context > model.config().max_sequence)) {
    fail("decode: number of tokens is ", context, ", expected 1 to ", model.config().max_sequence,
         ", those of the model");
  }
}

bool Decoder::changes_rotation(int64_t count) const {
  const RopeScaling& rope = model_.config().rope_scaling;
  return rope.kind == RopeScalingKind::longrope && position() > 0 &&
         position() <= rope.original_max && position() + count > rope.original_max;
}

Tensor Decoder::ids_of(std::span<const int64_t> tokens, int64_t rows) const {
  const Device device = model_.parameters()[0]->device();
  const int64_t length = static_cast<int64_t>(tokens.size()) / rows;
  const Tensor ids = from_values(tokens, {rows, length}, {DType::i64, device, Sharding(mesh_, {})});
  // Ranks of an axis cp share the tokens of a prompt.
  for (int axis = 0; axis < mesh_.ndim(); ++axis) {
    if (mesh_.axis_name(axis) != "cp" || length < mesh_.axis_size(axis)) continue;
    return redistributed(ids, Sharding(mesh_["cp"], {Shard(1)}));
  }
  return ids;
}

std::vector<double> Decoder::next_of_window() {
  const NoGrad no_grad;
  const int64_t seen = std::min(std::ssize(seen_), window_);
  // Causal attention keeps what pads a row from its tokens, and the shapes stay equal.
  std::vector<int64_t> row(seen_.end() - seen, seen_.end());
  row.resize(static_cast<size_t>(window_));
  return slice(model_(ids_of(row, 1)), 1, seen - 1, seen).full_tensor().to_vector<double>();
}

std::vector<double> Decoder::next(std::span<const int64_t> tokens) {
  const bool changes = changes_rotation(static_cast<int64_t>(tokens.size()));
  seen_.insert(seen_.end(), tokens.begin(), tokens.end());
  if (window_ > 0) return next_of_window();
  if (changes) {
    // All keys rotate by other frequencies from here on.
    cache_ = {.context = cache_.context};
    tokens = seen_;
  }
  return model_.decode(ids_of(tokens, 1), cache_).full_tensor().to_vector<double>();
}

std::vector<std::vector<double>> Decoder::next(std::span<Decoder* const> decoders,
                                               std::span<const int64_t> tokens) {
  std::vector<std::vector<double>> logits(decoders.size());
  std::vector<size_t> together;
  std::vector<KeyValueCache*> caches;
  std::vector<int64_t> ids;
  for (size_t i = 0; i < decoders.size(); ++i) {
    Decoder& one = *decoders[i];
    if (one.window_ > 0 || one.changes_rotation(1)) {
      logits[i] = one.next(tokens.subspan(i, 1));
      continue;
    }
    one.seen_.push_back(tokens[i]);
    together.push_back(i);
    caches.push_back(&one.cache_);
    ids.push_back(tokens[i]);
  }
  if (together.empty()) return logits;
  const Decoder& any = *decoders[together[0]];
  const Tensor made = any.model_.decode(any.ids_of(ids, static_cast<int64_t>(ids.size())), caches);
  const std::vector<double> values = made.full_tensor().to_vector<double>();
  const size_t width = values.size() / together.size();
  for (size_t row = 0; row < together.size(); ++row) {
    const auto first = values.begin() + static_cast<ptrdiff_t>(row * width);
    logits[together[row]].assign(first, first + static_cast<ptrdiff_t>(width));
  }
  return logits;
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
    const int64_t most =
        options_.window > 0 ? options_.tokens : model_.config().max_sequence - size;
    const int64_t context = size + std::min(options_.tokens, most);
    const uint64_t seed =
        options_.seeds.empty() ? options_.sampling.seed + number : options_.seeds[number];
    Row row{number, prompt.size(), prompt, Decoder(model_, mesh_, context, options_.window),
            std::mt19937_64(seed)};
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

/// The text of one prompt's tokens, up to a stop text.
struct TextOfTokens {
  TextStream stream;
  StopTexts stop;
  std::string whole = {};
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
  const StopTexts stop(stops);
  std::vector<TextOfTokens> texts;
  generate(model, mesh, prompts, options, [&](size_t i, std::optional<int64_t> id) {
    // The first rank may have more prompts.
    while (texts.size() <= i) texts.push_back({TextStream(tokenizer), stop});
    TextOfTokens& text = texts[i];
    // A model may have more rows than its tokenizer has tokens.
    const bool has_text = id && *id < tokenizer.size();
    std::string part = text.stop.push(has_text ? text.stream.push(*id)
                                      : id     ? ""
                                               : text.stream.finish());
    if (!id && !text.stop.has_stopped()) part += text.stop.finish();
    text.whole += part;
    if (use) use(i, part, !id);
    return !text.stop.has_stopped();
  });
  std::vector<std::string> whole;
  for (TextOfTokens& text : texts) whole.push_back(std::move(text.whole));
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
