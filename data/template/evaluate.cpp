// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/template/run.h"

namespace weft::jinja {

/// The largest depth of expressions, tags and macros that run in each other.
static constexpr int kDeepestRun = 800;

Run::Deeper::Deeper(Run& run) : run_(run) {
  if (++run_.depth_ <= kDeepestRun) return;
  --run_.depth_;
  run_.refuse(weft::concat("tags, macros and expressions run ", kDeepestRun + 1,
                           " deep in each other, expected at most ", kDeepestRun));
}

void Run::spend(size_t units) {
  spent_ += std::min(units, kMostWork + 1);
  if (spent_ <= kMostWork) return;
  refuse(weft::concat("the template takes more than ", kMostWork, " steps, expected fewer"));
}

bool Run::are_equal(const Value& a, const Value& b) {
  spend(std::min(weight_of(a), weight_of(b)));
  return equal(a, b);
}

bool Run::is_less(const Value& a, const Value& b) {
  // Each level of lists is compared for equality first.
  const int levels = std::max(1, std::min(depth_of(a), depth_of(b)));
  spend(std::min(weight_of(a), weight_of(b)) * static_cast<size_t>(levels));
  return less(a, b);
}

/// The work of making the text of a value, where each level copies the texts in it.
static size_t work_of_text(const Value& value) {
  size_t weight = weight_of(value);
  if (const Dict* dict = value.to<Dict>(); dict && dict->is_namespace) {
    for (const auto& [key, item] : dict->items) weight += weight_of(key) + weight_of(item);
  }
  const bool is_plain = weight == 1 || value.text();
  return is_plain ? weight : weight * static_cast<size_t>(4 + depth_of(value) / 4);
}

std::string Run::printed(const Value& value) {
  spend(work_of_text(value));
  return text_of(value);
}

std::string Run::repr(const Value& value) {
  spend(work_of_text(value));
  return repr_of(value);
}

void Run::refuse(std::string_view op, const Value& value, std::string_view expected) const {
  if (const auto* missing = value.as<Undefined>()) {
    refuse(weft::concat(*missing->what, " is undefined, expected ", expected, " for ", op));
  }
  refuse(weft::concat(op, " has a value of the type ", type_name(value), ", expected ", expected));
}

Value Run::variable(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope; scope = scope->around.get()) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return value;
    }
  }
  if (const auto global = global_of(name)) return *global;
  return Undefined{std::make_shared<const std::string>(in_quotes(name))};
}

Value Run::evaluate(const Expression& expression) {
  using Kind = Expression::Kind;
  const Deeper deeper(*this);
  line_ = expression.line;
  spend(1);
  const auto part = [&](size_t at) { return evaluate(*expression.parts[at]); };
  switch (expression.kind) {
    case Kind::constant: return expression.value;
    case Kind::name: return variable(expression.text);
    case Kind::list:
    case Kind::tuple: {
      Values items;
      for (const auto& item : expression.parts) items.push_back(evaluate(*item));
      return make_list(std::move(items),
                       expression.kind == Kind::list ? List::Kind::list : List::Kind::tuple);
    }
    case Kind::dict: return dict_of(expression);
    case Kind::attribute: return attribute(part(0), expression.text);
    case Kind::item: {
      const Value value = part(0);
      if (expression.parts[1]->kind == Kind::slice) return slice_of(value, *expression.parts[1]);
      return item(value, part(1));
    }
    case Kind::slice: refuse("a key has a slice in a tuple, expected a slice alone");
    case Kind::call: return called(expression);
    case Kind::filter: return filtered(expression, {});
    case Kind::test: {
      Call call{*this, expression.text, {part(0)}};
      add_arguments(expression, call);
      return test(expression.text, call);
    }
    case Kind::negate: {
      const Value value = part(0);
      return value.as<double>() ? Value(-*value.as<double>()) : binary("-", 0, value);
    }
    case Kind::plus: return binary("+", 0, part(0));
    case Kind::invert: return !is_true(part(0));
    case Kind::binary: {
      const Value left = part(0);
      return binary(expression.text, left, part(1));
    }
    case Kind::concat: return concatenated(expression);
    case Kind::compare: return compared(expression);
    case Kind::both: {
      const Value left = part(0);
      return is_true(left) ? part(1) : left;
    }
    case Kind::either: {
      const Value left = part(0);
      return is_true(left) ? left : part(1);
    }
    case Kind::choice:
      if (is_true(part(0))) return part(1);
      if (expression.parts[2]) return part(2);
      return Undefined{std::make_shared<const std::string>("the value of an if without else")};
  }
  return {};
}

Value Run::dict_of(const Expression& expression) {
  std::vector<std::pair<Value, Value>> items;
  for (size_t i = 0; i < expression.parts.size(); i += 2) {
    Value key = evaluate(*expression.parts[i]);
    spend(weight_of(key));
    if (can_change(key)) refuse("a dict", key, "a key that cannot change");
    items.emplace_back(std::move(key), evaluate(*expression.parts[i + 1]));
  }
  return make_dict(std::move(items));
}

Value Run::concatenated(const Expression& expression) {
  std::string made;
  for (const auto& part : expression.parts) {
    made += printed(evaluate(*part));
    spend_text(made.size());
  }
  return made;
}

Value Run::compared(const Expression& expression) {
  Value left = evaluate(*expression.parts[0]);
  for (size_t i = 0; i < expression.signs.size(); ++i) {
    const std::string& sign = expression.signs[i];
    Value right = evaluate(*expression.parts[i + 1]);
    const auto ordered = [&](const Value& a, const Value& b) {
      if (a.is_undefined()) refuse("an order", a, "a value");
      if (b.is_undefined()) refuse("an order", b, "a value");
      return is_less(a, b);
    };
    const bool holds = sign == "=="   ? are_equal(left, right)
                       : sign == "!=" ? !are_equal(left, right)
                       : sign == "<"  ? ordered(left, right)
                       : sign == ">"  ? ordered(right, left)
                       : sign == "<=" ? ordered(left, right) || are_equal(left, right)
                       : sign == ">=" ? ordered(right, left) || are_equal(left, right)
                                      : contains(right, left) == (sign == "in");
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

void Run::add_arguments(const Expression& expression, Call& call) {
  for (const Argument& argument : expression.arguments) {
    Value value = evaluate(*argument.value);
    const Dict* dict = value.to<Dict>();
    switch (argument.kind) {
      case Argument::Kind::plain: call.plain.push_back(std::move(value)); break;
      case Argument::Kind::named: call.named.emplace_back(argument.name, std::move(value)); break;
      case Argument::Kind::all:
        for (Value& item : elements(value, "a call")) call.plain.push_back(std::move(item));
        break;
      case Argument::Kind::all_named:
        if (!dict) refuse("a call", value, "a dict after **");
        for (const auto& [key, item] : dict->items) call.named.emplace_back(printed(key), item);
    }
  }
}

Value Run::called(const Expression& expression, const Value* caller) {
  const Expression& callee = *expression.parts[0];
  const Value function = evaluate(callee);
  Call call{*this, callee.text};
  add_arguments(expression, call);
  if (caller) call.named.emplace_back("caller", *caller);
  line_ = expression.line;
  return this->call(function, call, callee.text);
}

Value Run::call(const Value& function, Call& call, const std::string& name) {
  if (const Function* made = function.to<Function>()) {
    call.name = made->name;
    const auto kept = function;
    return made->call(call);
  }
  if (function.to<Loop>()) refuse("the loop is called, expected one that is not recursive");
  refuse(weft::concat("the call of ", in_quotes(name)), function, "a function");
}

Value Run::filtered(const Expression& expression, std::optional<Value> given) {
  const Deeper deeper(*this);
  const bool is_given = !expression.parts[0];
  Call call{*this, expression.text};
  call.plain.push_back(is_given ? *given
                       : expression.parts[0]->kind == Expression::Kind::filter
                           ? filtered(*expression.parts[0], std::move(given))
                           : evaluate(*expression.parts[0]));
  add_arguments(expression, call);
  line_ = expression.line;
  return filter(expression.text, call);
}

Call::Bound Call::bind(std::initializer_list<const char*> names, size_t needed) const {
  Bound bound(plain.begin(), plain.end());
  const auto given = plain.size() + named.size();
  if (given > names.size()) {
    run.refuse(concat(name, " has ", given, " arguments, expected at most ", names.size()));
  }
  bound.resize(names.size());
  for (const auto& [key, value] : named) {
    const auto* at = std::ranges::find_if(names, [&](const char* known) { return key == known; });
    const auto index = static_cast<size_t>(at - names.begin());
    if (at == names.end() || bound[index]) {
      run.refuse(concat(name, " has the argument ", in_quotes(key), ", expected one of ",
                        listed(names), ", each once"));
    }
    bound[index] = value;
  }
  for (size_t i = 0; i < needed; ++i) {
    if (!bound[i])
      run.refuse(concat(name, " has no argument ", names.begin()[i], ", expected one"));
  }
  return bound;
}

int64_t whole_or(const Call& call, const std::optional<Value>& value, int64_t otherwise) {
  if (!value) return otherwise;
  if (const auto whole = whole_of(*value)) return *whole;
  call.run.refuse(call.name, *value, "a whole number");
}

bool flag_or(const std::optional<Value>& value, bool otherwise) {
  return value ? is_true(*value) : otherwise;
}

std::string text_or(const Call& call, const std::optional<Value>& value,
                    std::string_view otherwise) {
  return value ? call.run.printed(*value) : std::string(otherwise);
}

}  // namespace weft::jinja
