// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/json_part.h"

#include "weft/error.h"

namespace weft::text {

void JsonPart::refuse(std::string_view expected) const {
  const bool is_long = value_->is_structured();
  const std::string actual = value_->is_string() ? in_quotes(value_->get_ref<const std::string&>())
                             : is_long           ? concat("an ", value_->type_name())
                                                 : value_->dump();
  fail(what_, ": ", place_, " is ", actual, ", expected ", expected);
}

bool JsonPart::has(const char* key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPart JsonPart::at(const char* key) const {
  const std::string place = place_.empty() ? key : concat(place_, '.', key);
  if (!has(key)) fail(what_, ": ", place, " is missing, expected a value");
  return {what_, place, *value_->find(key)};
}

std::vector<JsonPart> JsonPart::elements() const {
  if (!value_->is_array()) refuse("an array");
  std::vector<JsonPart> parts;
  parts.reserve(value_->size());
  for (size_t i = 0; i < value_->size(); ++i) {
    parts.emplace_back(what_, concat(place_, '[', i, ']'), (*value_)[i]);
  }
  return parts;
}

const std::string& JsonPart::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get_ref<const std::string&>();
}

std::string JsonPart::text(const char* key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool JsonPart::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const JsonPart part = at(key);
  if (!part.value_->is_boolean()) part.refuse("true or false");
  return part.value_->get<bool>();
}

int64_t JsonPart::whole() const {
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<uint64_t>() > uint64_t{INT64_MAX})) {
    refuse("a whole number");
  }
  return value_->get<int64_t>();
}

int32_t JsonPart::id_below(size_t tokens) const {
  const int64_t id = whole();
  if (id < 0 || id >= static_cast<int64_t>(tokens)) refuse("an id of the vocabulary");
  return static_cast<int32_t>(id);
}

void check_steps(const JsonPart& part, size_t steps) {
  // Each step is a call within that of the step before it, when text is cut.
  if (steps < kMostSteps) return;
  fail(part.what(), ": ", part.place(), " is step ", steps + 1, ", expected at most ", kMostSteps,
       " steps");
}

AddedToken added_token(const JsonPart& part) {
  return {.content = part.text("content"),
          .special = part.flag("special", false),
          .single_word = part.flag("single_word", false),
          .left = part.flag("lstrip", false),
          .right = part.flag("rstrip", false)};
}

}  // namespace weft::text
