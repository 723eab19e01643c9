// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// A value of a pickle.
struct Pickled {
  enum class Kind : uint8_t { none, number, real, text, list, dict, global, object, reference };
  Kind kind = Kind::none;
  /// A whole number or a bool.
  int64_t number = 0;
  double real = 0;
  /// A text, bytes, or the name of a global, "module.name".
  std::string text = {};
  /// The elements of a list, tuple or set; keys and values of a dict in turn; of an object what
  /// makes it (a global), a list of arguments and, if it is set, its state; what a persistent id
  /// names.
  std::vector<const Pickled*> items = {};

  bool is(Kind of) const { return kind == of; }
  bool is_global(std::string_view name) const { return is(Kind::global) && text == name; }
  /// An object that the global of this name makes.
  bool is_object(std::string_view maker) const {
    return is(Kind::object) && items[0]->is_global(maker);
  }
  /// A dict's value, or an object's attribute, of that name; otherwise nullptr.
  const Pickled* find(std::string_view name) const;
};

/// A pickle of Python, read without running it: a call becomes an object that holds its function's
/// name and arguments.
class Pickle {
 public:
  /// std::invalid_argument "checkpoint: <source>: ..." for malformed bytes, opcodes that pickles of
  /// data do not use, and a global that `allows` does not allow, by its name.
  Pickle(const std::string& source, std::string_view bytes,
         const std::function<bool(std::string_view global)>& allows);
  const Pickled& root() const { return *root_; }

 private:
  friend class PickleReader;
  std::deque<Pickled> values_;
  const Pickled* root_ = nullptr;
};

}  // namespace weft
