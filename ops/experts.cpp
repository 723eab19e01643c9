// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <vector>

#include "mesh/grid.h"
#include "mesh/plan.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/matmul/product.h"
#include "weft/ops.h"

namespace weft {

// structure: experts, parts that they are cut into if each rank has the rows of its own experts
// (otherwise 0), whether the matrices are [experts, n, k] as those of linear layers, and groups of
// counts.

namespace {

/// Neighbouring rows of one expert, in the local parts.
struct ExpertRun {
  int64_t expert, first, count;
};

std::vector<int64_t> host_counts(const MemoryBlock& counts) {
  std::vector<int64_t> numbers(static_cast<size_t>(counts.numel()));
  copy(dense_block(numbers.data(), DType::i64, counts.shape), counts);
  return numbers;
}

/// Calls visit(segment, first row, rows) for each count.
template <class Visit>
int64_t for_each_segment(const std::vector<int64_t>& counts, const Visit& visit) {
  int64_t first = 0;
  for (size_t s = 0; s < counts.size(); ++s) {
    visit(static_cast<int64_t>(s), first, counts[s]);
    first += counts[s];
  }
  return first;
}

/// The runs of local rows of the experts from `begin` to `end`.
std::vector<ExpertRun> runs_of(const Call& c, const MemoryBlock& counted, int64_t begin,
                               int64_t end) {
  const int64_t experts = c.attribute(0);
  const Box& rows = c.in_box(0);
  const int64_t from = rows.offset[0], to = from + rows.shape[0];
  const std::vector<int64_t> counts = host_counts(counted);
  if (counted.shape.back() != experts) {
    fail("grouped_matmul: counts are ", counted.shape, ", expected ", experts, " in the last dim");
  }
  if (std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; })) {
    fail("grouped_matmul: a count is negative, expected at least 0");
  }
  std::vector<ExpertRun> runs;
  const int64_t total =
      for_each_segment(counts, [&](int64_t segment, int64_t first, int64_t count) {
        const int64_t expert = segment % experts;
        const int64_t low = std::max(first, from), high = std::min(first + count, to);
        if (low < high && expert >= begin && expert < end) {
          runs.push_back({expert - begin, low - from, high - low});
        }
      });
  if (total > c.in_shape(0)[0]) {
    fail("grouped_matmul: rows are ", c.in_shape(0)[0], ", expected at least ", total,
         ", the sum of the counts");
  }
  return runs;
}

Matrix matrix_at(const MemoryBlock& block, int64_t slice, int64_t row) {
  const int ndim = block.shape.ndim();
  const int64_t stride = ndim == 3 ? block.strides[0] : 0;
  const int64_t at = slice * stride + row * block.strides[ndim - 2];
  return {element_at(block.data, at, block.dtype), block.dtype, block.strides[ndim - 2],
          block.strides[ndim - 1]};
}

void clear_rows(const MemoryBlock& out, int64_t begin, int64_t end) {
  if (begin < end) fill(part_along(out, 0, begin, end), 0);
}

bool is_linear(const Call& c) { return c.attribute(2) != 0; }

void multiply_rows(const Call& c) {
  const MemoryBlock &x = c.in(0), &weights = c.in(1), &out = c.out();
  const int64_t begin = c.in_box(1).offset[0];
  std::vector<Product> products;
  int64_t done = 0;
  for (const ExpertRun& run : runs_of(c, c.in(2), begin, begin + weights.shape[0])) {
    clear_rows(out, done, run.first);
    done = run.first + run.count;
    products.push_back({.m = run.count,
                        .n = out.shape[1],
                        .k = x.shape[1],
                        .a = matrix_at(x, 0, run.first),
                        .b = is_linear(c) ? matrix_at(weights, run.expert, 0).transposed()
                                          : matrix_at(weights, run.expert, 0),
                        .c = matrix_at(out, 0, run.first)});
  }
  clear_rows(out, done, out.shape[0]);
  multiply_each(products, out.device);
}

/// out[e] = sum over the rows of expert e of x[row]^T dy[row], or, of linear layers, dy[row]^T
/// x[row].
void multiply_columns(const Call& c) {
  const MemoryBlock &left = c.in(is_linear(c) ? 1 : 0), &right = c.in(is_linear(c) ? 0 : 1);
  const MemoryBlock& out = c.out();
  const int64_t begin = c.out_box().offset[0];
  std::vector<int64_t> seen(static_cast<size_t>(out.shape[0]), 0);
  // An expert has a run of each group: products of one call write to different experts.
  std::vector<std::vector<Product>> passes;
  for (const ExpertRun& run : runs_of(c, c.in(2), begin, begin + out.shape[0])) {
    const auto pass = static_cast<size_t>(seen[static_cast<size_t>(run.expert)]++);
    if (pass == passes.size()) passes.emplace_back();
    passes[pass].push_back({.m = out.shape[1],
                            .n = out.shape[2],
                            .k = run.count,
                            .a = matrix_at(left, 0, run.first).transposed(),
                            .b = matrix_at(right, 0, run.first),
                            .c = matrix_at(out, run.expert, 0),
                            .beta = pass > 0 || c.accumulate() ? 1.0f : 0.0f});
  }
  for (int64_t expert = 0; expert < out.shape[0] && !c.accumulate(); ++expert) {
    if (seen[static_cast<size_t>(expert)] == 0) clear_rows(out, expert, expert + 1);
  }
  for (const std::vector<Product>& products : passes) multiply_each(products, out.device);
}

/// The rule of rows, other operands and the matrices of experts. Axes may cut rows and experts
/// together when attribute 1 allows it.
Rule grouped_rule(const Attributes& a, const std::string& before, const std::string& after) {
  const char* const matrices = a.structure[2] != 0 ? "e n k" : "e k n";
  Rule rule{concat(before, matrices, after)};
  if (a.structure[1] != 0) rule.joined = {"r", "e"};
  return rule;
}

Structure grouped_structure(size_t weights) {
  return {"experts, joined parts, linear, groups",
          [weights](const Dims& numbers, std::span<const Shape> operands) {
            return numbers.ndim() == 4 && operands.size() > weights &&
                   operands[weights].ndim() == 3 && operands[weights][0] == numbers[0];
          }};
}

}  // namespace

/// A row is multiplied by one matrix, of all or of those of a part; the counts, [groups, experts],
/// are factors too.
static double share_of_experts(const Attributes& a) {
  const auto parts = static_cast<double>(std::max<int64_t>(1, a.structure[1]));
  const auto experts = static_cast<double>(a.structure[0]);
  const double counts = experts * static_cast<double>(a.structure[3]);
  return counts == 0 ? 0 : parts / (experts * counts);
}

/// Multiplies rows by the matrices, or by their transposes, in a gradient.
static Tensor multiplied(const Grad& g, const Tensor& x, const Tensor& weights, bool transposes);

/// operands: x, dy, counts, and the places of experts, which determine the layout of the result.
/// Missed layouts: the places are read for their layout only, and counts of a layout that no result
/// has are gathered, a few bytes.
static const Op grouped_weight_gradient_op = register_op({
    .name = "grouped_weight_gradient",
    .rule_of =
        [](const Attributes& a, std::span<const Shape>) {
          return grouped_rule(a, "r k, r n, [g] [c], e [u] [v] -> ", "");
        },
    .structure = grouped_structure(3),
    .linear = {{0}, {1}},
    .positions = {{"r", "e"}},
    .forward = multiply_columns,
    .backward = give_each({[](auto& g) { return multiplied(g, g.in(1), g.grad(), true); },
                           [](auto& g) { return multiplied(g, g.in(0), g.grad(), false); }}),
    .saves_in = std::vector<int>{0, 1, 2},
    .accumulates = {0},
    .products = share_of_experts,
    .samples = {sample_of_indices({{7, 5}, {7, 3}, {2, 2}, {2, 1, 1}}, {.structure = {2, 0, 0, 2}},
                                  {f32, f32, i64, u8}, 2),
                sample_of_indices({{5, 2}, {5, 7}, {1, 3}, {3, 1, 1}}, {.structure = {3, 0, 1, 1}},
                                  {f32, f32, i64, u8}, 2)},
});

static const Op grouped_matmul_op = register_op({
    .name = "grouped_matmul",
    .rule_of = [](const Attributes& a,
                  std::span<const Shape>) { return grouped_rule(a, "r k, ", ", [g] [c] -> r n"); },
    .structure = grouped_structure(1),
    .linear = {{0}, {1}},
    .positions = {{"r", "e"}},
    .forward = multiply_rows,
    .backward =
        [](const Grad& g) {
          if (g.wants(0)) g.give(0, multiplied(g, g.grad(), g.in(1), true));
          if (!g.wants(1)) return;
          const Tensor places = places_along(g.in_shape(1), 0, g.in_sharding(1), g.grad().device());
          g.give(1, grouped_weight_gradient_op, {g.in(0), g.grad(), g.in(2), places},
                 g.attributes());
        },
    .products = share_of_experts,
    .samples = {sample_of_indices({{7, 5}, {2, 5, 3}, {2, 2}}, {.structure = {2, 0, 0, 2}},
                                  {f32, f32, i64}, 2),
                sample_of_indices({{5, 2}, {3, 7, 2}, {1, 3}}, {.structure = {3, 0, 1, 1}},
                                  {f32, f32, i64}, 2)},
});

static Tensor multiplied(const Grad& g, const Tensor& x, const Tensor& weights, bool transposes) {
  Attributes attributes = g.attributes();
  if (transposes) attributes.structure[2] = 1 - attributes.structure[2];
  return grouped_matmul_op({x, weights, g.in(2)}, attributes);
}

/// Returns the number of parts of experts if each rank has, along the axes that cut both, the rows
/// of its own experts only, otherwise 0.
static int64_t joined_parts(const Tensor& x, const Tensor& weights, const Tensor& counts) {
  if (!x.is_sharded() || !weights.is_sharded()) return 0;
  const Axes both = weights.sharding().axes_cutting(0);
  const auto cuts_rows = [&](int axis) { return x.sharding()[axis].is_shard(0); };
  if (both.empty() || !std::all_of(both.begin(), both.end(), cuts_rows)) return 0;
  const int64_t parts = layout_of(x)->grid->size(both);
  if (counts.device().kind == DeviceKind::meta) return parts;
  const std::vector<int64_t> numbers = counts.full_tensor().to_vector<int64_t>();
  const int64_t experts = weights.size(0);
  const DeviceMesh mesh = x.sharding().mesh();
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const Box rows = x.body()->layout->box_of(rank), own = weights.body()->layout->box_of(rank);
    const int64_t from = rows.offset[0], to = from + rows.shape[0];
    bool fits = true;
    for_each_segment(numbers, [&](int64_t segment, int64_t first, int64_t count) {
      const int64_t expert = segment % experts - own.offset[0];
      const bool is_here = std::max(first, from) < std::min(first + count, to);
      if (is_here && (expert < 0 || expert >= own.shape[0])) fits = false;
    });
    if (!fits) return 0;
  }
  return parts;
}

static Tensor grouped(const char* what, const Tensor& x, const Tensor& weights,
                      const Tensor& counts, bool linear) {
  for (const Tensor& operand : {x, weights, counts}) check_tensor(what, operand);
  if (x.ndim() != 2 || weights.ndim() != 3 || counts.ndim() != 2) {
    fail(what, ": shapes are ", x.shape(), ", ", weights.shape(), " and ", counts.shape(),
         ", expected [rows, k], ", linear ? "[experts, n, k]" : "[experts, k, n]",
         " and [groups, experts]");
  }
  if (counts.size(1) != weights.size(0)) {
    fail(what, ": counts are ", counts.shape(), ", expected ", weights.size(0),
         " in dim 1, the experts of ", weights.shape());
  }
  const DType dtype = promote(x.dtype(), weights.dtype());
  return grouped_matmul_op(
      {as_dtype(x, dtype), as_dtype(weights, dtype), cast(counts, DType::i64)},
      {.structure = {weights.size(0), joined_parts(x, weights, counts), linear, counts.size(0)}});
}

Tensor grouped_matmul(const Tensor& x, const Tensor& weights, const Tensor& counts) {
  return grouped("grouped_matmul", x, weights, counts, false);
}

Tensor grouped_linear(const Tensor& x, const Tensor& weights, const Tensor& counts) {
  return grouped("grouped_linear", x, weights, counts, true);
}

static void check_router(const Tensor& logits, const RouterOptions& options, const Tensor& bias) {
  check_tensor("route_tokens", logits);
  if (logits.ndim() != 2) {
    fail("route_tokens: logits are ", logits.shape(), ", expected [tokens, experts]");
  }
  const int64_t experts = logits.size(1);
  if (bias && bias.shape() != Shape{experts}) {
    fail("route_tokens: bias is ", bias.shape(), ", expected ", Shape{experts});
  }
  if (options.groups < 1 || experts % options.groups != 0) {
    fail("route_tokens: number of groups is ", options.groups, ", expected a divisor of ", experts,
         ", the experts");
  }
  if (options.top_groups < 1 || options.top_groups > options.groups) {
    fail("route_tokens: top_groups is ", options.top_groups, ", expected 1 to ", options.groups);
  }
  const int64_t most = experts / options.groups * options.top_groups;
  if (options.top_k < 1 || options.top_k > most) {
    fail("route_tokens: top_k is ", options.top_k, ", expected 1 to ", most,
         ", the experts to choose from");
  }
  if (options.groups > 1 && options.group_score == RouterOptions::GroupScore::best_two &&
      experts / options.groups < 2) {
    fail("route_tokens: groups have 1 expert, expected at least 2 for their best two");
  }
}

/// `scores` with -inf for the experts outside of each token's best groups.
static Tensor within_best_groups(const Tensor& scores, const RouterOptions& options) {
  const int64_t tokens = scores.size(0), experts = scores.size(1);
  const Tensor grouped = reshape(scores, {tokens, options.groups, experts / options.groups});
  const bool sums = options.group_score == RouterOptions::GroupScore::best_two;
  const Tensor of_groups = sums ? sum(topk(grouped, 2, 2).values, {2}) : max(grouped, {2});
  const Tensor best = topk(of_groups, options.top_groups, 1).indices;
  const Tensor is_best = scatter_along_dim(zeros_like(of_groups), 1, best, 1.0);
  const Tensor outside = expand(unsqueeze(equal(is_best, 0), 2), grouped.shape());
  return reshape(masked_fill(grouped, outside, -std::numeric_limits<double>::infinity()),
                 {tokens, experts});
}

Routing route_tokens(const Tensor& logits, const RouterOptions& options, const Tensor& bias) {
  check_router(logits, options, bias);
  const Tensor wide = logits.dtype() == DType::f64 ? logits : cast(logits, DType::f32);
  Routing routing;
  routing.scores = options.scores == RouterOptions::Scores::softmax ? softmax(wide) : sigmoid(wide);
  {
    NoGrad no_grad;
    Tensor ranked = routing.scores.detach();
    if (bias) ranked = add(ranked, cast(bias.detach(), ranked.dtype()));
    if (options.groups > 1) ranked = within_best_groups(ranked, options);
    routing.experts = topk(ranked, options.top_k, 1).indices;
  }
  Tensor weights = take_along_dim(routing.scores, routing.experts, 1);
  if (options.normalize) {
    // Sigmoids of one token's experts can all be 0.
    const double least = options.scores == RouterOptions::Scores::sigmoid ? 1e-20 : 0;
    weights = div(weights, add(sum(weights, {1}, true), least));
  }
  routing.weights = options.scale == 1 ? weights : mul(weights, options.scale);
  return routing;
}

Tensor balance_loss(const Routing& routing) {
  const auto experts = routing.scores.size(1);
  const int64_t tokens = routing.experts.size(0);
  Tensor chosen;
  {
    NoGrad no_grad;
    const Tensor ones = ones_like(cast(routing.experts, routing.scores.dtype()));
    chosen = sum(add_along_dim(ones, routing.experts, 1, experts), {0});
  }
  const Tensor share = mul(chosen, static_cast<double>(experts) / static_cast<double>(tokens));
  return sum(mul(share, mean(routing.scores, {0})));
}

Tensor router_z_loss(const Tensor& logits) {
  check_tensor("router_z_loss", logits);
  const Tensor wide = logits.dtype() == DType::f64 ? logits : cast(logits, DType::f32);
  const Tensor sums = logsumexp(wide, -1);
  return mean(mul(sums, sums));
}

Tensor balanced_bias(const Tensor& bias, const Tensor& counts, double rate) {
  check_tensor("balanced_bias", bias, counts);
  if (bias.ndim() != 1 || counts.ndim() < 1 || counts.size(counts.ndim() - 1) != bias.size(0)) {
    fail("balanced_bias: counts are ", counts.shape(), ", expected ", bias.size(0),
         " in the last dim, the experts of the bias ", bias.shape());
  }
  NoGrad no_grad;
  Tensor load = cast(counts, DType::f32);
  while (load.ndim() > 1) load = sum(load, {0});
  const Tensor error = sub(mean(load, {0}, true), load);
  return add(bias.detach(), cast(mul(sign(error), rate), bias.dtype()));
}

/// This op is not in `all_ops`: its gradient is not that of its values.
static const Op with_loss_op{OpSpec{
    .name = "with_loss",
    .rule = "..., . -> ...",
    .takes = {anything()},
    .linear = {{0}},
    .positions = std::vector<std::string>(),
    .view =
        [](const Call& c) {
          return std::optional<View>(View{c.in(0).strides, 0});
        },
    .backward = give_each(
        {[](auto& g) { return g.grad(); },
         [](auto& g) { return full({}, g.value(0), options_next_to(g.grad(), g.in_dtype(1))); }}),
    .saves_in = std::vector<int>{},
}};

Tensor with_loss(const Tensor& x, const Tensor& loss, double scale) {
  check_tensor("with_loss", x, loss);
  if (loss.numel() != 1) fail("with_loss: loss is ", loss.shape(), ", expected one element");
  return with_loss_op({x, reshape(loss, {})}, {.values = {scale}});
}

}  // namespace weft
