// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "ops/engine/route.h"
#include "tests/support/scratch.h"

namespace weft {

/// Prints the parsed rule in a canonical form, with marks wherever a factor occurs.
static std::string written(const ParsedRule& rule, const RuleArray& array) {
  std::string text;
  for (const RuleDim& dim : array) {
    if (!text.empty()) text += ' ';
    if (dim.ellipsis) text += "...";
    if (dim.factors.size() > 1) text += '(';
    for (size_t i = 0; i < dim.factors.size(); ++i) {
      const Factor& factor = rule.factors[static_cast<size_t>(dim.factors[i])];
      text += i ? " " : "";
      text += factor.whole ? "!" : "";
      text += factor.created ? "+" : "";
      text += factor.fetched ? "~" : "";
      text += factor.name;
      text += factor.reduce == ReduceOp::max ? ":max" : "";
      text += factor.reduce == ReduceOp::min ? ":min" : "";
    }
    if (dim.factors.size() > 1) text += ')';
  }
  return text.empty() ? "." : text;
}

static std::string written(const ParsedRule& rule) {
  std::string text;
  for (const RuleArray& array : rule.operands) text += written(rule, array) + ", ";
  text += "-> ";
  for (const RuleArray& array : rule.results) text += written(rule, array) + ", ";
  return text;
}

TEST(Rule, ParsesWhatIsARule) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"... m k, ... k n -> ... m n", "... m k, ... k n, -> ... m n, "},
      {"... v:max -> ...", "... v:max, -> ..., "},
      {"... v:min -> ...", "... v:min, -> ..., "},
      {"... [d] -> ... [d]", "... !d, -> ... !d, "},
      {"... d -> ... [d]", "... !d, -> ... !d, "},
      {"... [ d ] , d -> ...", "... !d, !d, -> ..., "},
      {"... -> +v ...", "..., -> +v ..., "},
      {"... -> ... [+v]", "..., -> ... !+v, "},
      {"b s (h d) -> b s h d", "b s (h d), -> b s h d, "},
      {"b s ( h   d ) -> b s h d", "b s (h d), -> b s h d, "},
      {"(a) b -> a", "a b, -> a, "},
      {"a ~b -> a +c", "a ~b, -> a +c, "},
      {"a b -> .", "a b, -> ., "},
      {"., a -> a", "., a, -> a, "},
      {"a, b ->", "a, b, -> "},
      {"-> +n", "-> +n, "},
      {"v_1 d2 -> v_1, d2", "v_1 d2, -> v_1, d2, "},
      {"  a   b->a  ", "a b, -> a, "},
  };
  for (const auto& [text, expected] : table) {
    EXPECT_EQ(written(parse_rule("op", text)), expected) << text;
  }
}

TEST(Rule, EqualNamesAreOneFactor) {
  const ParsedRule rule = parse_rule("op", "... m k, ... k n -> ... m n");
  EXPECT_EQ(rule.factors.size(), 3u);
  EXPECT_EQ(rule.operands[0][2].factors, rule.operands[1][1].factors);
  EXPECT_EQ(rule.find("n"), 2);
  EXPECT_EQ(rule.find("x"), -1);
}

TEST(Rule, AStageIsAnArrayOfTheRule) {
  ParsedRule rule = parse_rule("op", "... v -> ...");
  EXPECT_EQ(written(rule, parse_array(rule, "...")), "...");
  EXPECT_EQ(written(rule, parse_array(rule, ".")), ".");
  EXPECT_EQ(written(rule, parse_array(rule, "... v")), "... v");
}

TEST(Rule, SaysWhatIsNoRule) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"a b", "a rule has operands, -> and results"},
      {"a, , b -> a", "an array has no dims (write . for one without)"},
      {"a, -> a", "an array has no dims (write . for one without)"},
      {"a -> a,", "an array has no dims (write . for one without)"},
      {"a ... -> a", "... stands first"},
      {"... ... -> ...", "... stands first"},
      {"... -> ... ...", "an array names a factor twice"},
      {"a -> ...", "no operand has ..."},
      {"(a b -> a", "a ( is not closed"},
      {"() -> .", "() merges no factors"},
      {"(a [b]) -> a", "( ) holds names only"},
      {"(a +b) -> a", "( ) holds names only"},
      {"[d -> .", "a [ is not closed"},
      {"[] -> .", "[] names no factor"},
      {"+v -> .", "+ creates a factor: only a result can have it"},
      {"a -> ~a", "~ fetches slices: only an operand can have it"},
      {"a -> a:max", "a result reduces nothing: put :max or :min at the operand's factor"},
      {"a:sum -> .", "only :max and :min follow a factor"},
      {"a: -> .", "only :max and :min follow a factor"},
      {"A -> A", "a factor's name is lower case letters, digits and _"},
      {"1a -> .", "a factor's name is lower case letters, digits and _"},
      {"a-b -> .", "a factor's name is lower case letters, digits and _"},
      {"d] -> .", "a factor's name is lower case letters, digits and _"},
      {"a -> b -> c", "a result names an unknown factor"},
      {"a -> b", "a result names an unknown factor"},
      {"a -> (a b)", "a result names an unknown factor"},
      {"a -> +a", "a created factor stands in an operand"},
      {"a a -> a", "an array names a factor twice"},
      {"a (a b) -> a b", "an array names a factor twice"},
      {"(a a) -> a", "an array names a factor twice"},
      {"a -> a a", "an array names a factor twice"},
  };
  for (const auto& [text, mistake] : table) {
    EXPECT_EQ(error_of([&] { parse_rule("op", text); }),
              "op: the rule is \"" + text + "\", expected operands -> results: " + mistake);
  }
}

TEST(Rule, ALiteralIsCheckedByTheCompiler) {
  constexpr RuleLiteral literal = "... m k, ... k n -> ... m n";
  EXPECT_EQ(literal.text(), "... m k, ... k n -> ... m n");
}

static Binding bound(const char* rule, const std::vector<Shape>& shapes,
                     const std::vector<std::pair<std::string, int64_t>>& sizes = {}) {
  ParsedRule parsed = parse_rule("op", rule);
  parsed.sizes = sizes;
  return bind_rule("op", parsed, shapes);
}

TEST(Rule, BindsSizes) {
  struct Row {
    const char* rule;
    std::vector<Shape> operands;
    std::vector<std::pair<std::string, int64_t>> sizes;
    std::vector<Shape> results;
  };
  const std::vector<Row> table = {
      {"... m k, ... k n -> ... m n", {{5, 7}, {7, 3}}, {}, {{5, 3}}},
      {"... m k, ... k n -> ... m n", {{2, 1, 5, 7}, {4, 7, 3}}, {}, {{2, 4, 5, 3}}},
      {"..., ... -> ...", {{3, 1, 5}, {4, 1}}, {}, {{3, 4, 5}}},
      {"..., ... -> ...", {{1}, {1}}, {}, {{1}}},
      {"..., ... -> ...", {{0}, {1}}, {}, {{0}}},
      {"..., ... -> ...", {{1}, {0}}, {}, {{0}}},
      {"..., ... -> ...", {{}, {4}}, {}, {{4}}},
      {"..., ... -> ...", {{}, {}}, {}, {{}}},
      {"v d, ... -> ... d", {{7, 3}, {5, 2}}, {}, {{5, 2, 3}}},
      {"... -> +v ...", {{5, 2}}, {{"v", 9}}, {{9, 5, 2}}},
      {"b s (h d) -> b s h d", {{2, 3, 12}}, {{"h", 4}}, {{2, 3, 4, 3}}},
      {"b s h d -> b s (h d)", {{2, 3, 4, 3}}, {}, {{2, 3, 12}}},
      {"(h d), h -> d", {{12}, {4}}, {}, {{3}}},
      {"(a b) -> a b", {{0}}, {{"a", 5}, {"b", 0}}, {{5, 0}}},
      {"a ~b -> a +c", {{5, 7}}, {{"c", 3}}, {{5, 3}}},
      {"a b -> ., b", {{5, 7}}, {}, {{}, {7}}},
      {"a b ->", {{5, 7}}, {}, {}},
  };
  for (const Row& row : table) {
    EXPECT_EQ(bound(row.rule, row.operands, row.sizes).result_shapes, row.results) << row.rule;
  }
}

TEST(Rule, ABroadcastDimHasNoFactor) {
  const Binding binding = bound("..., ... -> ...", {{3, 1, 5}, {4, 1}});
  const std::vector<std::vector<size_t>> counts = {{1, 0, 1}, {1, 0}};
  for (size_t i = 0; i < counts.size(); ++i) {
    ASSERT_EQ(binding.operands[i].size(), counts[i].size());
    for (size_t d = 0; d < counts[i].size(); ++d) {
      EXPECT_EQ(binding.operands[i][d].size(), counts[i][d]) << i << " " << d;
    }
  }
  EXPECT_EQ(binding.operands[0][2], binding.results[0][2]);
  EXPECT_EQ(binding.operands[1][0], binding.results[0][1]);
  EXPECT_FALSE(Binding::has(binding.operands[1], binding.operands[0][0][0]));
}

TEST(Rule, DimsOfSizeOneOnAllSidesAreAFactor) {
  const Binding binding = bound("..., ... -> ...", {{1, 5}, {1, 5}});
  EXPECT_EQ(binding.operands[0][0].size(), 1u);
  EXPECT_EQ(binding.operands[0][0], binding.operands[1][0]);
}

TEST(Rule, BindsStages) {
  ParsedRule rule = parse_rule("op", "... v -> ...");
  rule.stages = {parse_array(rule, "..."), parse_array(rule, ".")};
  const std::vector<Shape> shapes = {{5, 2, 7}};
  const Binding binding = bind_rule("op", rule, shapes);
  EXPECT_EQ(binding.stage_shapes, (std::vector<Shape>{{5, 2}, {}}));
  EXPECT_EQ(binding.stages[0], binding.results[0]);
}

struct WrongSizes {
  const char* rule;
  std::vector<Shape> operands;
  std::vector<std::pair<std::string, int64_t>> sizes;
  const char* message;
};

static std::vector<WrongSizes> wrong_sizes() {
  return {
      {"... m k, ... k n -> ... m n",
       {{4, 8}, {6, 5}},
       {},
       "op: factor k is 6 in operand 1 [6, 5], expected 8, as in operand 0 [4, 8]"},
      {"..., ... -> ...",
       {{3, 5}, {4, 5}},
       {},
       "op: factor ...0 is 4 in operand 1 [4, 5], expected 3, as in operand 0 [3, 5]"},
      {"..., ... -> ...",
       {{0}, {3}},
       {},
       "op: factor ...0 is 3 in operand 1 [3], expected 0, as in operand 0 [0]"},
      {"..., ..., ... -> ...",
       {{1}, {3}, {4}},
       {},
       "op: factor ...0 is 4 in operand 2 [4], expected 3, as in operand 1 [3]"},
      {"a -> a",
       {{4}},
       {{"a", 3}},
       "op: factor a is 4 in operand 0 [4], expected 3, as by the attributes"},
      {"a -> a",
       {{4, 2}},
       {},
       "op: number of dims of operand 0 [4, 2] is 2, expected 1, those of the rule \"a -> a\""},
      {"... a b -> a",
       {{4}},
       {},
       "op: number of dims of operand 0 [4] is 1, expected at least 2, those of the rule \"... a b "
       "-> a\""},
      {"a, b -> a",
       {{4}},
       {},
       "op: number of operands is 1, expected 2, those of the rule \"a, b -> a\""},
      {"(h d) -> h d",
       {{10}},
       {{"h", 4}},
       "op: size of a merged dim of operand 0 [10] is 10, expected a multiple of 4, the product of "
       "its factors"},
      {"(h d), h, d -> h",
       {{12}, {4}, {4}},
       {},
       "op: size of a merged dim of operand 0 [12] is 12, expected a multiple of 16, the product "
       "of its factors"},
      {"(h d) -> h d",
       {{10}},
       {},
       "op: sizes of two factors of a merged dim of operand 0 are unknown, expected one at most"},
      {"a -> a +b",
       {{4}},
       {},
       "op: size of factor b is unknown, expected it in an operand or an attribute"},
  };
}

TEST(Rule, SaysWhichSizesDisagree) {
  for (const WrongSizes& row : wrong_sizes()) {
    EXPECT_EQ(error_of([&] { bound(row.rule, row.operands, row.sizes); }), row.message);
  }
}

}  // namespace weft
