// SPDX-License-Identifier: Apache-2.0
#include "data/template/template.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <span>

#include "tests/support/scratch.h"

namespace weft::jinja {
namespace {

const std::filesystem::path kReference = std::filesystem::path(WEFT_SOURCE_DIR) / "tests/reference";
using Json = nlohmann::ordered_json;

/// FNV-1a of 64 bits, in hexadecimal.
std::string hash_of(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ (c & 0xff)) * 0x100000001b3;
  char digits[20];
  std::snprintf(digits, sizeof digits, "%lx", value);
  return digits;
}

Named variables_in(const std::string& json) {
  Named made;
  const Value value = value_of_json("test", json);
  for (const auto& [name, item] : value.to<Dict>()->items) made.emplace_back(*name.text(), item);
  return made;
}

/// The time at which the reference was made.
Clock then() {
  std::tm parts{};
  std::istringstream("2026-11-24 12:30:05") >> std::get_time(&parts, "%Y-%m-%d %H:%M:%S");
  parts.tm_isdst = -1;
  return {.time = std::mktime(&parts)};
}

/// The hash of the text that is made of each conversation; "0" for an error, which is kept.
std::vector<std::string> hashes_of(const std::string& source, const std::vector<Named>& all,
                                   std::string* error = nullptr) {
  std::vector<std::string> made;
  for (const Named& variables : all) {
    try {
      made.push_back(hash_of(Template(source).render(variables, then())));
    } catch (const std::invalid_argument& problem) {
      made.emplace_back("0");
      if (error) *error = problem.what();
    }
  }
  return made;
}

TEST(Template, EqualsJinjaOnPublicTemplatesAndTheirEdits) {
  const Json reference = Json::parse(std::ifstream(kReference / "templates.json"));
  std::vector<Named> conversations;
  for (const auto& one : reference["conversations"])
    conversations.push_back(variables_in(one.dump()));
  EXPECT_GE(reference["templates"].size(), 170U);
  int wrong = 0;
  for (const auto& one : reference["templates"]) {
    const auto source = one["text"].get<std::string>();
    std::string error;
    EXPECT_EQ(hashes_of(source, conversations, &error),
              one["hashes"].get<std::vector<std::string>>())
        << one["name"] << ": " << error;
    EXPECT_EQ(one["edits"].size(), 20U);
    for (const auto& edit : one["edits"]) {
      std::string edited = source;
      edited.replace(edit[0].get<size_t>(), edit[1].get<size_t>(), edit[2].get<std::string>());
      std::string hashes;
      for (const std::string& hash : hashes_of(edited, conversations, &error)) hashes += hash;
      const bool is_equal = hash_of(hashes) == edit[3].get<std::string>();
      if (!is_equal && ++wrong <= 10)
        ADD_FAILURE() << one["name"] << " with " << edit << ": " << error;
    }
  }
  EXPECT_EQ(wrong, 0);
}

/// Renders a template with a few variables. Returns the text, or the error without its prefix.
std::string made_of(const std::string& source) {
  static const Named variables = variables_in(
      R"({"a": "Ab c", "n": [3, 1, 2], "d": {"x": 1, "items": 2, "y": [true, null]}, "f": 2.5,
          "o": [{"k": "b", "v": 1}, {"k": "A", "v": 2}, {"k": "b", "v": 3}],
          "u": "über ẞtraße 中"})");
  try {
    return Template(source).render(variables, then());
  } catch (const std::invalid_argument& problem) {
    const std::string text = problem.what();
    return text.starts_with("chat template: ") ? text.substr(15) : text;
  }
}

TEST(Template, EqualsJinjaOnExpressions) {
  const Json reference = Json::parse(std::ifstream(kReference / "expressions.json"));
  for (const auto& [source, text] : reference.items()) {
    if (text.is_null()) {
      EXPECT_NE(made_of(source).find(", expected "), std::string::npos)
          << source << ": " << made_of(source);
    } else {
      EXPECT_EQ(made_of(source), text) << source;
    }
  }
}

/// Templates, and why they are refused.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"\n{{ a | shout }}", "line 2: the filter is \"shout\", expected one that weft has"},
    {"{{ a is loud }}", "line 1: the test is \"loud\", expected one that weft has"},
    {"{% if 1 %}{{ a | shout }}{% endif %}",
     "line 1: the filter is \"shout\", expected one that weft has"},
    {"{% if a is loud %}{% endif %}", "line 1: the test is \"loud\", expected one that weft has"},
    {"{% include 'x' %}", "line 1: the tag is \"include\", expected one that weft has"},
    {"{{ cycler(1) }}", "line 1: the function is \"cycler\", expected one that weft has"},
    {"{{ n.append(1) }}",
     "line 1: the method append of a list is called, expected one that weft has; no value can be "
     "changed"},
    {"{% for x in n recursive %}{% endfor %}",
     "line 1: a loop is recursive, expected one that is not"},
    {"{% for x in n %}{{ loop(n) }}{% endfor %}",
     "line 1: the loop is called, expected one that is not recursive"},
    {"{% break %}", "line 1: the tag break is outside of a loop"},
    {"{% set true = 1 %}", "line 1: the tag assigns to true, expected a name"},
    {"{{ nothing.x }}", "line 1: \"nothing\" is undefined, expected a value for the attribute x"},
    {"{{ 1 + nothing }}", "line 1: \"nothing\" is undefined, expected a value for the operator +"},
    {"{{ 1 + 'a' }}",
     "line 1: the operator + has a value of the type str, expected a number, or two values that "
     "it joins"},
    {"{{ 1 // 0 }}", "line 1: a division is by 0, expected another number"},
    {"{{ 9223372036854775807 + 1 }}",
     "line 1: a whole number is beyond 64 bits, expected a smaller one"},
    {"{{ 9223372036854775808 }}",
     "line 1: a number is \"9223372036854775808\", expected one below 2^63"},
    {"{{ a.__class__ }}", "line 1: the attribute is \"__class__\", expected none of Python's own"},
    {"{{ namespace(_a=1) }}", "line 1: a namespace has the name _a, expected none with _ first"},
    {"{% set ns = namespace() %}{% set ns._a = 1 %}",
     "line 1: a namespace has the name _a, expected none with _ first"},
    {"{% set a.b = 1 %}", "line 1: the tag set has a value of the type str, expected a namespace"},
    {"{% set x, y = n %}", "line 1: an assignment has 3 values, expected 2"},
    {"{{ {n: 1} }}",
     "line 1: a dict has a value of the type list, expected a key that cannot change"},
    {"{{ d[1:2] }}", "line 1: a slice has a value of the type dict, expected a str or list"},
    {"{{ n[1:2, 3] }}", "line 1: a key has a slice in a tuple, expected a slice alone"},
    {"{{ n[::0] }}", "line 1: the step of a slice is 0, expected another number"},
    {"{{ 1 < 'a' }}", "a comparison has int and str, expected two values that have an order"},
    {"{{ a() }}", "line 1: the call of \"a\" has a value of the type str, expected a function"},
    {"{{ [].x.y }}", "line 1: \"x\" of a list is undefined, expected a value for the attribute y"},
    {"{{ a.split(1, 2, 3) }}", "line 1: split has 3 arguments, expected at most 2"},
    {"{{ a.split(sep=' ', x=2) }}",
     "line 1: split has the argument \"x\", expected one of sep, maxsplit, each once"},
    {"{{ a.replace('b') }}", "line 1: replace has no argument new, expected one"},
    {"{{ a.split('') }}", "line 1: split has an empty text, expected one with characters"},
    {"{{ a.partition('') }}", "line 1: partition has an empty text, expected one with characters"},
    {"{{ a.index('q') }}", "line 1: index finds nothing, expected a part of the text"},
    {"{{ n.index(9) }}", "line 1: index finds nothing, expected an element of the list"},
    {"{{ a.ljust(9, 'xy') }}", "line 1: the padding is not one character, expected one"},
    {"{{ 'ŉ' | upper }}",
     "line 1: the case of ŉ is changed, expected a letter that stays one letter"},
    {"{{ 1e20 | int }}", "line 1: a whole number is beyond 64 bits, expected a smaller one"},
    {"{{ range(999) | truncate }}",
     "line 1: truncate has a value of the type range, expected a str"},
    {"{{ o | unique }}",
     "line 1: unique has a value of the type dict, expected a value that cannot change"},
    {"{{ ('<'|safe).join(n) }}", "line 1: join has a value of the type str, expected a plain str"},
    {"{{ 0 ** -1 }}", "line 1: a power is not a real number, expected one that is"},
    {"{{ n in d }}",
     "line 1: a dict has a value of the type list, expected a key that cannot change"},
    {"{{ 1 is eq }}", "line 1: the test eq has 0 arguments, expected 1"},
    {"{{ n | selectattr }}", "line 1: selectattr has no attribute, expected one"},
    {"{{ d | dictsort(by='z') }}", "line 1: dictsort is by \"z\", expected key or value"},
    {"{{ f | round(1, 'up') }}",
     "line 1: the method of round is \"up\", expected common, ceil or floor"},
    {"{{ a | truncate(1) }}",
     "line 1: truncate has a length below that of the end, expected at least that"},
    {"{{ range(1, 2, 0) }}", "line 1: the step of range is 0, expected another number"},
    {"{{ range(100001) }}", "line 1: range has more than 100000 numbers, expected fewer"},
    {"{{ dict(1, 2) }}", "line 1: dict has 2 values, expected at most 1"},
    {"{{ [raise_exception] | tojson }}",
     "tojson has a value of the type function, expected one that JSON has"},
    {"{{ {(1, 2): 3} | tojson }}", "tojson has a key of the type tuple, expected a str"},
    {"{{ range }}", "the value of an output is of the type function, expected one that has a text"},
    {"{{ '%d' % 'x' }}", "line 1: a format has a value of the type str, expected a number"},
    {"{{ '%x' % 1.5 }}", "line 1: a format has a value of the type float, expected a whole number"},
    {"{{ '%s %s' % 1 }}", "line 1: a format has 1 values, expected more"},
    {"{{ '%s' % (1, 2) }}", "line 1: a format has 2 values, expected 1"},
    {"{{ '%(q)s' % d }}", "line 1: a format has a name without a value, expected a value"},
    {"{{ '%q' % 1 }}", "line 1: a format has \"q\", expected one of srdifgexX"},
    {"{{ '{'.format(1) }}", "line 1: a format has a single brace, expected two"},
    {"{{ '{9}'.format(1) }}",
     "line 1: a format has the field \"9\", expected a number or name of a value"},
    {"{{ '{:d<3d}'.format(1) }}",
     "line 1: a format has a form of a field, expected a width, precision and letter"},
    {"{% for x in n %}{{ loop.cycle() }}{% endfor %}",
     "line 1: cycle has 0 arguments, expected at least 1"},
    {"{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}",
     "line 1: m has 2 arguments, expected at most 1"},
    {"{% macro m(x) %}{% endmacro %}{{ m(y=2) }}",
     "line 1: m has the argument \"y\", expected one of x, each once"},
    {"{{ raise_exception('No.') }}", "chat: the template refuses the messages: No."},
    {"{# a", "line 1: a comment has no end, expected #}"},
    {"{% raw %}a", "line 1: the tag raw has no end, expected endraw"},
    {"{{ a", "line 1: the template ends within a tag"},
    {"{{ 'a }}", "line 1: a text has no end, expected a quote"},
    {"{{ a $ }}", "line 1: a tag has the character \"$\", expected none"},
    {"{{ '\\ud800' }}",
     "line 1: a literal has an escape that is not a character, expected one that is"},
    {"{{ '\\N{DASH}' }}", "line 1: a literal has the escape \\N, expected \\u and a number"},
    {"{% if a %}",
     "line 1: a tag has the end of the template, expected the tag elif or else or endif"},
    {"{{ }}", "line 1: a tag has }}, expected an expression"},
    {"{{ 'a' if }}", "line 1: a tag has }}, expected an expression"},
    {"{{ a is defined is none }}", "line 1: a tag has \"is\", expected no second test"},
    {"{{ range(stop=1, 2) }}", "line 1: a tag has \"2\", expected arguments in another order"}};

TEST(Template, RefusesByNameAndLine) {
  for (const auto& [source, error] : kRefused) EXPECT_EQ(made_of(source), error) << source;
}

std::string times(const std::string& text, int count) {
  std::string made;
  for (int i = 0; i < count; ++i) made += text;
  return made;
}

const std::string kTooMuchWork = "the template takes more than 33554432 steps, expected fewer";

/// Expects each template to end with its error, within seconds and bounded memory.
void expect_ends(std::span<const std::pair<std::string, std::string>> cases) {
  for (const auto& [source, error] : cases) {
    const std::string made = made_of(source);
    EXPECT_TRUE(made.ends_with(error)) << source.substr(0, 60) << ": " << made.substr(0, 200);
  }
}

TEST(Template, EndsWhatNeverEnds) {
  const std::string deep =
      "tags, macros and expressions run 801 deep in each other, expected at most 800";
  const std::string syntax =
      "tags and expressions are 201 deep in each other, expected at most 200";
  const std::string height = "an expression has more than 400 steps in each other, expected fewer";
  const std::string loops = times("{% for a in range(100000) %}", 3);
  const std::string nest =
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  const std::pair<std::string, std::string> cases[] = {
      {loops + times("{% endfor %}", 3), kTooMuchWork},
      {loops + "x" + times("{% endfor %}", 3), kTooMuchWork},
      {"{% set ns = namespace(x='ab') %}" +
           times("{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", 1),
       kTooMuchWork},
      {"{{ 'ab' * 99999999999 }}", kTooMuchWork},
      {"{{ [1] * 9223372036854775807 }}", kTooMuchWork},
      {"{{ 'a'.ljust(99999999999) }}", kTooMuchWork},
      {"{{ 'a' | center(99999999999) }}", kTooMuchWork},
      {"{{ 'a' | indent(99999999999) }}", kTooMuchWork},
      {"{{ ('a' * 9999).replace('', 'b' * 99999) }}", kTooMuchWork},
      {"{{ (range(100000) | join('a' * 99999)) }}", kTooMuchWork},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", deep},
      {"{% macro m() %}{{ m() ~ m() }}{% endmacro %}{{ m() }}", deep},
      {"{{ " + times("(", 5000) + "1" + times(")", 5000) + " }}", syntax},
      {"{{ " + times("[", 5000) + "1" + times("]", 5000) + " }}", syntax},
      {"{{ " + times("not ", 5000) + "a }}", syntax},
      {"{{ " + times("- ", 5000) + "1 }}", syntax},
      {times("{% if a %}", 5000), syntax},
      {"{{ a" + times("+a", 5000) + " }}", height},
      {"{{ a" + times("|trim", 5000) + " }}", height},
      {"{{ a" + times(".b", 5000) + " }}", height},
      {"{{ a" + times(" or a", 5000) + " }}", height},
      {nest, "lists and dicts are 201 deep in each other, expected at most 200"}};
  expect_ends(cases);
  EXPECT_EQ(made_of("{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns] %}{{ 1 }}"),
            "1");
}

/// Values that are larger than the memory that they take.
TEST(Template, EndsWorkOnSharedValues) {
  const std::string values =
      "lists and dicts have more than 33554432 values in each other, expected fewer";
  const auto doubled = [](const std::string& name, int count) {
    return "{% set " + name + " = namespace(a=[1]) %}{% for i in range(" + std::to_string(count) +
           ") %}{% set " + name + ".a = [" + name + ".a, " + name + ".a] %}{% endfor %}";
  };
  const std::string longs = "{% set x = range(50000)|list %}{% set y = range(50000)|list %}";
  const std::pair<std::string, std::string> cases[] = {
      {doubled("p", 40) + "{{ p.a == [p.a[0], p.a[1]] }}", values},
      {doubled("p", 24), values},
      {doubled("p", 23) + "{{ p.a == [p.a[0], p.a[1]] }}", "True"},
      {doubled("p", 22) + doubled("q", 22) + times("{{ p.a == q.a }}", 9), kTooMuchWork},
      {doubled("p", 22) + doubled("q", 22) + times("{{ p.a < q.a }}", 9), kTooMuchWork},
      {doubled("p", 23) + "{{ (p.a|string)|length }}", kTooMuchWork},
      {doubled("p", 23) + "{{ p.a|tojson }}", kTooMuchWork},
      {doubled("p", 22) + "{{ [p.a]|tojson(indent=1000) }}", kTooMuchWork},
      {doubled("p", 23) + "{{ '%r' % [p.a] }}", kTooMuchWork},
      {doubled("p", 23) + "{{ 'a'.strip(p.a) }}", kTooMuchWork},
      {longs + "{% for i in range(2000) %}{{ x == y }}{% endfor %}", kTooMuchWork},
      {longs + "{% for i in range(2000) %}{{ [x] is eq([y]) }}{% endfor %}", kTooMuchWork},
      {longs + "{% for i in range(2000) %}{{ y in [x, 1] }}{% endfor %}", kTooMuchWork},
      {"{{ ('a' * 9999999).strip('b' * 99999 ~ 'a') }}", kTooMuchWork},
      {"{% set a, b = dict(range(40000)|batch(2)), dict(range(40000)|batch(2)) %}{{ a == b }}"
       "{{ a|length }}{{ a[39998] }}{{ 39998.0 in b }}",
       "True2000039999True"}};
  expect_ends(cases);
}

/// Parts of templates in random order: a text or one sentence, never an end of the process.
TEST(Template, SurvivesRandomTemplates) {
  static constexpr const char* kParts[] = {
      "{{",      "}}",      "{%",        "%}",   "{%-",     "-%}",
      "{#",      "#}",      " for ",     " in ", " if ",    " else ",
      "endfor",  "endif",   " set ",     "=",    "a",       "n",
      "d",       "o",       "|",         "trim", "length",  "map",
      "(",       ")",       "[",         "]",    "{",       "}",
      ":",       ",",       ".",         "'",    "\"",      "1",
      "-",       "+",       "*",         "~",    "is",      "not",
      "defined", "macro m", "endmacro",  "call", "endcall", "m",
      "loop",    ".items",  ".x",        "\\",   "\n",      " ",
      "range",   "tojson",  "namespace", "raw",  "endraw",  "\xE4\xB8\xAD",
      "\xFF",    "caller",  "**",        "//",   "<",       "==",
      "in"};
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    std::string source = i % 2 == 0 ? "{{ " : "";
    const int size = static_cast<int>(random() % 24);
    for (int part = 0; part < size; ++part) source += kParts[random() % std::size(kParts)];
    if (i % 4 == 0) source += " }}";
    made_of(source);
  }
}

}  // namespace
}  // namespace weft::jinja
