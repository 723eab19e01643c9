// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mesh/mesh_body.h"
#include "ops/engine/tensor_body.h"
#include "src/comm/rank_thread.h"
#include "weft/extend/op.h"
#include "weft/storage.h"

namespace weft {

using Factor = rule_grammar::FactorOf<std::string>;
using ParsedRule = rule_grammar::ParsedRuleOf<std::string>;
using rule_grammar::parse_array;
using rule_grammar::RuleArray;
using rule_grammar::RuleDim;

/// Parses a rule. std::invalid_argument names `op` and what is wrong with the text.
ParsedRule parse_rule(const std::string& op, std::string_view text);

inline bool contains(std::span<const int> numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

/// A rule with the sizes of a call: `...` is expanded to factors; a dim of size 1 that is broadcast
/// has none.
struct Binding {
  using BoundDim = std::vector<int>;
  using BoundArray = std::vector<BoundDim>;

  std::vector<Factor> factors;
  std::vector<BoundArray> operands;
  std::vector<BoundArray> results;
  std::vector<BoundArray> stages;
  std::vector<Shape> result_shapes;
  std::vector<Shape> stage_shapes;

  const Factor& factor(int i) const { return factors[static_cast<size_t>(i)]; }
  /// Returns the dim of the array that has the factor, or -1.
  static int dim_of(const BoundArray& array, int factor);
  bool is_fetched(const BoundDim& dim) const { return dim.size() == 1 && factor(dim[0]).fetched; }
  static bool has(const BoundArray& array, int factor) { return dim_of(array, factor) >= 0; }
};

/// Binds a rule to shapes. std::invalid_argument names the op, the factor, both sizes and both
/// operands where they disagree.
Binding bind_rule(const std::string& op, const ParsedRule& rule, std::span<const Shape> shapes);

inline constexpr int kMaxOperands = 16;
inline constexpr int kMaxResults = 4;

/// The data behind an Op.
struct OpBody {
  OpSpec spec;
  uint32_t id;
  /// The rule of an op whose dims do not depend on attributes.
  std::optional<ParsedRule> fixed_rule;
  uint32_t saved_in;
  uint32_t saved_out;
  /// Operands that forward takes dense.
  uint32_t dense_in;
};

/// Returns what forward takes as operand i.
inline const Takes& taken(const OpSpec& spec, size_t i) {
  return spec.takes[std::min(i, spec.takes.size() - 1)];
}

ParsedRule rule_for(const OpBody& op, const Attributes& attributes, std::span<const Shape> shapes);

struct CallBody;

/// How one operand gets to the layout in which the op uses it.
struct OperandRoute {
  /// The given layout: part of the key.
  Ref<Layout> given;
  /// The layout in which the op uses it.
  Ref<Layout> used;
  /// The plan from `given` to `used`; null when they are equal.
  Ref<Plan> move = {};
  /// True for ~ dims: the op uses a slice of `used`, this rank's `box` (in global coordinates) out
  /// of every rank's `fetched_boxes`.
  bool fetched = false;
  bool fetch_is_local = false;
  Box box = {};
  std::vector<Box> fetched_boxes = {};
  /// Bytes of the slice that other ranks hold.
  int64_t fetched_bytes = 0;
};

struct StageRoute {
  Ref<Layout> partial;
  Ref<Layout> reduced;
  Ref<Plan> reduce;
};

/// How the rows of one call move by index.
struct IndexRoute {
  ByIndex given;
  /// The dim whose rows move, of the operand that has them and of result 0.
  int dim = 0;
  /// Axes over which rows are read or sent; none where each rank keeps its part of its own rows.
  Axes over;
  /// Bytes that this rank is expected to receive.
  int64_t expected_bytes = 0;
};

/// The work of an op call for operands of given layouts: worked out once, then looked up.
struct Route final : public RefCounted {
  // The key, together with the operands' given layouts.
  uint32_t op;
  Dims structure;

  std::vector<OperandRoute> operands;
  std::vector<Ref<Layout>> results;
  std::vector<StageRoute> stages;
  /// How rows move by index; null where none do.
  std::unique_ptr<const IndexRoute> by_index;
  /// The dim that the indices of an op `by_index` name, where this rank computes with a slice of
  /// the indices that it has; otherwise -1.
  int sliced_dim = -1;
  /// The axes that cut the indices that a user gives an op `by_index`: ranks agree along them that
  /// all indices lie within `indexed_dim`.
  Axes cut_indices = {};
  int indexed_dim = -1;
  /// An operand is redistributed or fetched, or a stage reduces.
  bool moves = false;
  /// Some of these movements cross ranks (on any rank: equal on all).
  bool communicates = false;
  bool staged = false;
  /// The axes that cut the first factor that the op is staged over, outermost first, and the dim of
  /// operand 0 that has it.
  Axes part_axes = {};
  int part_dim = -1;
  bool counts_here = true;
  /// Combinations of the indices of all factors, on this rank; 0 for an op without products.
  double combinations = 0;
  /// Whether the whole result is a view of an operand of form `form_in`, and the result's form.
  bool is_view = false, has_form = false;
  Ref<Form> form_in, form_out;
  /// Bytes received from other ranks by moves, fetches and stages.
  int64_t bytes = 0;

  const OperandRoute& operand(int i) const { return operands[static_cast<size_t>(i)]; }
  const Layout& result(int i) const { return *results[static_cast<size_t>(i)]; }
  /// The layout of result 0 or, without results, of operand 0, which is changed.
  const Layout& written() const { return results.empty() ? *operands[0].used : *results[0]; }
  static void destroy(Route* route) { delete route; }
};

/// Works out the route of a call; throws when the operands do not fit.
Ref<Route> make_route(const OpBody& op, const Attributes& attributes,
                      std::span<const Tensor> operands);

/// The routes of one mesh, or of calls without one.
using RouteTable = Cache<Route>;
inline constexpr size_t kRouteCapacity = 4096;

/// Returns the table of the operands' mesh, or the calling rank's table without a mesh.
RouteTable& routes_for(std::span<const Tensor> operands);

// Rows that move by index, and operands of which slices are fetched.

/// Returns how rows move in a call of that route; null where each rank has all that it needs.
std::unique_ptr<const IndexRoute> index_route(const ByIndex& given, const Binding& binding,
                                              const Route& route);

/// Predicted time of moving the rows of dim `dim`: as if all indices named rows of other ranks.
/// `used` lays out the operand with the rows, `result` result 0. Equal on all ranks.
double predicted_rows_seconds(const ByIndex& given, int dim, const Layout& used,
                              const Layout& result);

/// Memory of the rows of a call, and the bytes that were received.
struct MovedRows {
  std::vector<Ref<Storage>> memory;
  int64_t bytes = 0;
};

/// Checks all indices that this rank has, before it computes with a slice of them: all ranks with
/// the same indices throw the same std::invalid_argument.
void check_sliced_indices(const OpBody& op, const Route& route, const Tensor& indices);
/// The same where ranks have separate parts of the indices (`cut_indices`): they agree by a number.
void check_cut_indices(const OpBody& op, const Route& route, std::span<const Tensor> operands);

/// Moves the rows that the indices of a call name, and gives it these and indices into them.
/// std::invalid_argument on all ranks that take part when one of them has an index out of range.
MovedRows move_rows(const OpBody& op, const Route& route, CallBody& call);

}  // namespace weft
