// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cross_entropy/cross_entropy.h"

#include "mesh/grid.h"
#include "mesh/rows.h"
#include "ops/definition.h"
#include "ops/dims.h"
#include "ops/promotion.h"
#include "ops/rows.h"
#include "ops/take.h"
#include "src/device/cuda/runtime.h"
#include "src/kernels/map/map.h"
#include "src/kernels/take/take.h"
#include "weft/ops.h"

namespace weft {

namespace {

struct RowLoss {
  int64_t ignored;
  template <class T> WEFT_FN T operator()(T lse, T picked, T target) const {
    // NaN for an infinite lse, of which no softmax exists.
    return target == T(ignored) ? T(0) : lse - picked + (lse - lse);
  }
};

}  // namespace

/// Returns the first class that this rank holds.
static int64_t first_class(const Call& c) { return c.in_box(0).offset[last_dim(c)]; }

/// values: the target of rows that do not count; 1 where the targets were checked before.
static int64_t ignored_target(const Call& c) { return static_cast<int64_t>(c.value(0)); }

static Attributes ignoring(int64_t target, bool is_checked = false) {
  return {.values = {static_cast<double>(target), is_checked ? 1.0 : 0.0}};
}

bool check_ids_on_all_ranks(const Tensor& ids, const std::function<std::string()>& find) {
  const Layout& layout = *layout_of(ids);
  if (!layout.grid || layout.sharding.has_partial()) return false;
  if (ids.device().kind == DeviceKind::meta) return false;
  if (cuda::kWithCuda && cuda::is_capturing()) return true;
  const Axes axes = axes_cutting(layout);
  const std::string mistake = find();
  if (!axes.empty()) fail_together(layout.grid->group(axes), mistake);
  if (!mistake.empty()) fail(mistake);
  return true;
}

static std::string wrong_target(const MemoryBlock& ids, const Shape& logits, int64_t ignored) {
  const auto outside = find_outside(ids, 0, logits.back(), ignored);
  if (!outside) return "";
  return concat("cross_entropy: target is ", *outside, ", expected one below ", logits.back(),
                ", the classes of logits ", logits, ", or ", ignored);
}

static void check_targets(const Call& c) {
  if (c.value(1) != 0) return;
  const std::string mistake = wrong_target(c.in(1), c.in_shape(0), ignored_target(c));
  if (!mistake.empty()) fail(mistake);
}

/// Losses and logsumexp of the rows of logits, whose targets are given.
static Tensors cross_entropy_definition(std::span<const Tensor> given, const Attributes& a) {
  const Tensor x = widened(given[0]), lse = logsumexp(x, -1);
  const Tensor is_ignored = equal(given[1], a.values[0]);
  const Tensor classes = unsqueeze(masked_fill(given[1], is_ignored, 0), -1);
  const Tensor picked = squeeze(take_along_dim(x, classes, -1), -1);
  return {masked_fill(sub(lse, picked), is_ignored, 0), lse};
}

static Tensors cross_entropy_gradient(std::span<const Tensor> given, const Attributes& a) {
  const Tensor x = widened(given[0]);
  const Tensor is_ignored = equal(given[1], a.values[0]);
  const Tensor dloss = unsqueeze(masked_fill(widened(given[3]), is_ignored, 0), -1);
  const Tensor is_target = equal(unsqueeze(given[1], -1), numbers_next_to(x, 0, x.shape().back()));
  const Tensor p = exp(sub(x, unsqueeze(widened(given[2]), -1)));
  return {as_dtype(mul(dloss, sub(p, as_dtype(is_target, p.dtype()))), given[0].dtype())};
}

/// operands: logits, targets, logsumexp of the rows, gradient of the rows' losses.
/// Missed layouts: a Partial gradient of the rows is reduced first; it is smaller than the result.
static const Op cross_entropy_backward_op = register_op({
    .name = "cross_entropy_backward",
    .rule = "... v, ..., ..., ... -> ... v",
    .positions = {{"v"}},
    .forward =
        [](const Call& c) {
          cross_entropy_backward(c.out(), c.in(3), c.in(0), c.in(1), c.in(2), first_class(c),
                                 ignored_target(c));
        },
    .definition = cross_entropy_gradient,
    .samples = {sample_of_indices({{5, 7}, {5}, {5}, {5}}, ignoring(-100), {f32, i64, f32, f32}, 7),
                sample_of_indices({{2, 5, 3}, {2, 5}, {2, 5}, {2, 5}}, ignoring(1),
                                  {f32, i32, f32, f32}, 3)},
});

/// results: the rows' losses and, for the gradient, their logsumexp. With a sharded vocabulary,
/// ranks reduce three numbers per row.
static const Op cross_entropy_op = register_op({
    .name = "cross_entropy",
    .rule = "... v, ... -> ..., ...",
    .dtype = row_dtype,
    .forward =
        [](const Call& c) {
          check_targets(c);
          if (c.staged()) {
            logsumexp(c.out(1), c.stage(0), c.stage(1));
          } else {
            logsumexp(c.out(1), c.in(0), last_dim(c));
            pick(c.out(), c.in(0), c.in(1), 0);
          }
          map_floating(RowLoss{ignored_target(c)}, c.out(), c.out(1),
                       c.staged() ? c.stage(2) : c.out(), c.in(1));
        },
    .backward =
        [](const Grad& g) {
          if (g.grad(1)) return give_by_definition(g, cross_entropy_definition);
          g.give(0, cross_entropy_backward_op, {g.in(0), g.in(1), g.out(1), g.grad()},
                 g.attributes());
        },
    .definition = cross_entropy_definition,
    .staged_over = {"v"},
    .stages = {row_extreme_stage(), row_sum_exp_stage(), row_sum_stage([](const Call& c) {
                 pick(c.stage(2), c.in(0), c.in(1), first_class(c));
               })},
    .saves_out = {1},
    .samples = {sample_of_indices({{5, 7}, {5}}, ignoring(-100), {f32, i64}, 7),
                sample_of_indices({{2, 5, 3}, {2, 5}}, ignoring(1), {f32, i32}, 3)},
});

static Tensor rows_ignoring(const Tensor& logits, const Tensor& targets, int64_t ignored) {
  Tensor x = as_floating("cross_entropy", logits);
  if (!targets) fail("cross_entropy: no targets are given, expected one for each row");
  const Tensor classes = as_indices("cross_entropy", "targets", targets);
  Shape rows = x.shape();
  if (rows.ndim() > 0) rows.erase(rows.ndim() - 1);
  if (x.ndim() == 0 || !(targets.shape() == rows)) {
    fail("cross_entropy: targets are ", targets.shape(), ", expected one for each row of logits ",
         x.shape());
  }
  const bool is_checked = check_ids_on_all_ranks(
      classes, [&] { return wrong_target(classes.block(), x.shape(), ignored); });
  return cross_entropy_op.call({x, classes}, ignoring(ignored, is_checked))[0];
}

Tensor cross_entropy_rows(const Tensor& logits, const Tensor& targets) {
  return rows_ignoring(logits, targets, kIgnoredTarget);
}

void check_loss_options(const char* what, const CrossEntropyOptions& options, int64_t classes) {
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    fail(what, ": label_smoothing is ", options.label_smoothing, ", expected 0 to 1");
  }
  constexpr int64_t kMostExact = (int64_t{1} << 24) - 1;  // ids are compared as f32
  if (options.ignore_index > kMostExact || options.ignore_index < -kMostExact) {
    fail(what, ": ignore_index is ", options.ignore_index, ", expected ", -kMostExact, " to ",
         kMostExact);
  }
  if (!(options.z_loss >= 0)) fail(what, ": z_loss is ", options.z_loss, ", expected 0 or more");
  if (!options.weight) return;
  if (!(options.weight.shape() == Shape{classes}) || !is_floating(options.weight.dtype())) {
    fail(what, ": weight is ", options.weight.shape(), " of ", options.weight.dtype(),
         ", expected [", classes, "] of a floating dtype");
  }
  if (options.weight.requires_grad()) {
    fail(what, ": weight requires a gradient, expected constants");
  }
}

/// The weights of the rows' targets; 0 in rows that do not count.
static Tensor target_weights(const Tensor& targets, const CrossEntropyOptions& options,
                             DType dtype) {
  const Tensor counts = not_equal(as_dtype(targets, i64), Number(options.ignore_index));
  const Tensor kept = cast(counts, dtype);
  if (!options.weight) return kept;
  const Tensor ids = where(counts, targets, zeros_like(targets));
  const Tensor flat =
      take(as_dtype(options.weight.detach(), dtype), reshape(ids, {ids.numel()}), 0);
  return mul(kept, reshape(flat, targets.shape()));
}

Tensor reduced_loss(const Tensor& rows, const Tensor& targets, const CrossEntropyOptions& options) {
  if (options.reduction == LossReduction::none) return rows;
  const Tensor total = sum(rows);
  if (options.reduction == LossReduction::sum) return total;
  const Tensor count = sum(target_weights(targets, options, total.dtype()));
  const Tensor mean = div(total, count);
  // NaN, not infinite, where all weights of the targets are 0.
  return options.weight && options.label_smoothing > 0 ? mul(mean, div(count, count)) : mean;
}

/// Targets that are probabilities of all classes.
static Tensor against_probabilities(const Tensor& logits, const Tensor& targets,
                                    const CrossEntropyOptions& options) {
  if (!(targets.shape() == logits.shape())) {
    fail("cross_entropy: targets are ", targets.shape(), ", expected ", logits.shape(),
         ", a probability for each of the logits");
  }
  const DType dtype = logits.dtype() == f64 ? f64 : f32;
  const Tensor x = as_dtype(logits, dtype);
  const double share = options.label_smoothing / static_cast<double>(x.size(-1));
  Tensor p = add(mul(as_dtype(targets, dtype), 1 - options.label_smoothing), share);
  if (options.weight) p = mul(p, as_dtype(options.weight.detach(), dtype));
  Tensor rows = neg(sum(mul(p, log_softmax(x)), {-1}));
  if (options.z_loss > 0) rows = add(rows, mul(square(logsumexp(x, -1)), options.z_loss));
  if (options.reduction == LossReduction::none) return rows;
  return options.reduction == LossReduction::sum ? sum(rows) : mean(rows);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  if (logits && logits.ndim() > 0) check_loss_options("cross_entropy", options, logits.size(-1));
  if (logits && targets && is_floating(targets.dtype()) && targets.ndim() == logits.ndim()) {
    return against_probabilities(as_floating("cross_entropy", logits), targets, options);
  }
  Tensor rows = rows_ignoring(logits, targets, options.ignore_index);
  const Tensor ids = as_indices("cross_entropy", "targets", targets);
  const DType dtype = rows.dtype();
  if (options.weight) rows = mul(rows, target_weights(ids, options, dtype));
  if (options.label_smoothing > 0 || options.z_loss > 0) {
    const Tensor x = as_dtype(as_floating("cross_entropy", logits), dtype);
    const Tensor lse = logsumexp(x, -1);
    Tensor more = mul(square(lse), options.z_loss);
    if (options.label_smoothing > 0) {
      const Tensor above = sub(unsqueeze(lse, -1), x);
      const Tensor of_classes =
          options.weight ? mul(above, as_dtype(options.weight.detach(), dtype)) : above;
      rows = mul(rows, 1 - options.label_smoothing);
      more = add(more, mul(mean(of_classes, {-1}), options.label_smoothing));
    }
    // A factor of 0 would not do: the gradient of a mean over no rows is infinite.
    const Tensor counts = not_equal(ids, Number(options.ignore_index));
    rows = where(counts, add(rows, more), zeros_like(rows));
  }
  return reduced_loss(rows, ids, options);
}

Tensor mse_loss(const Tensor& input, const Tensor& target, std::string_view reduction) {
  check_tensor("mse_loss", input, target);
  if (!(input.shape() == target.shape())) {
    fail("mse_loss: target is ", target.shape(), ", expected ", input.shape(),
         ", the shape of input");
  }
  if (is_complex(input.dtype()) || is_complex(target.dtype())) {
    fail("mse_loss: dtypes are ", input.dtype(), " and ", target.dtype(), ", expected real ones");
  }
  const Tensor losses = square(sub(input, target));
  if (reduction == "none") return losses;
  if (reduction == "mean") return mean(losses);
  if (reduction == "sum") return sum(losses);
  fail("mse_loss: reduction is ", in_quotes(reduction), ", expected mean, sum or none");
}

}  // namespace weft
