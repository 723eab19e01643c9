// SPDX-License-Identifier: Apache-2.0
#include "weft/muon.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <regex>
#include <utility>

#include "nn/grouped_optimizer.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/pattern.h"
#include "weft/extend/views.h"
#include "weft/graph.h"
#include "weft/ops.h"

namespace weft {

bool is_hidden_matrix(const NamedParameter& named) {
  if (named.parameter->shape().ndim() != 2) return false;
  const std::string& name = named.name();
  // A module whose name is "head" or ends with "_head", as a whole part of the path.
  bool is_head = name == "output.weight" || name.ends_with(".output.weight");
  for (size_t at = 0; at < name.size();) {
    const size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = std::string_view(name).substr(at, end - at);
    is_head = is_head || part == "head" || part.ends_with("_head");
    at = end + 1;
  }
  constexpr const char* kEmbeddings[] = {"embed", "wte", "wpe"};
  return !is_head && std::ranges::none_of(kEmbeddings, [&](const char* word) {
    return name.find(word) != name.npos;
  });
}

void check_all(const std::vector<MuonOptions>& all) {
  for (const MuonOptions& o : all) {
    if (!(o.learning_rate >= 0) || !(o.momentum >= 0) || !(o.weight_decay >= 0)) {
      fail("muon: learning rate, momentum and weight decay are ", o.learning_rate, ", ", o.momentum,
           " and ", o.weight_decay, ", expected each at least 0");
    }
    if (!(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1)) {
      fail("muon: betas are ", o.beta1, " and ", o.beta2, ", expected both in [0, 1)");
    }
    if (!(o.steps >= 1 && o.steps < 100)) fail("muon: steps are ", o.steps, ", expected 1 to 99");
    if (o.iterates_in != f32 && o.iterates_in != bf16 && o.iterates_in != f64) {
      fail("muon: dtype of the iteration is ", o.iterates_in, ", expected bf16, f32 or f64");
    }
  }
  check_equal_in_groups("muon", "dtype of the iteration", all, &MuonOptions::iterates_in);
}

std::vector<Hyperparameter> hyperparameters(MuonOptions& options) {
  return {{"lr", &options.learning_rate},  {"weight_decay", &options.weight_decay},
          {"momentum", &options.momentum}, {"nesterov", &options.nesterov},
          {"eps", &options.eps},           {"ns_steps", &options.steps},
          {"beta1", &options.beta1},       {"beta2", &options.beta2},
          {"adam_eps", &options.adam_eps}};
}

template class GroupedOptimizer<Muon, MuonOptions>;

Muon::Muon(std::vector<ParameterGroup<MuonOptions>> groups, MuonOptions defaults)
    : GroupedOptimizer(std::move(groups), std::move(defaults)) {
  find_matrices();
}

void Muon::add_group(ParameterGroup<MuonOptions> group) {
  GroupedOptimizer::add_group(std::move(group));
  find_matrices();
}

void Muon::find_matrices() {
  for (size_t i = matrices_.size(); i < parameters().size(); ++i) {
    const NamedParameter& named = parameters()[i];
    const DecayPredicate& given = options_[group_of(i)].is_matrix;
    const bool is_matrix = given ? given(named) : is_hidden_matrix(named);
    if (is_matrix && named.parameter->shape().ndim() != 2) {
      fail("muon: parameter ", named.name(), " is ", named.parameter->shape(),
           ", expected a matrix");
    }
    matrices_.push_back(is_matrix);
  }
}

int Muon::kind_of(size_t parameter) const {
  if (matrices_[parameter]) return 2 + static_cast<int>(parameter);
  return GroupedOptimizer::kind_of(parameter);
}

std::optional<Optimizer::StateSpec> Muon::state_spec(size_t parameter, size_t moment) const {
  if (matrices_[parameter] && moment > 0) return {};
  return Optimizer::state_spec(parameter, moment);
}

/// The step of AdamW, for all but the matrices.
void Muon::update(const Update& update) {
  const size_t i = update.parameter;
  const MuonOptions& options = options_[group_of(i)];
  adamw_(update.value, update.state[0], update.state[1], update.gradient, update.gradient_scale,
         {.learning_rate = learning_rate(group_of(i)),
          .beta1 = options.beta1,
          .beta2 = options.beta2,
          .eps = options.adam_eps,
          .weight_decay = decays_[i] ? options.weight_decay : 0,
          .step = update.step});
}

void Muon::update_all(std::span<const Update> updates) {
  std::vector<Update> others;
  std::vector<size_t> matrices;
  for (const Update& update : updates) {
    if (!matrices_[update.parameter]) others.push_back(update);
  }
  // This reads the gradients, which all ranks have, not the updates, of which some have none.
  for (size_t i = 0; i < parameters().size(); ++i) {
    const Parameter& parameter = *parameters()[i].parameter;
    if (!matrices_[i] || !parameter.grad()) continue;
    if (rests_on_disk(parameter.value())) {
      fail("muon: parameter ", parameters()[i].name(), " rests on disk, expected in memory");
    }
    matrices.push_back(i);
  }
  update_parts(others, true, [this](const Update& part) { update(part); });
  const Tensor scale = updates.empty() ? ones({}) : updates[0].gradient_scale;
  for (const std::vector<size_t>& stack : stacks_of(matrices)) {
    const Sharding sharding = parameters()[stack[0]].parameter->value().sharding();
    if (sharding && sharding.mesh().size() > 1) {
      update_together(stack, scale);
    } else {
      for (const size_t i : stack) update_here(i, scale);
    }
  }
}

/// Updates the momentum of this rank's part of a matrix; gives the direction of the step before it
/// is orthogonalized.
Tensor Muon::direction(size_t parameter, const Tensor& gradient_scale) {
  const MuonOptions& options = options_[group_of(parameter)];
  const Parameter& slot = *parameters()[parameter].parameter;
  const Tensor momentum = state(parameter)[0].local();
  const Device device = momentum.device();
  const Tensor gradient =
      slot.grad().local().to(device).to(momentum.dtype()) * gradient_scale.to(device);
  lerp_(momentum, gradient, 1 - options.momentum);
  return options.nesterov ? lerp(gradient, momentum, options.momentum) : momentum;
}

Tensor Muon::orthogonalized(size_t parameter, const Tensor& direction) const {
  const MuonOptions& options = options_[group_of(parameter)];
  return newton_schulz(direction, static_cast<int64_t>(options.steps), options.coefficients,
                       options.eps);
}

static double rate_for(MuonRate rate, const Shape& shape) {
  const auto a = static_cast<double>(shape[0]), b = static_cast<double>(shape[1]);
  if (rate == MuonRate::match_rms_adamw) return 0.2 * std::sqrt(std::max(a, b));
  return std::sqrt(rate == MuonRate::original ? std::max(1.0, a / b) : a / b);
}

/// Changes this rank's part of a matrix by its part of the orthogonal direction.
void Muon::take(size_t parameter, const Tensor& direction) {
  const size_t group = group_of(parameter);
  const MuonOptions& options = options_[group];
  const Tensor value = parameters()[parameter].parameter->value().local();
  const double decay = decays_[parameter] ? options.weight_decay : 0;
  if (decay != 0) mul_(value, 1 - learning_rate(group) * decay);
  const double rate =
      learning_rate(group) * rate_for(options.rate, parameters()[parameter].parameter->shape());
  add_scaled_(value, direction.to(value.device()), ones({}, {.device = value.device()}), -rate);
}

/// Updates a matrix that this rank holds whole.
void Muon::update_here(size_t parameter, const Tensor& gradient_scale) {
  owners_.resize(parameters().size(), -1);
  owners_[parameter] = 0;
  const Tensor direction = this->direction(parameter, gradient_scale);
  const DType dtype = options_[0].iterates_in;
  take(parameter, orthogonalized(parameter, direction.to(dtype)));
}

/// Groups matrices of equal shape, layout and dtype, in the order of their owners.
std::vector<std::vector<size_t>> Muon::stacks_of(const std::vector<size_t>& matrices) {
  owners_.assign(parameters().size(), -1);
  std::vector<std::pair<DeviceMesh, std::vector<size_t>>> meshes;
  for (const size_t i : matrices) {
    const Sharding sharding = parameters()[i].parameter->value().sharding();
    const DeviceMesh mesh = sharding ? sharding.mesh() : DeviceMesh();
    auto found =
        std::ranges::find(meshes, mesh, &std::pair<DeviceMesh, std::vector<size_t>>::first);
    if (found == meshes.end()) found = meshes.insert(found, {mesh, {}});
    found->second.push_back(i);
  }
  std::vector<std::vector<size_t>> stacks;
  for (auto& [mesh, members] : meshes) {
    std::vector<int64_t> work;
    for (const size_t i : members) {
      const Shape& shape = parameters()[i].parameter->shape();
      work.push_back(newton_schulz_work(shape[0], shape[1]));
    }
    const std::vector<int> owners = balanced_owners(work, mesh ? mesh.size() : 1);
    for (size_t k = 0; k < members.size(); ++k) owners_[members[k]] = owners[k];
    std::ranges::stable_sort(members, {}, [&](size_t i) { return owners_[i]; });
    const auto looks_like = [&](size_t i, size_t j) {
      const Tensor &a = parameters()[i].parameter->value(), &b = parameters()[j].parameter->value();
      return a.shape() == b.shape() && a.sharding() == b.sharding() && a.dtype() == b.dtype() &&
             parameters()[i].parameter->device() == parameters()[j].parameter->device();
    };
    const size_t first = stacks.size();
    for (const size_t i : members) {
      const auto own = std::find_if(stacks.begin() + static_cast<ptrdiff_t>(first), stacks.end(),
                                    [&](const auto& stack) { return looks_like(stack[0], i); });
      own == stacks.end() ? stacks.push_back({i}) : own->push_back(i);
    }
  }
  return stacks;
}

/// The layout of a stack of matrices that have this layout: dim d of them is dim d + 1.
static Sharding stacked(const Sharding& of_one) {
  Pattern pattern(of_one.axes());
  for (const int dim : {0, 1}) {
    for (const int axis : of_one.axes_cutting(dim)) {
      const auto sizes = of_one[axis].sizes();
      pattern.set(axis, Shard{dim + 1, {sizes.begin(), sizes.end()}, of_one[axis].outer()});
    }
  }
  return Sharding::of(of_one.mesh(), pattern);
}

/// The layout in which rank r of the mesh holds `counts[r]` whole matrices of a stack.
static Sharding by_owner(const DeviceMesh& mesh, const std::vector<int64_t>& counts) {
  Pattern pattern(mesh.ndim());
  int parts = 1;
  for (int axis = 0; axis < mesh.ndim(); ++axis) {
    parts *= mesh.axis_size(axis);
    const size_t each = counts.size() / static_cast<size_t>(parts);
    std::vector<int64_t> sizes(static_cast<size_t>(parts));
    for (size_t rank = 0; rank < counts.size(); ++rank) sizes[rank / each] += counts[rank];
    pattern.set(axis, Shard{0, std::move(sizes)});
  }
  return Sharding::of(mesh, pattern);
}

/// Updates matrices of equal shape and layout, sorted by owner: their parts are stacked, so that
/// one redistribution gives each owner its matrices and one brings all parts back.
void Muon::update_together(const std::vector<size_t>& stack, const Tensor& gradient_scale) {
  const Parameter& first = *parameters()[stack[0]].parameter;
  const Sharding sharding = first.value().sharding();
  const DeviceMesh mesh = sharding.mesh();
  const auto count = static_cast<int64_t>(stack.size());
  const Tensor parts = empty(
      {count, first.shape()[0], first.shape()[1]},
      {.dtype = options_[0].iterates_in, .device = first.device(), .sharding = stacked(sharding)});
  const Tensor own_parts = parts.local();
  for (int64_t k = 0; k < count; ++k) {
    copy_(own_parts[k],
          direction(stack[static_cast<size_t>(k)], gradient_scale).to(first.device()));
  }
  std::vector<int64_t> counts(static_cast<size_t>(mesh.size()));
  for (const size_t i : stack) ++counts[static_cast<size_t>(owners_[i])];
  const auto rank = static_cast<size_t>(mesh.rank());
  const int64_t before = std::accumulate(counts.begin(), counts.begin() + mesh.rank(), int64_t{0});
  const Tensor whole = redistributed(parts, by_owner(mesh, counts));
  const Tensor own = whole.local();
  for (int64_t k = 0; k < counts[rank]; ++k) {
    copy_(own[k], orthogonalized(stack[static_cast<size_t>(before + k)], own[k]));
  }
  mark_written(whole);
  const Tensor back = redistributed(whole, parts.sharding()).local();
  for (int64_t k = 0; k < count; ++k) take(stack[static_cast<size_t>(k)], back[k]);
}

Tensor newton_schulz(const Tensor& m, int64_t steps, const std::array<double, 3>& coefficients,
                     double eps) {
  if (!m || m.ndim() != 2) fail("newton_schulz: m is ", m.shape(), ", expected a matrix");
  if (!is_floating(m.dtype()) || is_complex(m.dtype())) {
    fail("newton_schulz: dtype is ", m.dtype(), ", expected a real one with a fraction");
  }
  if (steps < 0 || steps > 1000) {
    fail("newton_schulz: steps is ", steps, ", expected 0 to 1000");
  }
  const NoGrad no_grad;
  const auto [a, b, c] = coefficients;
  const bool is_tall = m.size(0) > m.size(1);
  const Tensor norm = sqrt(sum_squares(m));
  Tensor x = m / clip(norm, eps).to(m.dtype());
  if (is_tall) x = x.t();
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor gram = matmul(x, x.t());
    x = addmm(x, addmm(gram, gram, gram, b, c), x, a, 1);
  }
  return is_tall ? x.t() : x;
}

int64_t newton_schulz_work(int64_t rows, int64_t columns) {
  const int64_t least = std::min(rows, columns), most = std::max(rows, columns);
  return least * least * (2 * most + least);
}

}  // namespace weft
