// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/template/parser.h"

namespace weft::jinja {

/// Reads text and tags.
class StatementParser : public Parser {
 public:
  using Parser::Parser;

  std::shared_ptr<const Body> whole() {
    auto made = body({});
    refuse_unknown(0);
    if (refused_.empty()) return made;
    const auto& [at, what] = refused_[0];
    fail_at(at, weft::concat("the ", what, ", expected one that weft has"));
  }

 private:
  using Kinds = Statement::Kind;
  using Words = std::initializer_list<std::string_view>;

  /// The text and tags before a tag of one of the names, or all; goes into that tag.
  std::shared_ptr<Body> body(Words ends_at) {
    const Deeper deeper(*this);
    auto made = std::make_shared<Body>();
    while (!ends()) {
      const Token token = next();
      if (token.type == Type::data) {
        made->push_back({Kinds::data, token.line, token.text});
      } else if (token.type == Type::begin_output) {
        Statement output{Kinds::output, token.line};
        output.values.push_back(tuple(true));
        made->push_back(std::move(output));
        end(Type::end_output, "}}");
      } else {
        if (is(Type::name) && std::ranges::find(ends_at, peek().text) != ends_at.end()) return made;
        made->push_back(statement());
        end(Type::end_tag, "%}");
      }
    }
    if (ends_at.size() == 0) return made;
    fail_here(weft::concat("the tag ", listed(ends_at, {}, " or ")));
  }
  void end(Type type, const char* text) {
    if (!is(type)) fail_here(text);
    next();
  }
  /// A tag's body; the tag that ends it remains.
  std::shared_ptr<Body> block(Words ends_at) {
    skip(Type::sign, ":");
    end(Type::end_tag, "%}");
    return body(ends_at);
  }
  /// Refuses what is unknown from one on.
  void refuse_unknown(size_t from) {
    refused_.insert(refused_.end(), unknown_.begin() + static_cast<std::ptrdiff_t>(from),
                    unknown_.end());
    unknown_.resize(from);
  }
  /// Reads a tag's body, which has a separate scope of variables.
  std::shared_ptr<Body> inner_block(Words ends_at) {
    const size_t unknown = unknown_.size();
    auto made = block(ends_at);
    refuse_unknown(unknown);
    return made;
  }
  /// The same, past the name of the tag that ends it.
  std::shared_ptr<Body> whole_block(std::string_view end_name) {
    auto made = inner_block({end_name});
    next();
    return made;
  }

  Statement statement() {
    using Read = void (StatementParser::*)(Statement&);
    static constexpr std::pair<std::string_view, std::pair<Kinds, Read>> kTags[] = {
        {"if", {Kinds::choice, &StatementParser::read_choice}},
        {"for", {Kinds::loop, &StatementParser::read_loop}},
        {"set", {Kinds::set, &StatementParser::read_set}},
        {"macro", {Kinds::macro, &StatementParser::read_macro}},
        {"call", {Kinds::call, &StatementParser::read_call}},
        {"filter", {Kinds::filter, &StatementParser::read_filter}},
        {"with", {Kinds::with, &StatementParser::read_with}},
        {"print", {Kinds::output, &StatementParser::read_print}},
        {"generation", {Kinds::generation, &StatementParser::read_generation}},
        {"break", {Kinds::stop, &StatementParser::read_nothing}},
        {"continue", {Kinds::next, &StatementParser::read_nothing}}};
    const int at = line();
    const std::string tag = name();
    const auto* found = std::ranges::find(kTags, tag, [](const auto& row) { return row.first; });
    if (found == std::end(kTags)) {
      fail_at(at, weft::concat("the tag is ", in_quotes(tag), ", expected one that weft has"));
    }
    Statement made{found->second.first, at};
    const bool leaves = made.kind == Kinds::stop || made.kind == Kinds::next;
    if (leaves && loops_ == 0) fail_at(at, weft::concat("the tag ", tag, " is outside of a loop"));
    (this->*found->second.second)(made);
    return made;
  }

  void read_nothing(Statement&) {}

  void read_choice(Statement& made) {
    const size_t unknown = unknown_.size();
    made.condition = tuple(false);
    made.body = block({"elif", "else", "endif"});
    const Token next_tag = next();
    if (next_tag.text == "elif") {
      const Deeper deeper(*this);
      Statement other{Kinds::choice, next_tag.line};
      read_choice(other);
      made.otherwise = std::make_shared<Body>();
      made.otherwise->push_back(std::move(other));
    } else if (next_tag.text == "else") {
      made.otherwise = block({"endif"});
      next();
    }
    unknown_.resize(unknown);
  }

  void read_loop(Statement& made) {
    made.targets.push_back(target("in"));
    expect(Type::name, "in");
    made.values.push_back(tuple(false, "recursive"));
    if (skip(Type::name, "if")) made.condition = expression();
    if (is_word("recursive")) {
      fail_at(line(), "a loop is recursive, expected one that is not");
    }
    ++loops_;
    made.body = inner_block({"endfor", "else"});
    --loops_;
    if (next().text == "else") made.otherwise = whole_block("endfor");
  }

  /// A name, one of a namespace where that is allowed, or several in a tuple.
  ExpressionPtr target(std::string_view end, bool with_namespace = false) {
    ExpressionPtr made = make(Kind::tuple, line());
    bool is_several = false;
    do {
      is_several |= !made->parts.empty();
      const bool is_end = is(Type::end_tag) || is_sign(")") || is_word(end) || is_sign("=");
      if (is_end && is_several) break;
      made->parts.push_back(one_target(with_namespace));
    } while (skip(Type::sign, ","));
    return is_several ? std::move(made) : std::move(made->parts[0]);
  }
  ExpressionPtr one_target(bool with_namespace) {
    const Deeper deeper(*this);
    if (skip(Type::sign, "(")) {
      ExpressionPtr made = target(")", with_namespace);
      expect(Type::sign, ")");
      return made;
    }
    const int at = line();
    std::string named = name();
    for (const char* word : {"true", "false", "none", "True", "False", "None"}) {
      if (named == word)
        fail_at(at, weft::concat("the tag assigns to ", named, ", expected a name"));
    }
    if (!with_namespace || !skip(Type::sign, ".")) return make(Kind::name, at, std::move(named));
    return make(Kind::attribute, at, name(), make(Kind::name, at, std::move(named)));
  }

  void read_set(Statement& made) {
    made.targets.push_back(target("", true));
    if (skip(Type::sign, "=")) {
      made.values.push_back(tuple(true));
      return;
    }
    made.kind = Kinds::set_block;
    if (is_sign("|")) made.condition = filters(nullptr, false);
    made.body = whole_block("endset");
  }

  void read_signature(Statement& made) {
    made.signature = std::make_shared<Signature>();
    expect(Type::sign, "(");
    while (!is_sign(")")) {
      Signature& to = *made.signature;
      if (!to.names.empty()) expect(Type::sign, ",");
      to.names.push_back(name());
      const bool has_default = skip(Type::sign, "=");
      if (!has_default && !to.defaults.empty() && to.defaults.back()) fail_here("a default");
      to.defaults.push_back(has_default ? expression() : nullptr);
    }
    next();
  }
  /// The body of a macro or of what a call gives it, and the special names in it.
  void read_macro_body(Statement& made, std::string_view end_name) {
    const size_t first = names_.size();
    const int loops = std::exchange(loops_, 0);
    made.body = whole_block(end_name);
    loops_ = loops;
    const auto has = [&](const char* special) {
      return std::find(names_.begin() + static_cast<std::ptrdiff_t>(first), names_.end(),
                       special) != names_.end();
    };
    Signature& to = *made.signature;
    to.takes_caller = has("caller");
    to.takes_rest = has("varargs");
    to.takes_named = has("kwargs");
  }
  void read_macro(Statement& made) {
    made.text = name();
    read_signature(made);
    read_macro_body(made, "endmacro");
  }
  void read_call(Statement& made) {
    made.signature = std::make_shared<Signature>();
    if (is_sign("(")) read_signature(made);
    made.values.push_back(expression());
    if (made.values[0]->kind != Kind::call) fail_here("a call");
    read_macro_body(made, "endcall");
  }

  void read_filter(Statement& made) {
    made.condition = filters(nullptr, true);
    made.body = whole_block("endfilter");
  }

  void read_with(Statement& made) {
    while (!is(Type::end_tag)) {
      if (!made.targets.empty()) expect(Type::sign, ",");
      made.targets.push_back(target(""));
      expect(Type::sign, "=");
      made.values.push_back(expression());
    }
    made.body = whole_block("endwith");
  }

  void read_print(Statement& made) {
    while (!is(Type::end_tag)) {
      if (!made.values.empty()) expect(Type::sign, ",");
      made.values.push_back(expression());
    }
  }

  /// Reads a block in which `break` and `continue` do not reach a loop around it.
  void read_generation(Statement& made) {
    const int loops = std::exchange(loops_, 0);
    made.body = whole_block("endgeneration");
    loops_ = loops;
  }

  int loops_ = 0;
};

std::shared_ptr<const Body> parse(std::string_view source) {
  return StatementParser(tokens_of(source)).whole();
}

}  // namespace weft::jinja
