// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// The values of chat templates: those of Python, as far as Jinja's sandbox shows them.

namespace weft::jinja {

struct Call;
struct Dict;
struct Function;
struct List;
struct Loop;
class Value;
using Values = std::vector<Value>;
using Named = std::vector<std::pair<std::string, Value>>;

/// A missing name, attribute or key: an empty text or list; anything else that needs its value is
/// an error. `what` names it.
struct Undefined {
  std::shared_ptr<const std::string> what;
};
struct None {};
/// A str. `safe`: a Markup, which escapes what is added to it.
struct Text {
  std::shared_ptr<const std::string> bytes;
  bool safe = false;
};

class Value {
 public:
  using Any = std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<List>,
                           std::shared_ptr<Dict>, std::shared_ptr<Loop>, std::shared_ptr<Function>>;
  Value() : any_(None{}) {}
  template <class T> Value(T any) : any_(std::move(any)) {}   // NOLINT
  Value(int any) : any_(int64_t{any}) {}                      // NOLINT
  Value(size_t any) : any_(static_cast<int64_t>(any)) {}      // NOLINT
  Value(const char* text) : Value(std::string(text)) {}       // NOLINT
  Value(std::string_view text) : Value(std::string(text)) {}  // NOLINT
  Value(std::string text, bool safe = false)                  // NOLINT
      : any_(Text{std::make_shared<const std::string>(std::move(text)), safe}) {}

  template <class T> const T* as() const { return std::get_if<T>(&any_); }
  template <class T> T* as() { return std::get_if<T>(&any_); }
  /// The object that the value points to, or null.
  template <class T> T* to() const {
    const auto* found = std::get_if<std::shared_ptr<T>>(&any_);
    return found ? found->get() : nullptr;
  }
  const std::string* text() const {
    const auto* found = as<Text>();
    return found ? found->bytes.get() : nullptr;
  }
  bool is_undefined() const { return as<Undefined>(); }
  bool is_none() const { return as<None>(); }
  bool is_safe() const { return as<Text>() && as<Text>()->safe; }
  const Any& any() const { return any_; }

 private:
  Any any_;
};

struct List {
  /// `iterator` is passed through once; the views are those of a dict.
  enum class Kind { list, tuple, keys, values, items, range, iterator };
  Kind kind = Kind::list;
  Values items = {};
  int depth = 1;
  /// That of the items and one.
  size_t weight = 1;
  bool is_used = false;
};

struct Dict {
  /// Only `set` adds one.
  std::vector<std::pair<Value, Value>> items = {};
  /// The only kind of value that is changed.
  bool is_namespace = false;
  int depth = 1;
  size_t weight = 1;
  /// The places of the items by hashes of their keys.
  std::unordered_multimap<size_t, size_t> places = {};
  const Value* find(const Value& key) const;
  void set(const Value& key, Value value);
};

struct Function {
  std::string name;
  std::function<Value(Call&)> call;
};

/// The variable `loop`.
struct Loop {
  Values items;
  size_t at = 0;
  Values changed = {};
  bool has_changed = false;
};

/// The largest depth of lists and dicts in each other.
inline constexpr int kDeepestValue = 200;
/// The bound of a template's work, and of a value's weight. The evaluation of an expression counts
/// one; a million of messages are within it.
inline constexpr size_t kMostWork = size_t{1} << 25;

/// std::invalid_argument beyond the largest depth or weight.
Value make_list(Values items, List::Kind kind = List::Kind::list);
Value make_dict(std::vector<std::pair<Value, Value>> items, bool is_namespace = false);
Value make_function(std::string name, std::function<Value(Call&)> call);

/// Python's name of the value's type.
std::string type_name(const Value& value);
bool is_true(const Value& value);
/// True when it is a list or dict, or a tuple with one in it: no dict has such a key.
bool can_change(const Value& value);
/// The values in it, those of shared lists and dicts each time, and a text by its size: the work of
/// going through it. A namespace counts one.
size_t weight_of(const Value& value);
/// The number of lists and dicts that are nested in each other.
int depth_of(const Value& value);
bool equal(const Value& a, const Value& b);
/// std::invalid_argument when Python does not order the two.
bool less(const Value& a, const Value& b);
/// A number as a double; nothing for other values. A bool is a number.
std::optional<double> number_of(const Value& value);
/// A whole number or bool; nothing for other values.
std::optional<int64_t> whole_of(const Value& value);

/// Python's str() and repr(). std::invalid_argument for values whose text is an address.
std::string text_of(const Value& value);
std::string repr_of(const Value& value);
std::string float_text(double value);
/// `json.dumps(value, ...)`; indent below 0: one line.
struct JsonStyle {
  bool ascii = false, sorted = false;
  std::string indent = {};
  bool has_indent = false;
  std::string between = ", ", colon = ": ";
};
std::string json_text(const Value& value, const JsonStyle& style);
/// The value of a JSON text; `what` begins errors.
Value value_of_json(const std::string& what, std::string_view text);

/// The characters of a text: views of one code point each.
std::vector<std::string_view> characters(std::string_view text);
size_t length_of(std::string_view text);

}  // namespace weft::jinja
