// SPDX-License-Identifier: Apache-2.0
#include "data/template/parser.h"

#include <algorithm>

namespace weft::jinja {

/// The largest depth of expressions and tags in each other.
static constexpr int kDeepestSyntax = 200;

Parser::Deeper::Deeper(Parser& parser) : parser_(parser) {
  if (++parser_.depth_ <= kDeepestSyntax) return;
  --parser_.depth_;
  fail_at(parser_.line(), weft::concat("tags and expressions are ", kDeepestSyntax + 1,
                                       " deep in each other, expected at most ", kDeepestSyntax));
}

const Token& Parser::peek(size_t ahead) const {
  static const Token kEnd{Token::Type::data};
  return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead] : kEnd;
}

Token Parser::next() {
  if (ends()) fail_here("more");
  return std::move(tokens_[at_++]);
}

bool Parser::skip(Type type, std::string_view text) {
  if (!is(type, text)) return false;
  ++at_;
  return true;
}

void Parser::expect(Type type, std::string_view text) {
  if (!skip(type, text)) fail_here(std::string(text));
}

std::string Parser::name() {
  if (!is(Type::name)) fail_here("a name");
  return next().text;
}

void Parser::fail_here(const std::string& expected) const {
  static constexpr const char* kEnds[] = {"", "{{", "}}", "{%", "%}"};
  const Token& token = peek();
  const auto type = static_cast<size_t>(token.type);
  const std::string actual = ends()                     ? "the end of the template"
                             : token.type == Type::data ? "text outside of tags"
                             : type < std::size(kEnds)  ? kEnds[type]
                                                        : in_quotes(token.text);
  fail_at(line(), weft::concat("a tag has ", actual, ", expected ", expected));
}

ExpressionPtr Parser::make(Kind kind, int line, std::string text) {
  auto made = std::make_unique<Expression>();
  made->kind = kind;
  made->line = line;
  made->text = std::move(text);
  return made;
}

/// The largest height of an expression.
static constexpr int kHighestExpression = 400;

static void check_height(Expression& to, const Expression* part) {
  if (!part) return;
  to.height = std::max(to.height, part->height + 1);
  if (to.height <= kHighestExpression) return;
  fail_at(to.line, weft::concat("an expression has more than ", kHighestExpression,
                                " steps in each other, expected fewer"));
}

void Parser::add(Expression& to, ExpressionPtr part) {
  check_height(to, part.get());
  to.parts.push_back(std::move(part));
}

ExpressionPtr Parser::expression(bool with_choice) {
  const Deeper deeper(*this);
  const size_t unknown = unknown_.size();
  ExpressionPtr value = either();
  while (with_choice && is_word("if")) {
    const int at = next().line;
    ExpressionPtr condition = either(), other;
    if (skip(Type::name, "else")) other = expression();
    value = make(Kind::choice, at, "", std::move(condition), std::move(value), std::move(other));
    unknown_.resize(unknown);
  }
  return value;
}

ExpressionPtr Parser::either() {
  ExpressionPtr left = both();
  while (is_word("or")) {
    const int at = next().line;
    left = make(Kind::either, at, "or", std::move(left), both());
  }
  return left;
}

ExpressionPtr Parser::both() {
  ExpressionPtr left = inverted();
  while (is_word("and")) {
    const int at = next().line;
    left = make(Kind::both, at, "and", std::move(left), inverted());
  }
  return left;
}

ExpressionPtr Parser::inverted() {
  if (!is_word("not")) return compare();
  const Deeper deeper(*this);
  const int at = next().line;
  return make(Kind::invert, at, "not", inverted());
}

ExpressionPtr Parser::compare() {
  static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">="};
  ExpressionPtr made = make(Kind::compare, line(), "", sum());
  while (true) {
    const bool is_order =
        is(Type::sign) && std::ranges::find(kSigns, peek().text) != std::end(kSigns);
    const bool is_not_in = is_word("not") && is(Type::name, "in", 1);
    if (!is_order && !is_not_in && !is_word("in")) break;
    if (is_not_in) next();
    made->signs.push_back(is_not_in ? (next(), "not in") : next().text);
    add(*made, sum());
  }
  return made->signs.empty() ? std::move(made->parts[0]) : std::move(made);
}

ExpressionPtr Parser::binary(ExpressionPtr (Parser::*operand)(),
                             std::initializer_list<std::string_view> signs) {
  ExpressionPtr left = (this->*operand)();
  while (is(Type::sign) && std::ranges::find(signs, peek().text) != signs.end()) {
    Token sign = next();
    left = make(Kind::binary, sign.line, sign.text, std::move(left), (this->*operand)());
  }
  return left;
}

ExpressionPtr Parser::sum() { return binary(&Parser::concat, {"+", "-"}); }
ExpressionPtr Parser::product() { return binary(&Parser::power, {"*", "/", "//", "%"}); }
ExpressionPtr Parser::power() { return binary(&Parser::power_operand, {"**"}); }

ExpressionPtr Parser::concat() {
  ExpressionPtr first = product();
  if (!is_sign("~")) return first;
  ExpressionPtr made = make(Kind::concat, line(), "~", std::move(first));
  while (skip(Type::sign, "~")) add(*made, product());
  return made;
}

ExpressionPtr Parser::unary(bool with_filter) {
  const Deeper deeper(*this);
  ExpressionPtr value;
  if (is_sign("-") || is_sign("+")) {
    const Token sign = next();
    value = make(sign.text == "-" ? Kind::negate : Kind::plus, sign.line, sign.text, unary(false));
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filters_and_tests(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::primary() {
  const int at = line();
  const auto constant = [&](Value value) {
    ExpressionPtr made = make(Kind::constant, at);
    made->value = std::move(value);
    return made;
  };
  if (is(Type::name)) {
    std::string text = next().text;
    if (text == "true" || text == "True") return constant(true);
    if (text == "false" || text == "False") return constant(false);
    if (text == "none" || text == "None") return constant(None{});
    names_.push_back(text);
    return make(Kind::name, at, std::move(text));
  }
  if (is(Type::text)) {
    std::string whole;
    while (is(Type::text)) whole += next().text;
    return constant(std::move(whole));
  }
  if (is(Type::number)) return constant(next().value);
  if (skip(Type::sign, "(")) {
    ExpressionPtr value = tuple(true, {}, true);
    expect(Type::sign, ")");
    return value;
  }
  if (is_sign("[") || is_sign("{")) return list_or_dict();
  fail_here("an expression");
}

ExpressionPtr Parser::list_or_dict() {
  const Token begin = next();
  const bool is_list = begin.text == "[";
  ExpressionPtr made = make(is_list ? Kind::list : Kind::dict, begin.line);
  while (!is_sign(is_list ? "]" : "}")) {
    if (!made->parts.empty()) expect(Type::sign, ",");
    if (is_sign(is_list ? "]" : "}")) break;
    add(*made, expression());
    if (is_list) continue;
    expect(Type::sign, ":");
    add(*made, expression());
  }
  next();
  return made;
}

ExpressionPtr Parser::tuple(bool with_choice, std::string_view end, bool in_brackets) {
  ExpressionPtr made = make(Kind::tuple, line());
  bool has_comma = false;
  do {
    has_comma |= !made->parts.empty();
    const bool is_end =
        is(Type::end_output) || is(Type::end_tag) || is_sign(")") || (!end.empty() && is_word(end));
    if (is_end) break;
    add(*made, expression(with_choice));
  } while (skip(Type::sign, ","));
  if (has_comma) return made;
  if (!made->parts.empty()) return std::move(made->parts[0]);
  if (!in_brackets) fail_here("an expression");
  return made;
}

ExpressionPtr Parser::postfix(ExpressionPtr value) {
  while (true) {
    if (is_sign(".") || is_sign("[")) {
      value = subscript(std::move(value));
    } else if (is_sign("(")) {
      value = make(Kind::call, line(), "", std::move(value));
      add_arguments(*value);
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::filters_and_tests(ExpressionPtr value) {
  while (true) {
    if (is_sign("|")) {
      value = filters(std::move(value), false);
    } else if (is_word("is")) {
      value = test(std::move(value));
    } else if (is_sign("(")) {
      value = make(Kind::call, line(), "", std::move(value));
      add_arguments(*value);
    } else {
      return value;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr value) {
  const Token begin = next();
  if (begin.text == ".") {
    if (is(Type::name)) {
      return make(Kind::attribute, begin.line, next().text, std::move(value));
    }
    if (!is(Type::number) || !peek().value.as<int64_t>()) fail_here("a name or number");
    return make(Kind::item, begin.line, "", std::move(value), primary());
  }
  std::vector<ExpressionPtr> keys;
  while (!is_sign("]")) {
    if (!keys.empty()) expect(Type::sign, ",");
    keys.push_back(subscribed());
  }
  next();
  if (keys.size() == 1) {
    return make(Kind::item, begin.line, "", std::move(value), std::move(keys[0]));
  }
  ExpressionPtr key = make(Kind::tuple, begin.line);
  for (ExpressionPtr& part : keys) add(*key, std::move(part));
  return make(Kind::item, begin.line, "", std::move(value), std::move(key));
}

ExpressionPtr Parser::subscribed() {
  ExpressionPtr begin = is_sign(":") ? nullptr : expression();
  if (!is_sign(":")) return begin;
  ExpressionPtr made = make(Kind::slice, line(), "", std::move(begin));
  for (int i = 0; i < 2; ++i) {
    const bool has_colon = skip(Type::sign, ":");
    const bool has_value = has_colon && !is_sign(":") && !is_sign("]") && !is_sign(",");
    add(*made, has_value ? expression() : nullptr);
  }
  return made;
}

void Parser::add_arguments(Expression& to) {
  using Given = Argument::Kind;
  expect(Type::sign, "(");
  std::vector<Argument>& made = to.arguments;
  Given last = Given::plain;
  while (!is_sign(")")) {
    if (!made.empty()) expect(Type::sign, ",");
    if (is_sign(")")) break;
    Argument argument{Given::plain, {}, {}};
    if (skip(Type::sign, "*")) {
      argument.kind = Given::all;
    } else if (skip(Type::sign, "**")) {
      argument.kind = Given::all_named;
    } else if (is(Type::name) && is(Type::sign, "=", 1)) {
      argument = {Given::named, next().text, {}};
      next();
    }
    const bool is_in_order = argument.kind >= last &&
                             (last != Given::all || argument.kind != Given::all) &&
                             last != Given::all_named;
    const bool is_named_after_all = last == Given::all && argument.kind == Given::named;
    if (!is_in_order && !is_named_after_all) fail_here("arguments in another order");
    last = std::max(last, argument.kind);
    argument.value = expression();
    check_height(to, argument.value.get());
    made.push_back(std::move(argument));
  }
  next();
}

ExpressionPtr Parser::filters(ExpressionPtr value, bool starts_inline) {
  while (is_sign("|") || starts_inline) {
    if (!starts_inline) next();
    starts_inline = false;
    const int at = line();
    std::string called = name();
    while (skip(Type::sign, ".")) called += '.' + name();
    if (!is_filter(called))
      unknown_.emplace_back(at, weft::concat("filter is ", in_quotes(called)));
    value = make(Kind::filter, at, std::move(called), std::move(value));
    if (is_sign("(")) add_arguments(*value);
  }
  return value;
}

ExpressionPtr Parser::test(ExpressionPtr value) {
  const int at = next().line;
  const bool is_inverted = skip(Type::name, "not");
  std::string called = name();
  while (skip(Type::sign, ".")) called += '.' + name();
  if (!is_test(called)) unknown_.emplace_back(at, weft::concat("test is ", in_quotes(called)));
  value = make(Kind::test, at, std::move(called), std::move(value));
  const bool is_value =
      is(Type::name) || is(Type::text) || is(Type::number) || is_sign("[") || is_sign("{");
  if (is_sign("(")) {
    add_arguments(*value);
  } else if (is_value && !is_word("else") && !is_word("or") && !is_word("and")) {
    if (is_word("is")) fail_here("no second test");
    value->arguments.push_back({Argument::Kind::plain, {}, postfix(primary())});
    check_height(*value, value->arguments[0].value.get());
  }
  return is_inverted ? make(Kind::invert, at, "not", std::move(value)) : std::move(value);
}

}  // namespace weft::jinja
