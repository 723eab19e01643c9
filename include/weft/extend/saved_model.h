// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <type_traits>

#include "weft/adapters.h"
#include "weft/checkpoint.h"
#include "weft/export.h"
#include "weft/state_dict.h"
#include "weft/transformer_config.h"

namespace weft {

// A run keeps, besides the weights of its model, the config, as numbers of each checkpoint, and
// in the folder "hugging_face" of the run the files of the Hugging Face model that it began with:
// config.json, generation_config.json and those of the tokenizer.

/// Adds a text to the numbers of a checkpoint, 8 bytes a number.
WEFT_API void save_text(const std::string& key, const std::string& text,
                        std::map<std::string, int64_t>& numbers);
/// Returns such a text; "" when there is none. One with other characters than those of ASCII that
/// are printed comes in quotes.
WEFT_API std::string saved_text(const std::string& key,
                                const std::map<std::string, int64_t>& numbers);

/// Calls `visit` with the name and the value of each size of a config that a checkpoint holds
/// separately.
template <class Config, class Visit> void for_saved_sizes(Config& config, const Visit& visit) {
  visit("dim", config.dim);
  visit("layers", config.layers);
  visit("heads", config.heads);
  visit("kv_heads", config.kv_heads);
  visit("head_dim", config.head_dim);
  visit("ffn", config.ffn);
  visit("vocabulary", config.vocabulary);
  visit("tied", config.tied);
  visit("rope_theta", config.rope_theta);
  visit("norm_eps", config.norm_eps);
}
/// A double, of which a checkpoint holds the bits, or a whole number.
template <class Size>
using SavedSize = std::conditional_t<std::is_same_v<Size, double>, double, int64_t>;
/// Returns the text that a checkpoint holds of a config: all choices, and no sizes that may change.
WEFT_API std::string saved_choices(const TransformerConfig& config);
/// Returns whether two such texts state the same: older versions wrote 1e15 in other digits.
WEFT_API bool are_same_choices(const std::string& a, const std::string& b);
/// Returns the numbers that a checkpoint holds of a config, by their names below "config/": sizes,
/// the bits of doubles, and the text "config".
WEFT_API std::map<std::string, int64_t> config_numbers(const TransformerConfig& config);

/// Returns the config that `weft train` or `weft ckpt import` saved among the numbers of a
/// checkpoint. std::invalid_argument names the checkpoint when there is none.
WEFT_API TransformerConfig saved_config(const std::map<std::string, int64_t>& numbers,
                                        const std::string& checkpoint);

/// Returns the options of the adapters that a checkpoint holds under keys with this prefix, with
/// their paths as targets; nullopt when it was saved without `TrainingState::add_adapters`.
WEFT_API std::optional<AdapterOptions> saved_adapters(const CheckpointContents& contents,
                                                      const std::string& prefix);

/// Fills the tensors of `into` from a checkpoint, which may have more. Rounds the elements of a
/// floating dtype to that of the tensor, 256 MiB at a time. std::invalid_argument as
/// `load_common_keys` says, and naming a tensor that is missing.
WEFT_API void load_weights(const std::string& checkpoint, const StateDict& into);

/// Returns the folder in which a run, or the run of a checkpoint, keeps its files; it may not
/// exist.
WEFT_API std::string kept_model_files(const std::string& checkpoint);

/// std::invalid_argument when the folder in `directory` that would keep files holds a model.
WEFT_API void check_kept_model_files(const std::string& directory);

/// Copies the files of a folder of a Hugging Face model, but for its weights, to the run in
/// `directory`, in place of those of another model. With an empty `from` the run has none.
WEFT_API void keep_model_files(const std::string& from, const std::string& directory);

}  // namespace weft
