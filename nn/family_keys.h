// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "nn/families.h"

namespace weft::families {

// Keys and names that the tables of several families list.

using C = TransformerConfig;
using Keys = std::vector<ConfigKey>;
using Names = std::vector<FileName>;
inline constexpr auto kRequired = ConfigKey::Need::required;
inline constexpr auto kOrNone = ConfigKey::Need::or_none;
inline constexpr auto kColumns = FileName::Form::columns;
inline constexpr auto kHeads = FileName::Form::heads;
inline constexpr auto kExperts = FileName::Form::experts;

Keys with(Keys keys, const Keys& more);
/// Keys that all families but GPT-2 have.
Keys sizes();
/// Keys of Llama and of the families that follow it.
Keys llama_like();
Keys attention_bias();
ConfigKey mlp_bias();
ConfigKey window();

C llama_defaults();
/// Biases everywhere, layer norms, a plain feed-forward.
C plain_defaults();
Names fused(std::string_view qkv, std::string_view gate_up);

std::vector<Family> llamas();
std::vector<Family> gemmas();
std::vector<Family> gpts();
std::vector<Family> encoders();
std::vector<Family> sparse();

}  // namespace weft::families
