// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <utility>

#include "data/template/syntax.h"
#include "weft/error.h"

namespace weft::jinja {

/// Reads expressions, as Jinja's parser does; `StatementParser` reads the rest with it.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  using Kind = Expression::Kind;
  using Type = Token::Type;

  bool ends() const { return at_ == tokens_.size(); }
  const Token& peek(size_t ahead = 0) const;
  bool is(Type type) const { return !ends() && peek().type == type; }
  bool is(Type type, std::string_view text, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && peek(ahead).type == type && peek(ahead).text == text;
  }
  bool is_sign(std::string_view text) const { return is(Type::sign, text); }
  bool is_word(std::string_view text) const { return is(Type::name, text); }
  int line() const { return tokens_.empty() ? 1 : tokens_[std::min(at_, tokens_.size() - 1)].line; }
  Token next();
  bool skip(Type type, std::string_view text);
  void expect(Type type, std::string_view text);
  std::string name();
  [[noreturn]] void fail_here(const std::string& expected) const;

  ExpressionPtr expression(bool with_choice = true);
  ExpressionPtr primary();
  /// Expressions with commas between them make a tuple. `end`: the word that ends it.
  ExpressionPtr tuple(bool with_choice, std::string_view end = {}, bool in_brackets = false);
  ExpressionPtr filters(ExpressionPtr value, bool starts_inline);

  static ExpressionPtr make(Kind kind, int line, std::string text = {});
  template <class... Parts>
  static ExpressionPtr make(Kind kind, int line, std::string text, ExpressionPtr first,
                            Parts... rest) {
    ExpressionPtr made = make(kind, line, std::move(text));
    add(*made, std::move(first));
    (add(*made, std::move(rest)), ...);
    return made;
  }
  /// Adds an operand, which may be null. An expression has a bounded height.
  static void add(Expression& to, ExpressionPtr part);

  /// The unknown filters and tests so far, and those that are refused though they may not be run:
  /// Jinja leaves those to the run that stand in what a condition decides, unless in a block there.
  std::vector<std::pair<int, std::string>> unknown_, refused_;
  /// The names that were read, for the special ones of macros.
  std::vector<std::string> names_;
  /// The present depth of the parser; see `Deeper`.
  int depth_ = 0;
  struct Deeper {
    explicit Deeper(Parser& parser);
    ~Deeper() { --parser_.depth_; }
    Parser& parser_;
  };

 private:
  ExpressionPtr either();
  ExpressionPtr both();
  ExpressionPtr inverted();
  ExpressionPtr compare();
  ExpressionPtr sum();
  ExpressionPtr concat();
  ExpressionPtr product();
  ExpressionPtr power();
  ExpressionPtr unary(bool with_filter);
  ExpressionPtr binary(ExpressionPtr (Parser::*operand)(),
                       std::initializer_list<std::string_view> signs);
  ExpressionPtr power_operand() { return unary(true); }
  ExpressionPtr postfix(ExpressionPtr value);
  ExpressionPtr filters_and_tests(ExpressionPtr value);
  ExpressionPtr subscript(ExpressionPtr value);
  ExpressionPtr subscribed();
  ExpressionPtr test(ExpressionPtr value);
  ExpressionPtr list_or_dict();
  void add_arguments(Expression& to);

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace weft::jinja
