// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/template/value.h"

// The syntax of a template: its tokens, and the tree that is run.

namespace weft::jinja {

struct Token {
  enum class Type { data, begin_output, end_output, begin_tag, end_tag, name, text, number, sign };
  Type type;
  /// The name, the sign, or the text that it stands for.
  std::string text = {};
  int line = 1;
  Value value = {};
};

/// Cuts a template into tokens, with `trim_blocks` and `lstrip_blocks`, as transformers sets them.
/// std::invalid_argument names the line.
std::vector<Token> tokens_of(std::string_view source);

/// Throws std::invalid_argument about a line of the template.
[[noreturn]] void fail_at(int line, const std::string& problem);

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  enum class Kind { plain, named, all, all_named };
  Kind kind;
  std::string name;
  ExpressionPtr value;
};

/// An expression; `parts` are its operands, and `text` its name or sign.
struct Expression {
  enum class Kind {
    constant,
    name,
    list,
    tuple,
    /// Keys and values in turn.
    dict,
    attribute,
    item,
    /// A null part is missing.
    slice,
    call,
    filter,
    test,
    negate,
    plus,
    invert,
    binary,
    concat,
    /// `signs` are those between the parts.
    compare,
    both,
    either,
    /// The condition, and the value of each case; the second may be null.
    choice
  };
  Kind kind;
  int line;
  std::string text = {};
  std::vector<ExpressionPtr> parts = {};
  std::vector<std::string> signs = {};
  std::vector<Argument> arguments = {};
  Value value = {};
  /// One more than that of its highest operand.
  int height = 1;
};

struct Statement;
using Body = std::vector<Statement>;

/// The parameters of a macro or of the block of a call, and the special names that the body uses.
struct Signature {
  std::vector<std::string> names = {};
  /// One for each name; null: none.
  std::vector<ExpressionPtr> defaults = {};
  bool takes_caller = false, takes_rest = false, takes_named = false;
};

struct Statement {
  enum class Kind {
    data,
    output,
    choice,
    loop,
    set,
    set_block,
    macro,
    call,
    filter,
    with,
    generation,
    stop,
    next
  };
  Kind kind;
  int line;
  /// The text, or the name of a macro.
  std::string text = {};
  /// The targets of an assignment and their values; a loop has a condition, too.
  std::vector<ExpressionPtr> targets = {}, values = {};
  ExpressionPtr condition = {};
  std::shared_ptr<Signature> signature = {};
  std::shared_ptr<Body> body = {}, otherwise = {};
};

/// Reads a template. std::invalid_argument names the line and what is wrong or unknown.
std::shared_ptr<const Body> parse(std::string_view source);

/// The result of strftime_now: `date`, unless it is empty, whatever form the template asks for;
/// otherwise `time`, in local time and in that form. 0: the time of the call.
struct Clock {
  std::string date = {};
  std::time_t time = 0;
};

/// Returns whether a filter or a test, respectively, has the name.
bool is_filter(const std::string& name);
bool is_test(const std::string& name);

}  // namespace weft::jinja
