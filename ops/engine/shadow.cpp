// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "ops/engine/tensor_body.h"
#include "ops/engine/watch.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/ops.h"

namespace weft {

namespace {

double greatest(const Tensor& x) { return x.numel() == 0 ? 0 : max(abs(x)).item(); }

/// On one device, in f64; integers as they are.
Tensor whole_of(const Tensor& x) {
  const Tensor whole = x.full_tensor();
  if (is_complex(whole.dtype())) return cast(whole, c128);
  return is_floating(whole.dtype()) ? cast(whole, f64) : whole;
}

/// The results by the definition, or by the forward of an op without one.
Tensors meant(const OpBody& op, const Tensors& operands, const Attributes& attributes) {
  if (op.spec.definition) return op.spec.definition(operands, attributes);
  const std::shared_ptr<const OpBody> own(std::shared_ptr<const OpBody>(), &op);
  return Op(own).call(operands, attributes);
}

/// Whether the op, or its definition, can be computed in f64.
bool takes_f64(const OpBody& op) {
  const std::vector<DType>& dtypes = taken(op.spec, 0).dtypes;
  return op.spec.definition || dtypes.empty() || std::ranges::find(dtypes, f64) != dtypes.end();
}

class Shadow final : public CallWatch {
 public:
  Shadow(const ShadowOptions& options, ScopeNames names)
      : options_(options), names_(std::move(names)) {}

  bool reads_operands() const override { return true; }
  void computed(const OpBody& op, std::span<const Tensor> operands, const Attributes& attributes,
                std::span<const Tensor> results) override {
    if (!op.spec.writes.empty() || results.empty() || !is_sampled(operands)) return;
    const Suspended suspended;
    Tensors wholes;
    for (const Tensor& operand : operands) wholes.push_back(operand.full_tensor());
    const Tensors expected = meant(op, wholes, attributes);
    for (size_t i = 0; i < std::min(expected.size(), results.size()); ++i) {
      const Tensor found = results[i].full_tensor();
      const bool is_half = size_of(found.dtype()) == 2;
      const double off = difference(cast(found, f64), cast(expected[i], f64));
      if (off <= (is_half ? 30 : 1) * options_.result) continue;
      throw_runtime_error(concat(op.spec.name, ": result ", i, ' ', found.shape(), " is off by ",
                                 off, place_of_call(names_, rank_of(results)),
                                 ", expected at most ", options_.result, " of the greatest"));
    }
  }

  void differentiated(const OpNode& node, std::span<const Tensor> gradients,
                      const Tensors& passed) override {
    if (!is_sampled(gradients)) return;
    const Suspended suspended;
    const std::optional<std::array<double, 2>> found = slopes_of(node, gradients, passed);
    if (!found) return;
    const auto [given, expected] = *found;
    const double scale = std::max({std::abs(given), std::abs(expected), 1e-30});
    const double off = std::abs(given - expected) / scale;
    const auto is_half = [](const Tensor& x) { return x && size_of(x.dtype()) == 2; };
    const bool is_coarse = !takes_f64(*node.op) || std::ranges::any_of(passed, is_half);
    if (off <= (is_coarse ? 30 : 1) * options_.gradient) return;
    throw_runtime_error(concat(node.op->spec.name, ": the gradient of its operands is off by ", off,
                               place_of_call(names_, rank_of(gradients)), ", expected at most ",
                               options_.gradient, " of central differences"));
  }

 private:
  /// Calls with and without a mesh are counted apart: ranks share the former only.
  bool is_sampled(std::span<const Tensor> tensors) {
    bool is_shared = false;
    for (const Tensor& x : tensors) {
      if (!x) continue;
      if (x.device().kind == DeviceKind::meta || size_of(x.dtype()) == 1) return false;
      is_shared = is_shared || x.is_sharded();
    }
    return calls_[is_shared ? 1 : 0]++ % std::max<int64_t>(options_.every, 1) == 0;
  }

  /// The greatest difference where finite numbers are expected, relative to the greatest of these.
  static double difference(const Tensor& found, const Tensor& expected) {
    if (!(found.shape() == expected.shape())) return INFINITY;
    if (found.numel() == 0) return 0;
    const Tensor is_number = isfinite(expected);
    const Tensor zero = zeros_like(expected);
    const double scale = greatest(where(is_number, expected, zero));
    const double off = greatest(where(is_number, sub(found, expected), zero));
    return std::isnan(off) ? INFINITY : off / std::max(scale, 1e-30);
  }

  /// The slope along a direction, by the gradients that the node passed on and by differences.
  static std::optional<std::array<double, 2>> slopes_of(const OpNode& node,
                                                        std::span<const Tensor> gradients,
                                                        const Tensors& passed);

  ShadowOptions options_;
  ScopeNames names_;
  std::array<int64_t, 2> calls_ = {0, 0};
};

/// The sum of the results times their gradients, in f64.
double weighted(const OpBody& op, const Tensors& operands, const Attributes& attributes,
                std::span<const Tensor> gradients) {
  const Tensors results = meant(op, operands, attributes);
  double total = 0;
  for (size_t r = 0; r < gradients.size(); ++r) {
    if (!gradients[r]) continue;
    total += sum(mul(cast(results[r], f64), whole_of(gradients[r]))).item();
  }
  return total;
}

/// A direction with a part along the gradient and one that depends on the position only.
Tensor direction_of(const Tensor& gradient) {
  const Tensor phase = cast(arange(gradient.numel()), f64);
  const Tensor wave = reshape(cos(add(mul(phase, 0.73), 1)), gradient.shape());
  const auto unit = [](const Tensor& x) {
    const double norm = std::sqrt(sum_squares(x).item());
    return norm > 0 ? div(x, norm) : x;
  };
  return add(unit(gradient), unit(wave));
}

std::optional<std::array<double, 2>> Shadow::slopes_of(const OpNode& node,
                                                       std::span<const Tensor> gradients,
                                                       const Tensors& passed) {
  Tensors at, along;
  double given = 0;
  for (int i = 0; i < node.from.size(); ++i) {
    const auto n = static_cast<size_t>(i);
    const bool is_saved = i < node.in.size() && node.in[i].tensor;
    const Layout& layout = *node.route->operand(i).given;
    // A call from before the scope: its gradient depends on results, or not on this operand.
    if (!is_saved && (!is_floating(layout.dtype) || node.op->saved_out)) return std::nullopt;
    // The op does not need it for its gradient, and so may have been changed since.
    if (is_saved && node.in[i].tensor.storage()->version() != node.in[i].version) {
      return std::nullopt;
    }
    at.push_back(is_saved ? whole_of(node.saved(node.in.all(), i, "operand"))
                          : reshape(sin(cast(arange(layout.shape.product()), f64)), layout.shape));
    const bool moves = passed[n] && !(node.op->spec.view && i > 0);
    along.push_back(moves ? direction_of(whole_of(passed[n])) : Tensor());
    if (moves) given += sum(mul(whole_of(passed[n]), along[n])).item();
  }
  const bool in_f64 = takes_f64(*node.op);
  const double step = in_f64 ? 1e-6 : 1e-2;
  const auto value_at = [&](double distance) {
    Tensors moved = at;
    for (size_t i = 0; i < at.size(); ++i) {
      if (along[i]) moved[i] = add(at[i], mul(along[i], distance));
      if (!in_f64) moved[i] = cast(moved[i], node.route->operand(static_cast<int>(i)).given->dtype);
    }
    return weighted(*node.op, moved, node.attributes, gradients);
  };
  const double above = value_at(step), here = value_at(0), below = value_at(-step);
  const double expected = (above - below) / (2 * step);
  // The slopes on both sides differ at a corner, as that of relu at 0: nothing is expected there.
  const double scale = std::max({std::abs(given), std::abs(expected), 1e-30});
  const double bend = std::abs(above + below - 2 * here) / step;
  if (bend > (in_f64 ? 1e-3 : 0.3) * scale) return std::nullopt;
  return std::array{given, expected};
}

}  // namespace

ShadowScope::ShadowScope(const ShadowOptions& options, ScopeNames names)
    : WatchScope(std::make_shared<Shadow>(options, std::move(names))) {}

}  // namespace weft
