// SPDX-License-Identifier: Apache-2.0
#include "weft/moe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/checks.h"
#include "nn/transformer_block.h"
#include "weft/context.h"
#include "weft/ops.h"
#include "weft/stream.h"
#include "weft/trace.h"

namespace weft {

static const char* const kBias = "e_score_correction_bias";

static void check_moe(const MoEConfig& config) {
  check_positive("moe", "dim", config.dim);
  check_positive("moe", "width", config.width);
  check_positive("moe", "experts", config.experts);
  check_positive("moe", "chunks", config.chunks);
  if (config.chunks > 1 && config.capacity_factor) {
    fail("moe: chunks is ", config.chunks, ", expected 1 with a capacity_factor");
  }
  if (config.shared_width < 0) {
    fail("moe: shared_width must be at least 0, got ", config.shared_width);
  }
  if (config.shared_gate && config.shared_width == 0) {
    fail("moe: shared_gate is set without a shared expert, expected shared_width above 0");
  }
}

/// Initial values of a weight with `in` inputs.
static Parameter::Initializer expert_values(const MoEConfig& config, int64_t in) {
  if (config.deviation) return normal_values(*config.deviation);
  return uniform_values(1 / std::sqrt(static_cast<double>(in)));
}

Router::Router(const MoEConfig& config)
    : options_(config.router),
      has_bias_(config.balance_bias),
      f32_logits_(config.f32_logits || config.router.scores == RouterOptions::Scores::sigmoid) {
  declare("weight", {config.experts, config.dim}, expert_values(config, config.dim));
  if (has_bias_) register_buffer(kBias, zeros({config.experts}));
}

Tensors Router::forward(const Tensors& inputs) {
  const Tensor& tokens = only_input("router", inputs);
  const bool is_wide = f32_logits_ && tokens.dtype() != DType::f64;
  const auto prepared = [&](const Tensor& x) { return is_wide ? cast(x, DType::f32) : x; };
  const Tensor logits = linear(prepared(tokens), prepared(used(0)));
  const Routing routing = route_tokens(logits, options_, has_bias_ ? buffer(kBias) : Tensor());
  return {routing.weights, routing.experts, routing.scores, logits};
}

Experts::Experts(const MoEConfig& config) : capacity_factor_(config.capacity_factor) {
  const Shape in = {config.experts, config.width, config.dim};
  declare("gate_proj", in, expert_values(config, config.dim));
  declare("up_proj", in, expert_values(config, config.dim));
  declare("down_proj", {config.experts, config.dim, config.width},
          expert_values(config, config.width));
}

/// Sums what the ranks of the experts' axis computed of tokens that all of them have. Sums along
/// other axes, over the width of the experts, stay partial.
static Tensor summed(const Tensor& y, const Tensor& computed, const Tensor& weights) {
  if (!y.is_sharded() || !computed.is_sharded() || !weights.is_sharded()) return y;
  std::vector<Placement> placements;
  bool changes = false;
  for (int axis = 0; axis < y.sharding().mesh().ndim(); ++axis) {
    placements.push_back(y.sharding()[axis]);
    if (!placements.back().is_partial() || computed.sharding()[axis].is_partial()) continue;
    placements.back() = weights.sharding()[axis];
    changes = true;
  }
  return changes ? y.redistribute(Placements(std::span<const Placement>(placements))) : y;
}

Tensors Experts::forward(const Tensors& inputs) {
  if (inputs.size() != 3) fail("experts: number of inputs is ", inputs.size(), ", expected 3");
  const Device device = inputs[0].device();
  const int64_t part = std::exchange(part_, -1);
  ExpertRows rows;
  Tensor x;
  {
    const TraceSpan span("dispatch", part, device);
    rows = rows_by_expert(inputs[2], used(0), capacity_factor_, imbalance_);
    x = dispatch_rows(inputs[0], rows);
  }
  dropped_ = rows.dropped;
  const auto product = [&](const Tensor& a, size_t weight) {
    return grouped_linear(a, used(weight), rows.counts);
  };
  Tensor computed;
  {
    const TraceSpan span("expert products", part, device);
    computed = product(swiglu(product(x, 0), product(x, 1)), 2);
  }
  const TraceSpan span("combine", part, device);
  return {summed(combine_rows(computed, rows, inputs[1]), computed, inputs[1]), rows.counts};
}

/// A second stream of a GPU whose ranks exchange tokens; elsewhere work runs at once. Backward runs
/// there what was recorded there.
class SideStream {
 public:
  explicit SideStream(const Tensor& tokens) {
    const Device device = tokens.device();
    if (device.kind != DeviceKind::cuda || !tokens.is_sharded()) return;
    stream_ = stream_for(device, StreamRole::side);
    Event::record(current_stream(device)).wait(*stream_);
  }
  template <class F> auto run(const F& f) const {
    std::optional<StreamScope> scope;
    if (stream_) scope.emplace(*stream_);
    return f();
  }
  void join() const {
    if (!stream_) return;
    const TraceSpan span("wait for the side stream", -1, stream_->device, TraceSpan::Time::waits);
    Event::record(*stream_).wait(current_stream(stream_->device));
  }
  /// Frees what `run` computed and this stream has read. The other one waits for this one before
  /// it uses memory again.
  void free(Tensor computed) const {
    run([&] { std::exchange(computed, {}); });
  }

 private:
  std::optional<Stream> stream_;
};

MoE::MoE(const MoEConfig& config) : config_(config) {
  check_moe(config);
  gate_ = add("gate", std::make_shared<Router>(config));
  experts_ = add("experts", std::make_shared<Experts>(config));
  if (config.shared_width > 0) {
    shared_ =
        add(config.shared_name,
            make_feed_forward({.dim = config.dim, .ffn = config.shared_width}, config.deviation));
  }
  if (config.shared_gate) {
    shared_gate_ =
        add("shared_expert_gate", std::make_shared<Linear>(config.dim, 1, false, config.deviation));
  }
}

Tensors MoE::forward(const Tensors& inputs) {
  const Tensor& x = only_input("moe", inputs);
  if (x.ndim() < 1 || x.size(x.ndim() - 1) != config_.dim) {
    fail("moe: input is ", x.shape(), ", expected [..., ", config_.dim, "]");
  }
  const Tensor tokens = reshape(x, {x.numel() / config_.dim, config_.dim});
  const Tensors routed = (*gate_)(Tensors{tokens});
  const SideStream side(tokens);
  Tensor shared = shared_ ? side.run([&] { return shared_of(tokens); }) : Tensor();
  const Tensors computed = config_.chunks > 1 ? in_chunks(x, routed, side)
                                              : (*experts_)(Tensors{tokens, routed[0], routed[1]});
  side.join();
  Tensor y = shared ? weft::add(computed[0], shared) : computed[0];
  side.free(std::exchange(shared, {}));
  if (Context::current().grad_enabled && is_training()) {
    count(computed[1]);
    y = with_losses(y, routed);
  }
  const Tensor mask = std::exchange(mask_, {});
  if (!config_.returns_balance) return {reshape(y, x.shape())};
  if (mask) {
    const Tensors balance = masked_balance(routed, reshape(mask, {tokens.size(0), 1}));
    return {reshape(y, x.shape()), balance[0], balance[1]};
  }
  const Tensor choices = cast(sum(computed[1], {0}), routed[2].dtype());
  return {reshape(y, x.shape()), mean(routed[2], {0}),
          div(choices, static_cast<double>(tokens.size(0)))};
}

Tensors MoE::masked_balance(const Tensors& routed, const Tensor& mask) const {
  const Tensor& scores = routed[2];
  const Tensor counted = cast(mask.detach(), scores.dtype());
  const Tensor total = clip(sum(counted), 1, std::nullopt);
  Tensor choices;
  {
    const NoGrad no_grad;
    // one_hot would read the indices to check them.
    const Tensor places = cast(unsqueeze(routed[1], 2), DType::i64);
    const Sharding whole =
        places.is_sharded() ? Sharding(places.sharding().mesh(), {}) : Sharding();
    const Tensor numbers = arange(config_.experts, {DType::i64, places.device(), whole});
    const Tensor chosen = cast(equal(places, numbers), scores.dtype());
    choices = div(sum(mul(chosen, unsqueeze(counted, 2)), {0, 1}), total);
  }
  return {div(sum(mul(scores, counted), {0}), total), choices};
}

Tensor MoE::shared_of(const Tensor& tokens) {
  const TraceSpan span("shared expert", -1, tokens.device());
  const Tensor all = (*shared_)(tokens);
  return shared_gate_ ? mul(sigmoid((*shared_gate_)(tokens)), all) : all;
}

Tensors MoE::in_chunks(const Tensor& x, const Tensors& routed, const SideStream& side) {
  // Rows of a batch are cut along the first dim, so that parts of sequences stay where they are.
  const int dim = x.ndim() - 2;
  const int64_t count = x.numel() / config_.dim, size = dim > 0 ? x.size(dim) : 1;
  const int64_t chunks = std::min(config_.chunks, size);
  if (chunks < 2) {
    return (*experts_)(Tensors{reshape(x, {count, config_.dim}), routed[0], routed[1]});
  }
  const auto part = [&](const Tensor& all, int64_t begin, int64_t end) {
    const int64_t width = all.size(all.ndim() - 1);
    Shape shape = x.shape();
    shape[dim + 1] = width;
    const Tensor taken = slice(reshape(all, shape), dim, begin, end);
    return reshape(taken, {taken.numel() / width, width});
  };
  Tensors parts, counts;
  for (int64_t i = 0; i < chunks; ++i) {
    experts_->begin_part(i);
    const int64_t begin = size * i / chunks, end = size * (i + 1) / chunks;
    // Reshaping may move uneven rows, on the part's stream too.
    const auto compute = [&] {
      const Tensors computed = (*experts_)(
          Tensors{part(x, begin, end), part(routed[0], begin, end), part(routed[1], begin, end)});
      Shape shape = x.shape();
      shape[dim] = end - begin;
      parts.push_back(reshape(computed[0], shape));
      counts.push_back(computed[1]);
    };
    i % 2 == 0 ? compute() : side.run(compute);
  }
  side.join();
  Tensor all = counts[0];
  for (size_t i = 1; i < counts.size(); ++i) all = weft::add(all, counts[i]);
  const Tensor joined = reshape(cat(parts, dim), {count, config_.dim});
  for (size_t i = 1; i < parts.size(); i += 2) {
    side.free(std::exchange(parts[i], {}));
    side.free(std::exchange(counts[i], {}));
  }
  return {joined, all};
}

Tensor MoE::with_losses(const Tensor& y, const Tensors& routed) {
  Tensor result = y;
  const auto include = [&](const Tensor& loss, double coefficient, Tensor& shown) {
    shown = loss.detach();
    result = with_loss(result, loss, coefficient);
  };
  const double balance = config_.balance_coefficient, z = config_.z_coefficient;
  if (balance != 0) {
    include(weft::balance_loss({routed[0], routed[1], routed[2]}), balance, balance_loss_);
  }
  if (z != 0) include(router_z_loss(routed[3]), z, z_loss_);
  return result;
}

void MoE::count(const Tensor& counts) {
  NoGrad no_grad;
  const Tensor rows = cast(sum(counts, {0}), DType::f32);
  load_ = load_ ? weft::add(load_, rows) : rows;
  dropped_ += experts_->dropped();
}

void MoE::update_balance(double rate) {
  if (config_.balance_bias && load_) {
    const auto& buffers = gate_->own_buffers();
    gate_->set_buffer(kBias, balanced_bias(buffers.front().value, load_, rate));
  }
  load_ = {};
  dropped_ = 0;
}

std::vector<MoE*> moe_layers(Module& model) {
  std::vector<MoE*> layers;
  for (const auto& [path, module] : model.named_modules()) {
    if (auto* layer = dynamic_cast<MoE*>(module)) layers.push_back(layer);
  }
  return layers;
}

}  // namespace weft
