// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/export.h"
#include "weft/mesh.h"
#include "weft/tokenizer.h"
#include "weft/transformer.h"

namespace weft {

/// Options of drawing the next token from the logits. They apply in this order, as in
/// transformers.
struct SamplingOptions {
  /// Logits of tokens that occurred are divided by it where they are positive and multiplied where
  /// they are negative. 1: no change.
  double repetition_penalty = 1;
  /// 0: the likeliest token is taken, whatever the options below.
  double temperature = 0.7;
  /// Draws from so many of the likeliest tokens only. 0: all.
  int64_t top_k = 0;
  /// Draws only from the likeliest tokens that together have this probability. 1: all.
  double top_p = 1;
  /// Draws only from tokens that have this fraction of the likeliest token's probability. 0: all.
  double min_p = 0;
  uint64_t seed = 0;
};

/// The probability of each token after the options are applied; `seen` are the tokens before.
/// std::invalid_argument names an option that is out of its range.
WEFT_API std::vector<double> next_probabilities(std::span<const double> logits,
                                                std::span<const int64_t> seen,
                                                const SamplingOptions& options);

struct GenerateOptions {
  SamplingOptions sampling = {};
  /// The most tokens to add.
  int64_t tokens = 200;
  /// Tokens that end the text; the one that does is not part of it.
  std::vector<int64_t> end_ids = {};
  /// The seed of each of several prompts. Empty: prompt i draws with `sampling.seed` + i.
  std::vector<uint64_t> seeds = {};
  /// The most of several prompts that are continued at once. The next begins where one ends.
  int64_t batch = 16;
  /// Above 0: keys and values are not kept. Each token is computed from the last `window` tokens by
  /// the model's forward, which also a fully sharded model has, and the text may be of any length.
  int64_t window = 0;
};

/// Continues `prompt`, which has at least one token, by tokens drawn from the model's distribution,
/// and returns those. Calls `use` with each at once and stops when that returns false. Keys and
/// values are kept, so the model is cut by its styles over an axis "tp" of the mesh or whole, not
/// fully sharded, and it stops at the longest sequence of the model; see `window`. Collective over
/// the mesh: the prompt, the options, the draws and the end are those of its first rank.
WEFT_API std::vector<int64_t> generate(TransformerModel& model, const DeviceMesh& mesh,
                                       std::span<const int64_t> prompt,
                                       const GenerateOptions& options = {},
                                       const std::function<bool(int64_t id)>& use = {});

/// Continues several prompts, of any lengths, together: the model computes one token of each at a
/// time, and each is continued as it would be alone with its seed. Calls `use` with the number of
/// the prompt and each token, which returns whether to go on, and with no token at the end of each.
WEFT_API std::vector<std::vector<int64_t>> generate(
    TransformerModel& model, const DeviceMesh& mesh, std::span<const std::vector<int64_t>> prompts,
    const GenerateOptions& options = {},
    const std::function<bool(size_t prompt, std::optional<int64_t> id)>& use = {});

/// The same as text: ends before the first of `stops` as well, and at the tokenizer's `end_ids()`.
/// Calls `use` after each token with the text that is complete by then, which may be empty.
WEFT_API std::string generate_text(TransformerModel& model, const DeviceMesh& mesh,
                                   const Tokenizer& tokenizer, std::span<const int64_t> prompt,
                                   const GenerateOptions& options = {},
                                   const std::vector<std::string>& stops = {},
                                   const std::function<void(const std::string& text)>& use = {});

/// Several prompts as text; the last part of each has `is_last` set.
WEFT_API std::vector<std::string> generate_text(
    TransformerModel& model, const DeviceMesh& mesh, const Tokenizer& tokenizer,
    std::span<const std::vector<int64_t>> prompts, const GenerateOptions& options = {},
    const std::vector<std::string>& stops = {},
    const std::function<void(size_t prompt, const std::string& text, bool is_last)>& use = {});

}  // namespace weft
