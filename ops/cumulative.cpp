// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "ops/complex.h"
#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/sorting.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/scan/scan.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"

namespace weft {

// Scans along a dim that may be sharded: each rank scans its part for the total, one gathered stage
// gives every rank the totals of all parts, and each rank scans again from the total of the parts
// before its own. Traffic: 8 bytes for each row and other part.

/// A scan, and the total of no elements.
struct Scan {
  Running kind;
  double identity;
};

/// Writes the total of this rank's part to its entry of the stage.
template <const Scan& kScan> static void write_total(const Call& c) {
  const auto [dim, from_end] = unpack<DimAndFlag>(c.attributes().structure);
  const MemoryBlock& in = c.in(0);
  const int64_t size = in.shape[dim];
  if (size == 0) return fill(c.stage(0), kScan.identity);
  const DenseMemory scanned(in.shape, is_floating(in.dtype) ? f64 : i64, in.device);
  running_total(kScan.kind, scanned.block, in, dim, from_end);
  copy(slice_at(c.stage(0), 0, 0), slice_at(scanned.block, dim, from_end ? 0 : size - 1));
}

/// The total of all parts that come before part `part` of `totals` (`from_end`: after it); without
/// memory when there is none.
struct Carry {
  DenseMemory scanned;
  MemoryBlock block;

  Carry(const Scan& scan, const MemoryBlock& totals, int64_t part, bool from_end)
      : scanned(totals.shape, totals.dtype, totals.device) {
    const int64_t last = from_end ? part + 1 : part - 1;
    if (last < 0 || last == totals.shape[0]) return;
    running_total(scan.kind, scanned.block, totals, 0, from_end);
    block = slice_at(scanned.block, 0, last);
  }
  const MemoryBlock* start() const { return block.data ? &block : nullptr; }
};

/// Registers a scan along a dim: `spec` without rule, forward and stages.
template <const Scan& kScan> static Op register_scan(OpSpec spec) {
  spec.rule_of = scan_rule<1>;
  spec.structure = dim_and_flag("dim, whether from the end");
  spec.forward = [](const Call& c) {
    const auto [dim, from_end] = unpack<DimAndFlag>(c.attributes().structure);
    if (!c.staged()) return running_total(kScan.kind, c.out(), c.in(0), dim, from_end);
    const Carry carry(kScan, c.stage(0), c.stage_box(0).offset[0], from_end);
    running_total(kScan.kind, c.out(), c.in(0), dim, from_end, carry.start());
  };
  spec.staged_over = {"n"};
  spec.stages = {{.result = "-n", .run = write_total<kScan>, .gathered = true}};
  return register_op(std::move(spec));
}

static const Scan kSum{Running::sum, 0}, kProduct{Running::product, 1},
    kLogSumExp{Running::logsumexp, -std::numeric_limits<double>::infinity()};

static Attributes scan_attributes(int dim, bool from_end = false) {
  return {.structure = pack_structure(DimAndFlag{dim, from_end})};
}

/// The gradient sums in the opposite direction.
static const Op cumulative_sum_op = register_scan<kSum>({
    .name = "cumulative_sum",
    .linear = {{0}},
    .dtype = dtype_of_total,
    .backward =
        [](const Grad& g) {
          const auto [dim, from_end] = unpack<DimAndFlag>(g.attributes().structure);
          g.give(0, cumulative_sum_op, {g.grad()}, scan_attributes(dim, !from_end));
        },
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 2}}, {0, 1}),
                sample_with({{5, 7}}, {0, 0}, {i32})},
});

static void give_factors_of_products(const Grad& g);

/// Returns for each element of a row those up to it, and `identity` in place of the others: n x n
/// for a row of n, the last two dims, with rows along the last dim.
static Tensor elements_up_to(const Tensor& x, const Attributes& attributes, double identity) {
  const auto [dim, from_end] = unpack<DimAndFlag>(attributes.structure);
  const int64_t n = x.size(dim);
  const Tensor row = unsqueeze(transpose(x, dim, -1), -2);
  const Tensor i = unsqueeze(numbers_next_to(row, 0, n), -1), j = numbers_next_to(row, 0, n);
  return masked_fill(row, from_end ? less(j, i) : greater(j, i), identity);
}

/// Multiplies the factors of each product apart: gradients of any order are right at zeros too.
static Tensors products_of_factors(std::span<const Tensor> given, const Attributes& attributes) {
  const auto dim = static_cast<int>(attributes.structure[0]);
  return {transpose(prod(elements_up_to(given[0], attributes, 1), {-1}), dim, -1)};
}

static Tensors logsumexp_of_elements(std::span<const Tensor> given, const Attributes& attributes) {
  const auto dim = static_cast<int>(attributes.structure[0]);
  const double none = -std::numeric_limits<double>::infinity();
  return {transpose(logsumexp(elements_up_to(given[0], attributes, none), -1), dim, -1)};
}

static const Op cumulative_prod_op = register_scan<kProduct>({
    .name = "cumulative_prod",
    .dtype = dtype_of_total,
    .backward = give_factors_of_products,
    .definition = products_of_factors,
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 2}}, {0, 1}),
                sample_with({{5, 7}}, {0, 0}, {i32})},
});

/// The gradient of running products, in f64, without a division by zero. For elements before the
/// first zero of a row: the sum of dy times the products from the element up to the zero, over the
/// element. For the first zero: that of the products without it, up to the second zero. For others:
/// 0.
static void give_factors_of_products(const Grad& g) {
  if (backward_creates_graph()) return give_by_definition(g, products_of_factors);
  const auto [dim, from_end] = unpack<DimAndFlag>(g.attributes().structure);
  const Attributes opposite = scan_attributes(dim, !from_end);
  const Tensor x = as_dtype(g.in(0), DType::f64), is_zero = equal(x, 0);
  const Tensor factors = masked_fill(x, is_zero, 1);
  const Tensor zeros = cumulative_sum_op({is_zero}, g.attributes());
  const Tensor products = cumulative_prod_op({factors}, g.attributes());
  const Tensor terms =
      masked_fill(mul(as_dtype(g.grad(), DType::f64), products), equal(g.grad(), 0), 0);
  const auto sum_behind = [&](int zeros_before) {
    const Tensor own = masked_fill(terms, not_equal(zeros, zeros_before), 0);
    return cumulative_sum_op({own}, opposite);
  };
  const Tensor gradient = where(is_zero, sum_behind(1), div(sum_behind(0), factors));
  g.give(0, as_dtype(gradient, g.in_dtype(0)));
}

/// The part of the gradient of `x` from the positive elements of `dy`: exp(x) times the sum, over
/// this and all later elements, of dy * exp(-result), in logarithms.
static Tensor log_gradient(const Op& op, const Tensor& dy, const Tensor& result, const Tensor& x,
                           const Attributes& attributes) {
  const double none = -std::numeric_limits<double>::infinity();
  const Tensor of_none = equal(result, none);
  const Tensor terms = masked_fill(sub(log(clip(dy, 0, std::nullopt)), result), of_none, none);
  return exp(add(op({terms}, attributes), x));
}

static const Op cumulative_logsumexp_op = register_scan<kLogSumExp>({
    .name = "cumulative_logsumexp",
    .backward =
        [](const Grad& g) {
          if (backward_creates_graph()) return give_by_definition(g, logsumexp_of_elements);
          const auto [dim, from_end] = unpack<DimAndFlag>(g.attributes().structure);
          const Attributes opposite = scan_attributes(dim, !from_end);
          const auto part = [&](const Tensor& dy) {
            return log_gradient(cumulative_logsumexp_op, dy, g.out(), g.in(0), opposite);
          };
          g.give(0, sub(part(g.grad()), part(neg(g.grad()))));
        },
    .definition = logsumexp_of_elements,
    .saves_out = {0},
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 2}}, {0, 1}),
                sample_with({{2, 3}}, {1, 0}, {f64})},
});

/// Puts `initial` before the totals along `dim`.
static Tensor starting_with(double initial, const Tensor& totals, int dim) {
  const Shape one = with_size(totals.shape(), dim, 1);
  return cat({full(one, initial, options_next_to(totals, totals.dtype())), totals}, dim);
}

Tensor cumulative_sum(const Tensor& a, int dim, bool include_initial) {
  const int at = checked_dim("cumulative_sum", a, dim);
  if (is_complex(a)) return view_as_complex(cumulative_sum(view_as_real(a), at, include_initial));
  const Tensor totals = cumulative_sum_op({reduced_before_widening(a)}, scan_attributes(at));
  return include_initial ? starting_with(0, totals, at) : totals;
}

Tensor cumulative_prod(const Tensor& a, int dim, bool include_initial) {
  const int at = checked_dim("cumulative_prod", a, dim);
  const Tensor totals = cumulative_prod_op({a}, scan_attributes(at));
  return include_initial ? starting_with(1, totals, at) : totals;
}

Tensor logcumsumexp(const Tensor& a, int dim) {
  const int at = checked_dim("logcumsumexp", a, dim);
  if (!is_floating(a.dtype())) {
    fail("logcumsumexp: dtype is ", a.dtype(), ", expected a floating one");
  }
  return cumulative_logsumexp_op({a}, scan_attributes(at));
}

/// Writes the extreme of this rank's part, or its index, to its entry of stage `stage`.
static void write_extreme(const Call& c, bool greatest, int stage) {
  const int dim = along_dim(c);
  const MemoryBlock& in = c.in(0);
  if (in.shape[dim] == 0) return fill(c.stage(stage), stage == 0 ? 0 : -1);
  const DenseMemory values(in.shape, in.dtype, in.device), indices(in.shape, i64, in.device);
  cumulative_extreme(values.block, indices.block, in,
                     {.dim = dim, .greatest = greatest, .offset = c.in_box(0).offset[dim]});
  const DenseMemory& found = stage == 0 ? values : indices;
  copy(slice_at(c.stage(stage), 0, 0), slice_at(found.block, dim, in.shape[dim] - 1));
}

static Stage extreme_stage(bool greatest, int stage) {
  return {.result = "-n",
          .run = [=](const Call& c) { write_extreme(c, greatest, stage); },
          .index = stage == 1,
          .gathered = true};
}

static void extreme_forward(const Call& c, bool greatest) {
  const int dim = along_dim(c);
  ExtremeScan scan{.dim = dim, .greatest = greatest, .offset = c.in_box(0).offset[dim]};
  if (!c.staged()) return cumulative_extreme(c.out(0), c.out(1), c.in(0), scan);
  const MemoryBlock& totals = c.stage(0);
  const DenseMemory values(totals.shape, totals.dtype, totals.device),
      indices(totals.shape, i64, totals.device);
  cumulative_extreme(values.block, indices.block, totals,
                     {.dim = 0, .greatest = greatest, .numbers = &c.stage(1)});
  const int64_t part = c.stage_box(0).offset[0];
  if (part == 0) return cumulative_extreme(c.out(0), c.out(1), c.in(0), scan);
  const MemoryBlock start = slice_at(values.block, 0, part - 1),
                    start_index = slice_at(indices.block, 0, part - 1);
  scan.start = &start;
  scan.start_index = &start_index;
  cumulative_extreme(c.out(0), c.out(1), c.in(0), scan);
}

/// Results: the extremes and their indices. Traffic: 16 bytes for each row and other part.
static Op cumulative_extreme_op(const char* name, bool greatest) {
  return register_with_indices({
      .name = name,
      .rule_of = scan_rule<1, 2>,
      .structure = one_dim(),
      .forward = [=](const Call& c) { extreme_forward(c, greatest); },
      .stages = {extreme_stage(greatest, 0), extreme_stage(greatest, 1)},
      .samples = {sample_with({{5, 7}}, {1}), sample_with({{5, 3, 2}}, {0}),
                  sample_with({{5, 7}}, {0}, {i32})},
  });
}

static const Op cummax_op = cumulative_extreme_op("cummax", true);
static const Op cummin_op = cumulative_extreme_op("cummin", false);

static ValuesAndIndices extremes_along(const Op& op, const Tensor& a, int dim) {
  const char* what = op.spec().name.c_str();
  check_tensor(what, a);
  if (a.ndim() == 0) return without_dim(extremes_along(op, unsqueeze(a, 0), dim), 0, false);
  const Tensors found = call_ordered(op, {a}, {.structure = {checked_dim(what, a, dim)}});
  return {found[0], found[1]};
}

ValuesAndIndices cummax(const Tensor& a, int dim) { return extremes_along(cummax_op, a, dim); }
ValuesAndIndices cummin(const Tensor& a, int dim) { return extremes_along(cummin_op, a, dim); }

}  // namespace weft
