// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/split_products.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "mesh/grid.h"
#include "ops/dims.h"
#include "ops/moved_parts.h"
#include "weft/error.h"
#include "weft/extend/tape.h"
#include "weft/ops.h"

namespace weft {

using Kind = MovedParts::Kind;

constexpr const char* kUnsplit = "split products into 1 part";

/// The gradient of a layer's output, and its weight, until all layers have theirs.
struct LayerGradient {
  Tensor gradient;
  Tensor weight;
};

static Tensor layer_product(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return bias ? linear(x, weight, bias) : linear(x, weight);
}

static void check_split(const char* what, const Tensor& x, const SplitProducts& split) {
  check_tensor(what, x);
  if (!split.axis || split.axis.ndim() != 1) {
    fail(what, ": the mesh is not a view of one axis, expected one such as mesh[\"tp\"]");
  }
  if (split.parts >= 1 && split.parts <= kMostProductParts) return;
  fail(what, ": number of parts is ", split.parts, ", expected one from 1 to ", kMostProductParts);
}

/// The dim, other than the last, that the axis alone cuts; -1 without.
static int cut_dim(const Sharding& sharding, const DeviceMesh& axis, int ndim) {
  if (!sharding || !(sharding.mesh() == axis.root()) || axis.size() == 1) return -1;
  const Placement& placement = sharding[axis.root_axis(0)];
  if (!placement.is_shard() || placement.dim() >= ndim - 1 || placement.outer() > 1) return -1;
  return sharding.axes_cutting(placement.dim()).size() == 1 ? placement.dim() : -1;
}

/// True when the axis alone cuts `dim` of a parameter, whose other axes replicate.
static bool is_cut(const Tensor& parameter, const DeviceMesh& axis, int dim) {
  const Sharding sharding = parameter.sharding();
  if (!sharding || !(sharding.mesh() == axis.root()) || sharding.has_sizes()) return false;
  for (int i = 0; i < sharding.axes(); ++i) {
    const Placement expected = i == axis.root_axis(0) ? Placement(Shard(dim)) : Replicate();
    if (sharding[i] != expected) return false;
  }
  return true;
}

static Sharding moved_along(const Tensor& x, const DeviceMesh& axis, const Placement& placement) {
  Pattern pattern = x.sharding().pattern();
  pattern.set(axis.root_axis(0), placement);
  return Sharding::of(axis.root(), pattern);
}

static Ref<Layout> as_sum(const CutRows& rows) {
  return with_placement(*rows.cut, rows.axis, Partial());
}

/// Starts to reduce and scatter the gradient of the input: the sum of the layers' products.
static MovedParts scattered_gradient(const CutRows& rows, std::vector<LayerGradient> layers,
                                     Device device) {
  // The largest product is split.
  std::ranges::stable_sort(layers, {},
                           [](const LayerGradient& layer) { return layer.weight.block().numel(); });
  MovedParts moved(rows, Kind::reduce_scatter, new_tensor(rows.cut, device),
                   new_tensor(as_sum(rows), device));
  for (size_t i = 0; i + 1 < layers.size(); ++i) {
    matmul_product().into(moved.whole(), i > 0, std::array{layers[i].gradient, layers[i].weight});
  }
  const LayerGradient& last = layers.back();
  {
    ProductParts parts(rows.rows, {}, [&](int part, const MemoryBlock& out) {
      // A result that needs a copy to its place is not there yet.
      if (out.data == moved.whole().block().data) moved.start(part, out);
    });
    parts.skip(device);
    matmul_product().into(moved.whole(), layers.size() > 1, std::array{last.gradient, last.weight});
  }
  moved.start_others();
  moved.log(last.weight.block().shape);
  return moved;
}

struct GatheredInput::State {
  Tensor x;
  SplitProducts split;
  uint64_t version;
  /// True when x's gradient is computed.
  bool records;
  /// The dim of x that the axis cuts; -1: products are not split.
  int dim;
  std::optional<CutRows> rows = {};
  std::optional<MovedParts> gather = {};
  /// It is not recorded: `token` connects the layers with x.
  Tensor whole = {};
  Tensor token = {};
  /// Older than the tape's node that computes x's gradient.
  uint64_t sequence = 0;
  std::shared_ptr<std::vector<LayerGradient>> layers =
      std::make_shared<std::vector<LayerGradient>>();
  /// Recorded, for layers whose products are not split.
  Tensor unsplit = {};

  bool is_split_by(const Tensor& weight, const Tensor& bias) const;
  void start();
  void record_gradient();
  Tensor first_product(const Tensor& weight, const Tensor& bias);
  Tensor split_product(const Tensor& weight, const Tensor& bias);
};

/// True when the product reads the whole input as it is gathered.
bool GatheredInput::State::is_split_by(const Tensor& weight, const Tensor& bias) const {
  const auto fits = [&](const Tensor& parameter) {
    return parameter.dtype() == x.dtype() && is_cut(parameter, split.axis, 0);
  };
  return dim >= 0 && fits(weight) && (!bias || fits(bias));
}

void GatheredInput::State::start() {
  const Tensor own = contiguous(x.detach());
  rows.emplace(layout_of(own), split.axis.root_axis(0), dim, split.parts);
  whole = new_tensor(rows->whole, x.device());
  gather.emplace(*rows, Kind::gather, own, whole);
  gather->start_others();
  if (records) record_gradient();
}

/// Records two nodes: the younger one starts products and collectives of x's gradient, the older
/// one waits for them. Backward runs the youngest first: the layers, the first of these, the
/// gradients of the weights, and the second.
void GatheredInput::State::record_gradient() {
  const auto moving = std::make_shared<std::optional<MovedParts>>();
  const Tensor nothing = zeros({0});
  const Tensor waits = record("gathered_input", {x}, {nothing}, [moving](const Tensors&) {
    check_first_order("gathered_input", kUnsplit);
    (*moving)->wait();
    const Tensor gradient = (*moving)->own();
    moving->reset();
    return Tensors{gradient};
  })[0];
  sequence = next_sequence();
  token = record("gathered_input", {waits}, {nothing},
                 [moving, rows = *rows, layers = layers, device = x.device()](const Tensors& g) {
                   moving->emplace(scattered_gradient(rows, std::exchange(*layers, {}), device));
                   return g;
                 })[0];
}

/// Computes the parts as they arrive.
Tensor GatheredInput::State::first_product(const Tensor& weight, const Tensor& bias) {
  Tensor y;
  {
    ProductParts parts(rows->rows, [&](int part) { gather->wait(part); }, {});
    parts.skip(x.device());
    y = layer_product(whole, weight, bias);
  }
  gather->wait();
  gather->log(weight.block().shape);
  gather.reset();
  return y;
}

Tensor GatheredInput::State::split_product(const Tensor& weight, const Tensor& bias) {
  if (!rows) start();
  const Tensor y = gather ? first_product(weight, bias) : layer_product(whole, weight, bias);
  if (!records) return y;
  if (y.body()->node) y.body()->node->sequence = sequence;
  return record("split_linear", {token, y}, {y}, [layers = layers, weight](const Tensors& g) {
    check_first_order("split_linear", kUnsplit);
    layers->push_back({contiguous(g[0].detach()), weight});
    return Tensors{zeros({0}), g[0]};
  })[0];
}

GatheredInput::GatheredInput(const Tensor& x, const SplitProducts& split) {
  check_split("gathered_input", x, split);
  const bool is_sum = x.is_sharded() && x.sharding().has_partial();
  const bool splits = split.parts > 1 && !is_sum;
  state_ = std::make_unique<State>(
      State{.x = x,
            .split = split,
            .version = x.storage()->version(),
            .records = is_recorded(x),
            .dim = splits ? cut_dim(x.sharding(), split.axis, x.ndim()) : -1});
}

GatheredInput::~GatheredInput() = default;

bool GatheredInput::is_of(const Tensor& x) const {
  return x.body() == state_->x.body() && x.storage()->version() == state_->version &&
         is_recorded(x) == state_->records;
}

Tensor GatheredInput::linear(const Tensor& weight, const Tensor& bias) {
  State& state = *state_;
  if (state.is_split_by(weight, bias)) return state.split_product(weight, bias);
  if (!state.unsplit) {
    const DeviceMesh& axis = state.split.axis;
    const bool is_here = state.x.is_sharded() && state.x.sharding().mesh() == axis.root();
    state.unsplit =
        is_here ? redistributed(state.x, moved_along(state.x, axis, Replicate())) : state.x;
  }
  return layer_product(state.unsplit, weight, bias);
}

/// True when the product of x and weight is a Partial sum along the axis only, without movement.
static bool makes_sum(const Tensor& x, const Tensor& weight, const Tensor& bias, int dim,
                      const DeviceMesh& axis) {
  const Sharding sharding = x.sharding();
  if (!sharding || !(sharding.mesh() == axis.root()) || axis.size() == 1) return false;
  const int last = x.ndim() - 1;
  const Axes cutting = sharding.axes_cutting(last);
  if (cutting.size() != 1 || cutting[0] != axis.root_axis(0)) return false;
  if (sharding.has_partial() || sharding.has_sizes() || sharding.has_inner()) return false;
  if (dim < 0 || dim >= last) return false;
  if (!sharding.axes_cutting(dim).empty()) return false;
  if (weight.dtype() != x.dtype() || !is_cut(weight, axis, 1)) return false;
  return !bias ||
         (bias.dtype() == x.dtype() && bias.is_sharded() && bias.sharding().is_replicated());
}

/// The gradient of x, computed as parts of the output's gradient arrive.
static Tensor input_gradient(MovedParts& gather, const Ref<Layout>& x, const Tensor& weight) {
  Tensor gradient = new_tensor(x, weight.device());
  ProductParts parts(gather.rows(), [&](int part) { gather.wait(part); }, {});
  parts.skip(weight.device());
  matmul_product().into(gradient, false, std::array{gather.whole(), weight});
  return gradient;
}

/// The backward of a layer whose output has been scattered.
static Tensors layer_gradients(const CutRows& rows, const Tensor& gradient, const Tensor& weight,
                               const Ref<Layout>& x, bool wants_input) {
  MovedParts gather(rows, Kind::gather, contiguous(gradient.detach()),
                    new_tensor(rows.whole, gradient.device()));
  gather.start_others();
  const Tensor of_input = wants_input ? input_gradient(gather, x, weight) : Tensor();
  gather.wait();
  gather.log(wants_input ? weight.block().shape : Shape{0, 0});
  return {of_input, gather.whole()};
}

static Tensor split_linear(const Tensor& x, const Tensor& weight, const Tensor& bias, int dim,
                           const SplitProducts& split) {
  const Shape shape = with_size(x.shape(), x.ndim() - 1, weight.size(0));
  const Ref<Layout> cut = layout_of(moved_along(x, split.axis, Shard(dim)), shape, x.dtype());
  const CutRows rows(cut, split.axis.root_axis(0), dim, split.parts);
  MovedParts moved(rows, Kind::reduce_scatter, new_tensor(cut, x.device()), {});
  const Tensor sum = [&] {
    ProductParts parts(rows.rows, {},
                       [&](int part, const MemoryBlock& out) { moved.start(part, out); });
    parts.skip(x.device());
    return layer_product(x.detach(), weight, bias);
  }();
  if (layout_of(sum) != as_sum(rows)) {
    fail("linear_reduce_scatter: the product is laid out as ", sum.sharding(), ", expected ",
         as_sum(rows)->sharding);
  }
  moved.finish(sum);
  moved.log(weight.block().shape);
  const bool wants_input = is_recorded(x);
  if (!wants_input && !is_recorded(sum)) return moved.own();
  return record("linear_reduce_scatter", {x, sum}, {moved.own()},
                [rows, weight, layout = layout_of(x), wants_input](const Tensors& g) {
                  check_first_order("linear_reduce_scatter", kUnsplit);
                  return layer_gradients(rows, g[0], weight, layout, wants_input);
                })[0];
}

Tensor linear_reduce_scatter(const Tensor& x, const Tensor& weight, const Tensor& bias, int dim,
                             const SplitProducts& split) {
  check_split("linear_reduce_scatter", x, split);
  if (split.parts > 1 && makes_sum(x, weight, bias, dim, split.axis)) {
    return split_linear(x, weight, bias, dim, split);
  }
  const Tensor sum = layer_product(x, weight, bias);
  return sum.is_sharded() ? redistributed(sum, moved_along(sum, split.axis, Shard(dim))) : sum;
}

}  // namespace weft
