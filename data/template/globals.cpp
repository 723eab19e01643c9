// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <ctime>
#include <map>
#include <stdexcept>

#include "data/template/run.h"

namespace weft::jinja {

static Value range(Call& call) {
  const size_t count = call.plain.size();
  const auto bound = call.bind({"start", "stop", "step"}, 1);
  const int64_t one = whole_or(call, bound[0], 0);
  const int64_t begin = count == 1 ? 0 : one, end = count == 1 ? one : whole_or(call, bound[1], 0);
  const int64_t step = whole_or(call, bound[2], 1);
  if (step == 0) call.run.refuse("the step of range is 0, expected another number");
  static constexpr size_t kLongestRange = 100000;  // that of Jinja's sandbox
  Values items;
  for (int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (items.size() == kLongestRange) {
      call.run.refuse(concat("range has more than ", kLongestRange, " numbers, expected fewer"));
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  call.run.spend(items.size());
  return make_list(std::move(items), List::Kind::range);
}

/// dict(other, key=value) and namespace(other, key=value).
static Value dict_call(Call& call, bool is_namespace) {
  if (call.plain.size() > 1) {
    call.run.refuse(concat(call.name, " has ", call.plain.size(), " values, expected at most 1"));
  }
  std::vector<std::pair<Value, Value>> items;
  if (!call.plain.empty()) {
    const Dict* other = call.plain[0].to<Dict>();
    if (other) {
      items = other->items;
    } else {
      for (const Value& pair : call.run.elements(call.plain[0], call.name)) {
        const Values both = call.run.elements(pair, call.name);
        if (both.size() != 2) call.run.refuse(call.name, pair, "a key and a value");
        items.emplace_back(both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : call.named) items.emplace_back(name, value);
  for (const auto& [key, value] : items) {
    call.run.spend(4 + weight_of(key));
    if (!is_namespace || !key.text() || !key.text()->starts_with('_')) continue;
    call.run.refuse(
        concat("a namespace has the name ", *key.text(), ", expected none with _ first"));
  }
  call.run.spend(8);
  const Value made = make_dict(std::move(items), is_namespace);
  return is_namespace ? call.run.keep(made) : made;
}

static Value strftime_now(Call& call) {
  const std::string form = call.run.printed(*call.bind({"format"}, 1)[0]);
  const Clock& clock = call.run.clock();
  if (!clock.date.empty()) return clock.date;
  const std::time_t now = clock.time ? clock.time : std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::string text(form.size() * 16 + 64, '\0');
  call.run.spend(text.size());
  text.resize(std::strftime(text.data(), text.size(), form.c_str(), &parts));
  return text;
}

static Value raise_exception(Call& call) {
  const std::string message = call.run.printed(*call.bind({"message"}, 1)[0]);
  throw std::invalid_argument(escaped("chat: the template refuses the messages: " + message));
}

std::optional<Value> global_of(const std::string& name) {
  static const std::map<std::string, Value (*)(Call&)> globals = {
      {"range", range},
      {"dict", [](Call& call) { return dict_call(call, false); }},
      {"namespace", [](Call& call) { return dict_call(call, true); }},
      {"strftime_now", strftime_now},
      {"raise_exception", raise_exception}};
  static constexpr const char* kUnknown[] = {"lipsum", "cycler", "joiner"};
  const auto found = globals.find(name);
  if (found != globals.end()) return make_function(name, found->second);
  if (std::ranges::find(kUnknown, name) == std::end(kUnknown)) return {};
  return make_function(name, [](Call& call) -> Value {
    call.run.refuse(
        concat("the function is ", in_quotes(call.name), ", expected one that weft has"));
  });
}

}  // namespace weft::jinja
