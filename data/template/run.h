// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>

#include "data/template/syntax.h"
#include "weft/error.h"

namespace weft::jinja {

/// The variables of a block; `around` is the block around it.
struct Scope {
  Named variables = {};
  std::shared_ptr<Scope> around = {};
  void set(const std::string& name, Value value);
};

/// One rendering of a template: its variables, its output and its bounds.
class Run {
 public:
  Run(Named variables, Clock clock);
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::string render(const Body& body);
  /// The bytes [begin, end) that blocks of the tag generation wrote.
  const std::vector<std::pair<size_t, size_t>>& generated() const { return generated_; }

  /// Counts work: the evaluation of an expression is one unit. std::invalid_argument beyond the
  /// bound, which holds for memory, too.
  void spend(size_t units);
  /// The same before a text of so many bytes is made.
  void spend_text(size_t bytes) { spend(bytes / 16); }
  [[noreturn]] void refuse(const std::string& problem) const { fail_at(line_, problem); }
  /// A value that an operation does not take.
  [[noreturn]] void refuse(std::string_view op, const Value& value,
                           std::string_view expected) const;

  // These count the work first, then do what their names say.
  bool are_equal(const Value& a, const Value& b);
  bool is_less(const Value& a, const Value& b);
  std::string printed(const Value& value);
  std::string repr(const Value& value);

  Value evaluate(const Expression& expression);
  Value call(const Value& function, Call& call, const std::string& name);
  Value filter(const std::string& name, Call& call);
  bool test(const std::string& name, Call& call);

  /// `value.name` and `value[key]`, as the sandbox has them.
  Value attribute(const Value& value, const std::string& name);
  Value item(const Value& value, const Value& key);
  Value binary(std::string_view sign, const Value& left, const Value& right);
  /// The elements that a loop goes through; `op` begins errors.
  Values elements(const Value& value, std::string_view op);
  bool contains(const Value& container, const Value& value);
  const Clock& clock() const { return clock_; }
  /// Keeps a namespace until the end of the run, when its values are released.
  Value keep(Value made_namespace);

 private:
  enum class Flow { on, stop, next };
  struct Deeper {
    explicit Deeper(Run& run);
    ~Deeper() { --run_.depth_; }
    Run& run_;
  };

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow execute_loop(const Statement& statement);
  Flow execute_inner(const Body& body);
  /// Returns what a body writes; the body runs in a separate scope.
  std::string captured(const Body& body, Flow& flow);
  Flow execute_generation(const Body& body);
  void assign(const Expression& target, const Value& value);
  Flow execute_with(const Statement& statement);
  Value macro_of(const Statement& statement, const std::string& name);
  Value run_macro(const Statement& statement, const std::shared_ptr<Scope>& around, Call& call);
  void write(const std::string& text);

  Value variable(const std::string& name) const;
  Value slice_of(const Value& value, const Expression& slice);
  Value compared(const Expression& expression);
  Value concatenated(const Expression& expression);
  Value called(const Expression& expression, const Value* caller = nullptr);
  Value filtered(const Expression& expression, std::optional<Value> given);
  void add_arguments(const Expression& expression, Call& call);
  Value dict_of(const Expression& expression);

  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  Clock clock_;
  std::string out_;
  std::vector<std::pair<size_t, size_t>> generated_;
  int line_ = 1;
  size_t spent_ = 0;
  int depth_ = 0;
  /// The number of texts around `out_` that are captured.
  int captures_ = 0;
  /// Store the objects that may be in a cycle of pointers.
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::vector<Value> namespaces_;
};

/// The arguments of a function, a filter (the value is the first) or a test.
struct Call {
  Run& run;
  std::string name;
  Values plain = {};
  Named named = {};

  using Bound = std::vector<std::optional<Value>>;
  /// The arguments by the names of the parameters; std::invalid_argument for others, or when one of
  /// the first `needed` is missing.
  Bound bind(std::initializer_list<const char*> names, size_t needed = 0) const;
};

/// A bound argument as a whole number, flag or text, or what it is by default.
int64_t whole_or(const Call& call, const std::optional<Value>& value, int64_t otherwise);
bool flag_or(const std::optional<Value>& value, bool otherwise);
std::string text_or(const Call& call, const std::optional<Value>& value,
                    std::string_view otherwise);

/// Methods of Python's types; null when the type has none of the name.
std::optional<Value> method_of(const Value& value, const std::string& name);
/// A global name, such as `range`; null when there is none.
std::optional<Value> global_of(const std::string& name);

using Filter = Value (*)(Call& call);
/// The filter of a name; null when it is unknown. The second has those of lists.
Filter text_filter(const std::string& name);
Filter list_filter(const std::string& name);

// Operations on texts, by characters.

bool is_space(char32_t value);
/// Removes white space, or the characters of `of`, from the ends.
std::string_view trimmed(Run& run, std::string_view text, const std::optional<Value>& of,
                         bool left = true, bool right = true);
std::string replaced(Run& run, const std::string& text, const std::string& from,
                     const std::string& to, int64_t most);
enum class Case { lower, upper, title, capital };
/// std::invalid_argument for a letter that becomes several.
std::string in_case(Run& run, std::string_view text, Case wanted);
/// The lines without their ends, by Python's splitlines.
std::vector<std::string_view> lines_of(std::string_view text, bool keeps_ends = false);
std::string html_escaped(const std::string& text);
/// `text % values`, and `text.format(...)`.
std::string percent_format(Run& run, const std::string& text, const Value& values);
std::string brace_format(Call& call, const std::string& text);
/// `json.dumps` as the filter tojson.
Value to_json(Call& call);

}  // namespace weft::jinja
