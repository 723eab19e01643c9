// SPDX-License-Identifier: Apache-2.0
#include <limits>

#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/sorting.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/map/map.h"
#include "src/kernels/scan/scan.h"
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

/// Writes the total of operand `operand`'s part along `dim` to this part's entry of `totals`.
static void write_total(const Scan& scan, const MemoryBlock& totals, const MemoryBlock& in, int dim,
                        bool from_end) {
  const int64_t size = in.shape[dim];
  if (size == 0) return fill(totals, scan.identity);
  const DenseMemory scanned(in.shape, is_floating(in.dtype) ? f64 : i64, in.device);
  running_total(scan.kind, scanned.block, in, dim, from_end);
  copy(slice_at(totals, 0, 0), slice_at(scanned.block, dim, from_end ? 0 : size - 1));
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

/// Stage `index` of an op along a dim: the total of this rank's part of operand `operand`.
static Stage total_stage(const Scan& scan, int index = 0, int operand = 0) {
  return {.result = "-n",
          .run =
              [=](const Call& c) {
                const bool from_end = c.attributes().structure.ndim() > 1 && c.attribute(1);
                write_total(scan, c.stage(index), c.in(operand), along_dim(c), from_end);
              },
          .gathered = true};
}

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
  spec.stages = {total_stage(kScan)};
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

namespace {

struct FirstOfGradient {
  template <class T> WEFT_FN T operator()(T gradient, T x) const { return gradient * x; }
};
struct AddedThroughPart {
  template <class T> WEFT_FN T operator()(T own, T product, T behind) const {
    return own + product * behind;
  }
};

}  // namespace

/// Stage 1 of the gradient: x * gradient at the part's first element, as if there were no others.
static void write_first_of_gradient(const Call& c) {
  const int dim = along_dim(c);
  if (c.in(1).shape[dim] == 0) return fill(c.stage(1), 0);
  const DenseMemory own(c.in(1).shape, DType::f64, c.in(1).device);
  cumulative_product_gradient(own.block, c.in(0), c.in(1), dim);
  map_floating(FirstOfGradient{}, slice_at(c.stage(1), 0, 0), slice_at(own.block, dim, 0),
               slice_at(c.in(1), dim, 0));
}

static void product_gradient_of_part(const Call& c) {
  const MemoryBlock &products = c.stage(0), &own = c.stage(1);
  const int64_t part = c.stage_box(0).offset[0];
  const Carry before(kProduct, products, part, false);
  Shape rest = products.shape;
  rest.erase(0);
  const DenseMemory behind(rest, DType::f64, products.device);
  fill(behind.block, 0);
  for (int64_t i = products.shape[0] - 1; i > part; --i) {
    map_floating(AddedThroughPart{}, behind.block, slice_at(own, 0, i), slice_at(products, 0, i),
                 behind.block);
  }
  cumulative_product_gradient(c.out(), c.in(0), c.in(1), along_dim(c), before.start(),
                              &behind.block);
}

static const Op cumulative_prod_gradient_op = register_op({
    .name = "cumulative_prod_gradient",
    .rule_of = scan_rule<2>,
    .structure = one_dim(),
    .linear = {{0}},
    .forward =
        [](const Call& c) {
          if (c.staged()) return product_gradient_of_part(c);
          cumulative_product_gradient(c.out(), c.in(0), c.in(1), along_dim(c));
        },
    .staged_over = {"n"},
    .stages = {total_stage(kProduct, 0, 1),
               {.result = "-n", .run = write_first_of_gradient, .gathered = true}},
    .samples = {sample_with({{5, 7}, {5, 7}}, {1}), sample_with({{5, 2}, {5, 2}}, {0})},
});

static const Op cumulative_prod_op = register_scan<kProduct>({
    .name = "cumulative_prod",
    .dtype = dtype_of_total,
    .backward =
        [](const Grad& g) {
          g.give(0, cumulative_prod_gradient_op, {g.grad(), g.in(0)},
                 {.structure = {g.attribute(0)}});
        },
    .samples = {sample_with({{5, 7}}, {1, 0}), sample_with({{5, 3, 2}}, {0, 0}),
                sample_with({{5, 7}}, {0, 0}, {i32})},
});

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
          const auto [dim, from_end] = unpack<DimAndFlag>(g.attributes().structure);
          const Attributes opposite = scan_attributes(dim, !from_end);
          const auto part = [&](const Tensor& dy) {
            return log_gradient(cumulative_logsumexp_op, dy, g.out(), g.in(0), opposite);
          };
          g.give(0, sub(part(g.grad()), part(neg(g.grad()))));
        },
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
