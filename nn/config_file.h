// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "weft/error.h"

namespace weft {

/// A Hugging Face config.json, or an object in it. The type of every value is checked, and the keys
/// that are asked for are remembered: the others are not understood.
class ConfigFile {
 public:
  ConfigFile(std::string name, nlohmann::json json)
      : name_(std::move(name)), json_(std::move(json)) {}

  /// A key that is missing or null.
  bool lacks(const std::string& key) const { return find(key) == nullptr; }
  bool is_null(const std::string& key) const {
    return json_.contains(key) && json_.at(key).is_null();
  }
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t otherwise) const;
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  /// Returns an empty list when the key is missing or null.
  nlohmann::json list(const std::string& key) const;
  std::vector<double> numbers(const std::string& key) const;
  /// Returns std::nullopt when the key is missing or null.
  std::optional<ConfigFile> object(const std::string& key) const;
  const nlohmann::json& json() const { return json_; }

  /// Throws unless the key is missing or null, or has this value.
  void expect(const std::string& key, const nlohmann::json& value) const;
  /// Throws when a key with a value was not asked for and is not in `harmless`.
  void check_all_understood(const std::set<std::string>& harmless) const;
  template <class... Parts> [[noreturn]] void mistake(const Parts&... parts) const {
    fail(name_, ": ", parts...);
  }

 private:
  const nlohmann::json* find(const std::string& key) const;
  [[noreturn]] void wrong_type(const std::string& key, const nlohmann::json& value,
                               const char* wanted) const;

  std::string name_;
  nlohmann::json json_;
  mutable std::set<std::string> asked_;
};

}  // namespace weft
