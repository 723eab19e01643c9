// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/text_model.h"

namespace weft::text {

/// A value of a JSON file with its place, which errors name: "<what>: <place> is <actual>, expected
/// <what>".
class JsonPart {
 public:
  JsonPart(std::string what, std::string place, const nlohmann::json& value)
      : what_(std::move(what)), place_(std::move(place)), value_(&value) {}

  bool has(const char* key) const;
  /// The part below a key of an object; std::invalid_argument when it is missing or null.
  JsonPart at(const char* key) const;
  std::vector<JsonPart> elements() const;

  const std::string& text() const;
  std::string text(const char* key) const { return at(key).text(); }
  std::string text(const char* key, const std::string& otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  int64_t whole(const char* key) const { return at(key).whole(); }
  int64_t whole() const;
  /// The value as the id of one of `tokens` tokens.
  int32_t id_below(size_t tokens) const;

  const nlohmann::json& value() const { return *value_; }
  const std::string& what() const { return what_; }
  const std::string& place() const { return place_; }
  [[noreturn]] void refuse(std::string_view expected) const;

 private:
  std::string what_, place_;
  const nlohmann::json* value_;
};

/// An added token without its id.
AddedToken added_token(const JsonPart& part);

/// The most steps of a normalizer, a pre-tokenizer or a decoder.
inline constexpr size_t kMostSteps = 100;
/// Refuses a step after so many.
void check_steps(const JsonPart& part, size_t steps);
/// Names the expected value in errors about a step's type.
inline constexpr const char* kKnownType = "one that weft reads";
/// The text below a key, which is one character.
std::string character_of(const JsonPart& part, const char* key);
/// The pattern of a step: a text or an expression.
Find pattern_of(const JsonPart& part);
/// The texts before which a step puts its prefix: `prepend_scheme`, or its older spelling.
Split::Prefix prefix_of(const JsonPart& part);

// The parts of a tokenizer.json that are lists of steps.

void add_normalizer(const JsonPart& part, Normalizer& normalizer);
/// Returns whether words are bytes written as characters afterwards.
bool add_pre_tokenizer(const JsonPart& part, Splitter& splitter);
/// Fills `model.texts` from the tokens and the decoder of a tokenizer.json, which may be null.
void add_decoder(const JsonPart& root, TextModel& model);

}  // namespace weft::text
