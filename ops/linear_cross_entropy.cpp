// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include <algorithm>

#include "mesh/grid.h"
#include "mesh/rows.h"
#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/halves.h"
#include "ops/promotion.h"
#include "ops/rows.h"
#include "ops/take.h"
#include "src/kernels/copy/copy.h"
#include "src/kernels/reduce/reduce.h"
#include "src/kernels/softmax/softmax.h"
#include "src/kernels/take/take.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"

namespace weft {

namespace {

/// The optional operands that follow weight, x, targets (in backward: and lse, picked, dloss), in
/// this order.
enum HeadFlag : int64_t { kBias = 1, kClassWeights = 2 };

constexpr const char* kHeadName = "linear_cross_entropy";

bool has(const Attributes& attributes, HeadFlag flag) {
  return (attributes.structure[0] & flag) != 0;
}

/// Operands as matrices and vectors. The targets and statistics are viewed as vectors of rows.
struct HeadOperands {
  DenseBlock x, targets;
  LinearHead head;

  HeadOperands(const Call& c, int optional)
      : x(DenseBlock::of(c.in(1))), targets(DenseBlock::of(c.in(2))) {
    const MemoryBlock& of_x = x;
    const int64_t width = of_x.shape.back(), rows = as_rows(targets).numel();
    const auto numbers = unpack<HeadNumbers>(c.attributes().values);
    head = {.x = dense_block(of_x.data, of_x.dtype, {rows, width}, of_x.device),
            .weight = c.in(0),
            .targets = as_rows(targets),
            .bias = {},
            .class_weights = {},
            .first = c.in_box(0).offset[0],
            .classes = c.in_shape(0)[0],
            .numbers = numbers};
    if (has(c.attributes(), kBias)) head.bias = c.in(optional++);
    if (has(c.attributes(), kClassWeights)) head.class_weights = c.in(optional);
  }
  static MemoryBlock as_rows(const MemoryBlock& dense) {
    return dense_block(dense.data, dense.dtype, {dense.shape.product()}, dense.device);
  }
};

}  // namespace

static Rule head_rule(const Attributes& attributes, bool backward) {
  std::string operands = "v [d], ... [d], ...", results = "..., ..., ...";
  if (backward) operands += ", ..., ..., ...", results = "v [d], ... [d]";
  if (has(attributes, kBias)) operands += ", v";
  if (has(attributes, kBias) && backward) results += ", v";
  if (has(attributes, kClassWeights)) operands += ", [c]";
  return {operands + " -> " + results, {{"three", 3}}};
}

/// Results 0 to 2 of forward.
static Tensors head_definition(std::span<const Tensor> given, const Attributes& attributes) {
  const auto numbers = unpack<HeadNumbers>(attributes.values);
  size_t optional = 3;
  const Tensor bias = has(attributes, kBias) ? widened(given[optional++]) : Tensor();
  const Tensor weights = has(attributes, kClassWeights) ? widened(given[optional]) : Tensor();
  Tensor z = mul(linear(widened(given[1]), widened(given[0])), numbers.multiplier);
  if (bias) z = add(z, bias);
  if (numbers.softcap > 0) z = mul(tanh(mul(z, 1 / numbers.softcap)), numbers.softcap);
  const Tensor is_ignored = equal(given[2], numbers.ignored);
  const Tensor classes = clip(given[2], 0, z.size(-1) - 1);
  const Tensor lse = logsumexp(z, -1);
  const Tensor picked = squeeze(take_along_dim(z, unsqueeze(classes, -1), -1), -1);
  Tensor loss = mul(sub(lse, picked), 1 - numbers.smoothing);
  if (weights) loss = mul(loss, take(weights, classes, 0));
  if (numbers.smoothing > 0) {
    Tensor all = sub(unsqueeze(lse, -1), z);
    if (weights) all = mul(all, weights);
    loss = add(loss, mul(sum(all, {-1}), numbers.smoothing / static_cast<double>(z.size(-1))));
  }
  if (numbers.z_loss > 0) loss = add(loss, mul(square(lse), numbers.z_loss));
  return {masked_fill(loss, is_ignored, 0), lse, picked};
}

static Structure head_structure() {
  return {"flags", [](const Dims& s, std::span<const Shape>) {
            return s.ndim() == 1 && s[0] >= 0 && s[0] < 4;
          }};
}

static std::string wrong_head_target(const MemoryBlock& ids, const Shape& weight, int64_t ignored) {
  const auto outside = find_outside(ids, 0, weight[0], ignored);
  if (!outside) return "";
  return concat(kHeadName, ": target is ", *outside, ", expected one below ", weight[0],
                ", the classes of weight ", weight, ", or ", ignored);
}

/// Value 5 is 1 where the targets were checked before.
static void check_head_targets(const Call& c, const LinearHead& head) {
  if (c.value(5) != 0) return;
  const std::string mistake = wrong_head_target(head.targets, c.in_shape(0), head.numbers.ignored);
  if (!mistake.empty()) fail(mistake);
}

/// Writes a part's statistics to its entry of the gathered stage, [1, 3, rows].
static void head_stage(const Call& c) {
  const HeadOperands operands(c, 3);
  const MemoryBlock own = slice_at(c.stage(0), 0, 0);
  const auto row = [&](int64_t i) { return HeadOperands::as_rows(slice_at(own, 0, i)); };
  linear_head_statistics(operands.head, {row(0), row(1), row(2)});
}

/// The statistics of all parts: results 1 and 2, and sums of weighted logits.
static void combine_head_parts(const MemoryBlock& parts, const HeadStatistics& rows) {
  const auto statistic = [&](int64_t i) {
    const MemoryBlock all = slice_at(parts, 1, i);
    return MemoryBlock{
        all.data, all.dtype, all.device, {parts.shape[0], rows.lse.numel()}, {parts.strides[0], 1}};
  };
  logsumexp(rows.lse, statistic(0), 0);
  reduce(Reduction::sum, rows.picked, statistic(1), {0});
  reduce(Reduction::sum, rows.weighted, statistic(2), {0});
}

/// The classes [begin, end) of a head.
static LinearHead classes_of(const LinearHead& head, int64_t begin, int64_t end) {
  LinearHead part = head;
  part.weight = range_of(head.weight, 0, begin, end);
  part.bias = range_of(head.bias, 0, begin, end);
  part.first += begin;
  return part;
}

/// The statistics of all classes from those of the halves [0, half) and [half, classes).
static void add_head_halves(const LinearHead& head, int64_t half, const HeadStatistics& rows) {
  const DenseMemory parts({2, 3, rows.lse.numel()}, f64, rows.lse.device);
  for (int64_t i = 0; i < 2; ++i) {
    const MemoryBlock own = slice_at(parts.block, 0, i);
    const auto row = [&](int64_t at) { return HeadOperands::as_rows(slice_at(own, 0, at)); };
    linear_head_statistics(classes_of(head, i == 0 ? 0 : half, i == 0 ? half : head.classes),
                           {row(0), row(1), row(2)});
  }
  combine_head_parts(parts.block, rows);
}

namespace {

/// The vectors that a gradient of a head reads, and the gradients of x and bias.
struct HeadGradients {
  MemoryBlock lse, picked, dloss, dx, dbias;
};

}  // namespace

/// The gradients of rows [begin, end); adds the classes' to dx by halves [0, half) and
/// [half, classes) unless `half` is 0.
static void differentiate_rows_of_head(const LinearHead& given, const HeadGradients& all,
                                       int64_t begin, int64_t end, int64_t half,
                                       const MemoryBlock& dweight, const MemoryBlock& dbias,
                                       bool accumulate) {
  const auto rows = [&](const MemoryBlock& x) { return range_of(x, 0, begin, end); };
  LinearHead head = given;
  head.x = rows(given.x), head.targets = rows(given.targets);
  add_by_halves(rows(all.dx), false, half, head.weight.shape[0],
                [&](int64_t from, int64_t to, const MemoryBlock& dx, bool) {
                  linear_head_backward(classes_of(head, from, to), rows(all.lse), rows(all.picked),
                                       rows(all.dloss), dx, range_of(dweight, 0, from, to),
                                       range_of(dbias, 0, from, to), accumulate);
                });
}

/// Adds the tokens' gradients by halves [0, tokens) and the others too, unless `tokens` is 0.
static void differentiate_head(const LinearHead& head, const HeadGradients& all,
                               const MemoryBlock& dweight, bool accumulate, int64_t half,
                               int64_t tokens) {
  const MemoryBlock& dbias = all.dbias;
  const bool splits_bias = dbias.shape.ndim() > 0 && tokens > 0;
  const DenseMemory other(splits_bias ? dbias.shape : Shape{0}, splits_bias ? dbias.dtype : f32,
                          dweight.device);
  add_by_halves(dweight, accumulate, tokens, head.x.shape[0],
                [&](int64_t begin, int64_t end, const MemoryBlock& to, bool accumulates) {
                  differentiate_rows_of_head(head, all, begin, end, half, to,
                                             begin > 0 && splits_bias ? other.block : dbias,
                                             accumulates);
                });
  if (splits_bias) weft::accumulate(dbias, other.block);
}

/// operands: weight, x, targets, lse and picked (results of forward), the gradient of the losses,
/// and the optional ones.
static const Op linear_cross_entropy_backward_op = register_op({
    .name = "linear_cross_entropy_backward",
    .rule_of = [](const Attributes& a, std::span<const Shape>) { return head_rule(a, true); },
    .structure = head_structure(),
    .positions = {{"v"}},
    .forward =
        [](const Call& c) {
          const HeadOperands operands(c, 6);
          const DenseBlock lse = DenseBlock::of(c.in(3)), picked = DenseBlock::of(c.in(4)),
                           dloss = DenseBlock::of(c.in(5));
          const HeadGradients gradients{
              HeadOperands::as_rows(lse), HeadOperands::as_rows(picked),
              HeadOperands::as_rows(dloss),
              dense_block(c.out(1).data, c.out(1).dtype, operands.head.x.shape, c.out(1).device),
              has(c.attributes(), kBias) ? c.out(2) : MemoryBlock()};
          const int64_t half = half_of(c, 0, 0);
          const bool is_row = c.in(2).shape.ndim() == 2 && c.in(2).shape[0] == 1;
          const int64_t tokens = is_row ? half_of(c, 2, 1) : 0;
          differentiate_head(operands.head, gradients, c.out(0), c.accumulate(0), half, tokens);
        },
    .accumulates = {0},
    .products = [](const Attributes&) { return 3.0; },
    .samples = {sample_of_indices({{7, 3}, {5, 3}, {5}, {5}, {5}, {5}},
                                  {.structure = {0}, .values = {1, 0, 0, 0, -100}},
                                  {f32, f32, i64, f32, f32, f32}, 3),
                sample_of_indices({{3, 4}, {2, 5, 4}, {2, 5}, {2, 5}, {2, 5}, {2, 5}, {3}, {3}},
                                  {.structure = {3}, .values = {0.5, 2, 0.25, 0.125, 1}},
                                  {f32, f32, i32, f32, f32, f32, f32, f32}, 3)},
});

/// operands: weight, x, targets and the optional ones. results: the rows' losses and, for the
/// gradient, the logsumexp of their logits and the logits of their targets. With a weight sharded
/// by classes, ranks gather three numbers per row.
static const Op linear_cross_entropy_op = register_op({
    .name = kHeadName,
    .rule_of = [](const Attributes& a, std::span<const Shape>) { return head_rule(a, false); },
    .structure = head_structure(),
    .dtype = row_dtype,
    .forward =
        [](const Call& c) {
          const HeadOperands operands(c, 3);
          check_head_targets(c, operands.head);
          const MemoryBlock loss = HeadOperands::as_rows(c.out());
          const DenseMemory weighted(loss.shape, loss.dtype, loss.device);
          const HeadStatistics rows{HeadOperands::as_rows(c.out(1)),
                                    HeadOperands::as_rows(c.out(2)), weighted.block};
          if (c.staged()) {
            combine_head_parts(c.stage(0), rows);
          } else if (const int64_t half = half_of(c, 0, 0)) {
            add_head_halves(operands.head, half, rows);
          } else {
            linear_head_statistics(operands.head, rows);
          }
          linear_head_loss(loss, operands.head, rows);
        },
    .backward =
        [](const Grad& g) {
          if (backward_creates_graph()) return give_by_definition(g, head_definition);
          Tensors operands = {g.in(0), g.in(1), g.in(2), g.out(1), g.out(2), g.grad()};
          for (int i = 3; i < g.operands(); ++i) operands.push_back(g.in(i));
          static constexpr int kOf[] = {0, 1, 3};
          const size_t results = has(g.attributes(), kBias) ? 3 : 2;
          g.give_all(std::span(kOf, results), linear_cross_entropy_backward_op, operands,
                     g.attributes());
        },
    .definition = head_definition,
    .staged_over = {"v"},
    .stages = {{.result = "[three] ...", .run = head_stage, .gathered = true}},
    .saves_out = {1, 2},
    .products = [](const Attributes&) { return 1.0; },
    .samples = {sample_of_indices({{7, 3}, {5, 3}, {5}},
                                  {.structure = {0}, .values = {1, 0, 0, 0, -100}}, {f32, f32, i64},
                                  3),
                sample_of_indices({{3, 4}, {2, 5, 4}, {2, 5}, {3}},
                                  {.structure = {1}, .values = {0.5, 2, 0.25, 0.125, 1}},
                                  {f32, f32, i32, f32}, 3)},
});

static void check_head(const Tensor& x, const Tensor& weight, const Tensor& targets,
                       const LinearCrossEntropyOptions& options) {
  if (!x || !weight) fail(kHeadName, ": no tensor is given, expected one");
  if (!targets) fail(kHeadName, ": no targets are given, expected one for each row");
  if (x.ndim() == 0 || weight.ndim() != 2 || x.size(-1) != weight.size(1)) {
    fail(kHeadName, ": x and weight are ", x.shape(), " and ", weight.shape(),
         ", expected [..., d] and [classes, d]");
  }
  Shape rows = x.shape();
  rows.erase(rows.ndim() - 1);
  if (!(targets.shape() == rows)) {
    fail(kHeadName, ": targets are ", targets.shape(), ", expected one for each row of x ",
         x.shape());
  }
  if (options.bias && !(options.bias.shape() == Shape{weight.size(0)})) {
    fail(kHeadName, ": bias is ", options.bias.shape(), ", expected [", weight.size(0),
         "], the classes of weight ", weight.shape());
  }
  if (!(options.softcap >= 0)) {
    fail(kHeadName, ": softcap is ", options.softcap, ", expected 0 or more");
  }
  if (options.multiplier == 0 || options.multiplier != options.multiplier) {
    fail(kHeadName, ": multiplier is ", options.multiplier, ", expected a number other than 0");
  }
  check_loss_options(kHeadName, options.loss, weight.size(0));
}

static Tensor whole_logits(const Tensor& x, const Tensor& weight,
                           const LinearCrossEntropyOptions& options) {
  Tensor logits = linear(x, weight);
  if (options.multiplier != 1) logits = mul(logits, options.multiplier);
  if (options.bias) logits = add(logits, options.bias);
  return options.softcap > 0 ? mul(tanh(mul(logits, 1 / options.softcap)), options.softcap)
                             : logits;
}

/// Rows of the first rank, which has the most of a plain cut, and at least the mean of all ranks:
/// the same number on all ranks.
static int64_t rows_of_a_rank(const Tensor& targets) {
  const Layout& layout = *layout_of(targets);
  if (!layout.grid) return targets.numel();
  return std::max(layout.box_of(0).shape.product(),
                  targets.numel() / layout.grid->size(axes_cutting(layout)));
}

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets,
                            const LinearCrossEntropyOptions& options) {
  check_head(x, weight, targets, options);
  const CrossEntropyOptions& loss = options.loss;
  const bool is_small = rows_of_a_rank(targets) * weight.size(0) <= options.whole_up_to;
  if (is_small && !FixedSums::current()) {
    return cross_entropy(whole_logits(x, weight, options), targets, loss);
  }
  const DType dtype = promote(as_floating(kHeadName, x).dtype(), weight.dtype());
  const Tensor ids = as_indices(kHeadName, "targets", targets);
  Tensors operands = {as_dtype(weight, dtype), as_dtype(x, dtype), ids};
  int64_t flags = 0;
  if (options.bias) {
    flags |= kBias;
    operands.push_back(as_dtype(options.bias, dtype));
  }
  if (loss.weight) {
    flags |= kClassWeights;
    operands.push_back(as_dtype(loss.weight, dtype == f64 ? f64 : f32).detach());
  }
  const HeadNumbers numbers{options.multiplier, options.softcap, loss.label_smoothing, loss.z_loss,
                            loss.ignore_index};
  Attributes attributes{.structure = {flags}, .values = pack_values(numbers)};
  const bool is_checked = check_ids_on_all_ranks(
      ids, [&] { return wrong_head_target(ids.block(), weight.shape(), loss.ignore_index); });
  attributes.values[5] = is_checked ? 1 : 0;
  return reduced_loss(linear_cross_entropy_op.call(operands, attributes)[0], ids, loss);
}

}  // namespace weft
