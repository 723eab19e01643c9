// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "weft/error.h"

namespace weft {

using Kind = Pickled::Kind;

const Pickled* Pickled::find(std::string_view name) const {
  const Pickled* dict = this;
  if (is(Kind::object)) dict = items.size() > 2 ? items[2] : nullptr;
  if (!dict || !dict->is(Kind::dict)) return nullptr;
  for (size_t i = 0; i < dict->items.size(); i += 2) {
    if (dict->items[i]->is(Kind::text) && dict->items[i]->text == name) return dict->items[i + 1];
  }
  return nullptr;
}

/// Runs the stack machine of the format (Python's pickletools.py documents its opcodes).
class PickleReader {
 public:
  PickleReader(Pickle& pickle, const std::string& source, std::string_view bytes,
               const std::function<bool(std::string_view)>& allows)
      : pickle_(pickle), source_(source), bytes_(bytes), allows_(allows) {}

  const Pickled* run() {
    for (;;) {
      const auto code = static_cast<uint8_t>(take(1)[0]);
      if (code == '.') return pop();
      if (!scalar(code) && !text(code) && !memo(code) && !collection(code) && !object(code)) {
        wrong(concat("opcode ", static_cast<int>(code), " at byte ", at_ - 1),
              "one that pickles of data use");
      }
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& what, const std::string& expected) const {
    fail("checkpoint: ", source_, ": the pickle has ", what, ", expected ", expected);
  }

  std::string_view take(uint64_t count) {
    if (count > bytes_.size() - at_) {
      wrong(concat("no ", count, " bytes at byte ", at_, " of ", bytes_.size()), "all of them");
    }
    const std::string_view taken = bytes_.substr(at_, count);
    at_ += count;
    return taken;
  }
  /// A little-endian number of so many bytes.
  uint64_t length(int count) {
    uint64_t value = 0;
    std::memcpy(&value, take(static_cast<uint64_t>(count)).data(), static_cast<size_t>(count));
    return value;
  }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) wrong("a line without an end", "one that ends");
    const std::string_view text = take(end - at_);
    ++at_;
    return text;
  }

  Pickled* make(Pickled value) { return &pickle_.values_.emplace_back(std::move(value)); }
  bool push(Pickled value) {
    stack_.push_back(make(std::move(value)));
    return true;
  }
  bool push_text(std::string_view text) {
    return push({.kind = Kind::text, .text = std::string(text)});
  }
  bool push_number(int64_t number) { return push({.kind = Kind::number, .number = number}); }
  Pickled* top() const {
    if (stack_.empty() || (!marks_.empty() && stack_.size() <= marks_.back())) {
      wrong("too few values on its stack", "enough");
    }
    return stack_.back();
  }
  Pickled* pop() {
    Pickled* value = top();
    stack_.pop_back();
    return value;
  }
  /// The values above the last mark, which they leave with it.
  std::vector<const Pickled*> popped_to_mark() {
    if (marks_.empty()) wrong("no mark", "one");
    const auto first = stack_.begin() + static_cast<ptrdiff_t>(marks_.back());
    std::vector<const Pickled*> values(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return values;
  }
  std::vector<const Pickled*> popped(size_t count) {
    std::vector<const Pickled*> values(count);
    while (count > 0) values[--count] = pop();
    return values;
  }

  bool scalar(uint8_t code) {
    switch (code) {
      case 0x80: return take(1), true;  // PROTO
      case 0x95: return take(8), true;  // FRAME
      case 'N': return push({});
      case 0x88: return push_number(1);
      case 0x89: return push_number(0);
      case 'J': return push_number(static_cast<int32_t>(length(4)));
      case 'K': return push_number(static_cast<int64_t>(length(1)));
      case 'M': return push_number(static_cast<int64_t>(length(2)));
      case 0x8a: return long_number();
      case 'G': {
        const uint64_t bits = __builtin_bswap64(length(8));
        return push({.kind = Kind::real, .real = std::bit_cast<double>(bits)});
      }
      default: return false;
    }
  }

  bool long_number() {
    const uint64_t count = length(1);
    if (count > 8) wrong(concat("a number of ", count, " bytes"), "one of at most 8");
    uint64_t value = length(static_cast<int>(count));
    const bool is_negative = count > 0 && count < 8 && value >> (8 * count - 1) != 0;
    if (is_negative) value |= ~uint64_t{0} << (8 * count);
    return push_number(static_cast<int64_t>(value));
  }

  bool text(uint8_t code) {
    switch (code) {
      case 0x8c:
      case 'U':
      case 'C': return push_text(take(length(1)));
      case 'X':
      case 'B':
      case 'T': return push_text(take(length(4)));
      case 0x8d:
      case 0x8e: return push_text(take(length(8)));
      default: return false;
    }
  }

  bool memo(uint8_t code) {
    switch (code) {
      case 0x94: return memo_[memo_.size()] = top(), true;
      case 'q': return memo_[length(1)] = top(), true;
      case 'r': return memo_[length(4)] = top(), true;
      case 'h': return stack_.push_back(remembered(length(1))), true;
      case 'j': return stack_.push_back(remembered(length(4))), true;
      default: return false;
    }
  }
  Pickled* remembered(uint64_t number) const {
    const auto found = memo_.find(number);
    if (found == memo_.end()) wrong(concat("no value ", number), "one that was stored before");
    return found->second;
  }

  bool push_list(std::vector<const Pickled*> items, Kind kind = Kind::list) {
    return push({.kind = kind, .items = std::move(items)});
  }
  bool add(const std::vector<const Pickled*>& items, Kind kind) {
    Pickled* to = top();
    // An OrderedDict is an object, whose items become its state.
    if (kind == Kind::dict && to->is(Kind::object)) {
      if (to->items.size() < 3) to->items.push_back(make({.kind = Kind::dict}));
      to = const_cast<Pickled*>(to->items[2]);
    }
    if (!to->is(kind) || (kind == Kind::dict && items.size() % 2 != 0)) {
      wrong("items for a value that holds none", "a list or a dict");
    }
    to->items.insert(to->items.end(), items.begin(), items.end());
    return true;
  }

  bool collection(uint8_t code) {
    switch (code) {
      case '(': return marks_.push_back(stack_.size()), true;
      case '0': return pop(), true;
      case '1': return popped_to_mark(), true;
      case '2': return stack_.push_back(top()), true;
      case ')':
      case ']':
      case 0x8f: return push_list({});
      case '}': return push_list({}, Kind::dict);
      case 0x85:
      case 0x86:
      case 0x87: return push_list(popped(code - 0x84U));
      case 't':
      case 'l':
      case 0x91: return push_list(popped_to_mark());
      case 'd': {
        const std::vector<const Pickled*> items = popped_to_mark();
        return push_list({}, Kind::dict) && add(items, Kind::dict);
      }
      case 'a': return add(popped(1), Kind::list);
      case 'e':
      case 0x90: return add(popped_to_mark(), Kind::list);
      case 's': return add(popped(2), Kind::dict);
      case 'u': return add(popped_to_mark(), Kind::dict);
      default: return false;
    }
  }

  bool push_global(std::string_view module, std::string_view name) {
    // Names are copied: a short pickle could name a long text many times.
    constexpr size_t longest = 1000;
    if (module.size() + name.size() > longest) {
      wrong(concat("a global whose name has ", module.size() + name.size(), " bytes"),
            concat("at most ", longest));
    }
    Pickled global{.kind = Kind::global, .text = concat(module, '.', name)};
    if (!allows_(global.text)) {
      wrong(concat("the global ", in_quotes(global.text)), "those of data only; it is not run");
    }
    return push(std::move(global));
  }

  /// An object of a function or class and its arguments.
  bool call(size_t arguments) {
    std::vector<const Pickled*> values = popped(arguments);
    if (arguments == 2) values.pop_back();  // NEWOBJ_EX's keywords
    values.insert(values.begin(), pop());
    if (!values[0]->is(Kind::global) || !values[1]->is(Kind::list)) {
      wrong("a call of something that has no name", "a function or class");
    }
    return push_list(std::move(values), Kind::object);
  }

  bool object(uint8_t code) {
    switch (code) {
      case 'c': {
        const std::string_view module = line();
        return push_global(module, line());
      }
      case 0x93: {
        const Pickled *name = pop(), *module = pop();
        if (!name->is(Kind::text) || !module->is(Kind::text)) {
          wrong("a global whose name is not of two texts", "texts");
        }
        return push_global(module->text, name->text);
      }
      case 0x81:
      case 'R': return call(1);
      case 0x92: return call(2);
      case 'Q': return push_list(popped(1), Kind::reference);
      case 'b': {
        const Pickled* state = pop();
        if (!top()->is(Kind::object)) wrong("a state of something that has none", "an object");
        if (top()->items.size() < 3) top()->items.push_back(state);
        return true;
      }
      default: return false;
    }
  }

  Pickle& pickle_;
  const std::string& source_;
  const std::string_view bytes_;
  const std::function<bool(std::string_view)>& allows_;
  size_t at_ = 0;
  std::vector<Pickled*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Pickled*> memo_;
};

Pickle::Pickle(const std::string& source, std::string_view bytes,
               const std::function<bool(std::string_view global)>& allows)
    : root_(PickleReader(*this, source, bytes, allows).run()) {}

}  // namespace weft
