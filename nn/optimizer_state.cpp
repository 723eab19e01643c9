// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <utility>

#include "nn/parameter_memory.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/ops/factories.h"
#include "weft/ops/in_place.h"
#include "weft/optimizer.h"

// The state of an optimizer.

namespace weft {

std::optional<Optimizer::StateSpec> Optimizer::state_spec(size_t parameter, size_t) const {
  const Tensor& value = parameters_[parameter].parameter->value();
  return StateSpec{value.shape(), state_dtype(value, moment_dtype()), value.sharding()};
}

int64_t Optimizer::state_bytes() const {
  int64_t bytes = 0;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (size_t moment = 0; moment < moments().size(); ++moment) {
      const auto spec = state_spec(i, moment);
      if (!spec) continue;
      bytes += empty(spec->shape, {spec->dtype, meta, spec->sharding}).local().numel() *
               static_cast<int64_t>(size_of(spec->dtype));
    }
  }
  return bytes;
}

/// Makes a moment, as zeros, of the parameters from number `first` on.
ParameterState Optimizer::new_moment(size_t first, size_t moment, const std::string& what) {
  std::vector<NamedParameter> usual;
  std::vector<size_t> at;
  Tensors tensors(parameters_.size() - first);
  for (size_t i = first; i < parameters_.size(); ++i) {
    const auto spec = state_spec(i, moment);
    if (!spec) continue;
    if (*spec == Optimizer::state_spec(i, moment)) {
      usual.push_back(parameters_[i]);
      at.push_back(i - first);
      continue;
    }
    const PurposeScope purpose(Purpose::optimizer);
    tensors[i - first] = zeros(spec->shape, {.dtype = spec->dtype,
                                             .device = parameters_[i].parameter->device(),
                                             .sharding = spec->sharding});
  }
  ParameterState made;
  if (!usual.empty()) made = new_state(offload(), what, usual, moment_dtype());
  for (size_t i = 0; i < at.size(); ++i) tensors[at[i]] = made.tensors[i];
  made.tensors = std::move(tensors);
  return made;
}

void Optimizer::make_state() {
  std::vector<ParameterState>& made = runs_->state;
  const std::vector<std::string> names = moments();
  if (state_.size() == parameters_.size() && made.size() >= names.size()) return;
  for (const NamedParameter& named : parameters_) {
    if (!named.parameter->is_materialized()) {
      fail("optimizer: parameter ", named.name(),
           " has no memory, expected some; call materialize first");
    }
    ModuleSharder::lazy_init(*named.parameter);
  }
  // A group that was added, or an option that was set, may need more than there is.
  std::vector<ParameterState> all = made;
  for (size_t m = 0; m < std::max(names.size(), all.size()); ++m) {
    const bool is_new = m == all.size();
    if (is_new) all.emplace_back();
    if (!is_new && state_.size() == parameters_.size()) continue;
    const std::string what = concat("state ", m < names.size() ? names[m] : concat(m));
    ParameterState more = new_moment(is_new ? 0 : state_.size(), m, what);
    std::ranges::move(more.tensors, std::back_inserter(all[m].tensors));
    all[m].added.push_back(more.file);
  }
  made = std::move(all);
  state_.assign(parameters_.size(), {});
  for (size_t i = 0; i < parameters_.size(); ++i) {
    for (const ParameterState& moment : made) {
      if (moment.tensors[i]) state_[i].push_back(moment.tensors[i]);
    }
  }
  runs_->runs.clear();
  runs_->with_gradient.clear();
}

const Tensors& Optimizer::state(size_t parameter) {
  if (parameter >= parameters_.size()) {
    fail("optimizer: parameter is ", parameter, ", expected one below ", parameters_.size());
  }
  make_state();
  return state_[parameter];
}

void Optimizer::copy_state(const Optimizer& other) {
  if (other.state_.empty()) return;
  make_state();
  const NoGrad no_grad;
  // Either may lack what a group that was added, or an option that was set, needs.
  for (size_t i = 0; i < other.state_.size(); ++i) {
    for (size_t m = 0; m < std::min(state_[i].size(), other.state_[i].size()); ++m) {
      const Tensor from = in_memory(other.state_[i][m]);
      rests_on_disk(state_[i][m]) ? write_to_disk(state_[i][m], from) : copy_(state_[i][m], from);
    }
  }
}

}  // namespace weft
