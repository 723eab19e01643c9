// SPDX-License-Identifier: Apache-2.0
#include "weft/state_dict.h"

#include <algorithm>
#include <bit>
#include <ostream>

#include "checkpoint/optimizer_keys.h"
#include "checkpoint/source.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/views.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"
#include "weft/ops/reductions.h"

namespace weft {

void check_tied(const std::string& what, const std::string& name, const Tensor& a,
                const std::string& other_name, const Tensor& b) {
  if (a.storage() == b.storage() && a.block().data == b.block().data) return;
  const NoGrad no_grad;
  const bool alike = a.is_sharded() == b.is_sharded();
  const Tensor left = alike || !a.is_sharded() ? a : a.full_tensor();
  const Tensor right = alike || !b.is_sharded() ? b : b.full_tensor();
  const Tensor no_numbers = logical_and(not_equal(left, left), not_equal(right, right));
  const Tensor same = all(logical_or(equal(left, right), no_numbers));
  if (same.full_tensor().to_vector<double>()[0] != 0) return;
  fail(what, ": tensors ", in_quotes(name), " and ", in_quotes(other_name),
       " differ, expected equal ones; they are one tied parameter of the model");
}

std::ostream& operator<<(std::ostream& out, const StateDict& state) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : state.tensors) {
    bytes += tensor.numel() * static_cast<int64_t>(size_of(tensor.dtype()));
  }
  const auto counted = [&](size_t count, const char* what) {
    out << count << ' ' << what << (count == 1 ? "" : "s");
  };
  counted(state.tensors.size(), "tensor");
  if (bytes > 0) out << " of " << bytes << " bytes";
  out << ", ";
  counted(state.numbers.size(), "number");
  return out;
}

StateDict state_dict(const Module& module) {
  StateDict state;
  for (const NamedParameter& named : module.named_parameters()) {
    if (!named.parameter->is_materialized()) {
      fail("state_dict: parameter ", in_quotes(named.name()),
           " has no memory, expected some; call materialize first");
    }
    ModuleSharder::lazy_init(*named.parameter);
    state.tensors.emplace(named.name(), named.parameter->value());
  }
  for (const NamedBuffer& buffer : module.named_buffers()) {
    if (buffer.persistent) state.tensors.emplace(buffer.name, buffer.value);
  }
  return state;
}

static void check_same_kind(const std::string& key, const Tensor& to, const Tensor& from) {
  if (to.shape() == from.shape() && to.dtype() == from.dtype()) return;
  fail("load_state_dict: tensor ", in_quotes(key), " is ", from.shape(), ' ', from.dtype(),
       ", expected ", to.shape(), ' ', to.dtype());
}

static void copy_pair(const Tensor& to, const Tensor& from) {
  const bool same = to.storage() == from.storage() && to.sharding() == from.sharding() &&
                    to.block().data == from.block().data;
  if (same) return;
  if (to.sharding() == from.sharding() && !is_copied_view(to)) {
    copy_(to.local(), from.local());
    mark_written(to);
  } else if (!to.is_sharded()) {
    copy_(to, from.full_tensor());
  } else if (!from.is_sharded()) {
    copy_(to, distribute(from, to.sharding().mesh(), {}));
  } else {
    copy_(to, from);
  }
}

static void copy_pairs(const std::vector<std::pair<Tensor, Tensor>>& pairs) {
  const NoGrad no_grad;
  for (const auto& [receiver, given] : pairs) {
    const DiskPlace place = disk_place(receiver), other = disk_place(given);
    if (place.memory && place.memory == other.memory && place.offset == other.offset) continue;
    const Tensor to = place.memory ? memory_like(receiver) : receiver, from = in_memory(given);
    copy_pair(to, from);
    if (place.memory) write_to_disk(receiver, to);
  }
}

TensorFill::TensorFill(const Tensor& whole, DType dtype)
    : whole_(whole),
      held_(rests_on_disk(whole) || is_copied_view(whole) ? memory_like(whole) : whole) {
  check_writable("load", whole);
  dense_ = held_.local();
  const bool as_it_is = dense_.dtype() == dtype && dense_.block().is_dense() &&
                        dense_.device().kind == DeviceKind::cpu;
  if (!as_it_is) dense_ = empty(dense_.shape(), {.dtype = dtype});
}

void TensorFill::finish() const {
  const Tensor local = held_.local();
  if (local.storage() != dense_.storage()) copy_(local, dense_);
  if (rests_on_disk(whole_)) write_to_disk(whole_, held_);
  if (is_copied_view(whole_)) copy_(whole_, held_);
  // Empty parts are marked too: all ranks must react to a change alike.
  mark_written(whole_);
}

/// Copies the tensors that both have, or throws before if `needs_all` and something is left over.
/// `first_names`: by name of a parameter, its name in `to`.
static SkippedKeys loaded(const StateDict& to, const StateDict& from, bool needs_all,
                          const std::map<std::string, std::string>& first_names = {}) {
  SkippedKeys skipped;
  std::vector<std::pair<Tensor, Tensor>> pairs;
  std::map<std::string, std::string> found;  // what is filled, from which key
  for (const auto& [key, tensor] : from.tensors) {
    const auto tied = first_names.find(key);
    const auto receiver = to.tensors.find(tied == first_names.end() ? key : tied->second);
    if (receiver == to.tensors.end()) {
      skipped.unexpected.push_back(key);
      continue;
    }
    check_same_kind(key, receiver->second, tensor);
    const auto [first, is_new] = found.emplace(receiver->first, key);
    if (is_new) {
      pairs.emplace_back(receiver->second, tensor);
    } else {
      check_tied("load_state_dict", first->second, from.tensors.at(first->second), key, tensor);
    }
  }
  for (const auto& [key, tensor] : to.tensors) {
    if (!found.contains(key)) skipped.missing.push_back(key);
  }
  add_unmatched_keys(to.numbers, from.numbers, skipped);
  if (needs_all) check_no_keys_skipped("load_state_dict", "the dict", skipped);
  copy_pairs(pairs);
  return skipped;
}

static SkippedKeys loaded(Module& module, const StateDict& from, bool needs_all) {
  ModuleSharder::allocate(module);
  std::map<std::string, std::string> first_names;
  for (const NamedParameter& named : module.named_parameters()) {
    for (const std::string& name : named.names) first_names.emplace(name, named.name());
  }
  return loaded(state_dict(module), from, needs_all, first_names);
}

static SkippedKeys loaded(Optimizer& optimizer, const StateDict& from, bool needs_all) {
  const OptimizerKeys keys(optimizer, {names_of(optimizer)}, from.numbers);
  if (needs_all) keys.check_kind();
  SkippedKeys skipped = loaded(keys.state(), from, needs_all);
  keys.take(from.numbers);
  return skipped;
}

void load_tensors(const StateDict& to, const StateDict& from) { loaded(to, from, true); }

void load_state_dict(Module& module, const StateDict& from) { loaded(module, from, true); }

void load_state_dict(Optimizer& optimizer, const StateDict& from) { loaded(optimizer, from, true); }

SkippedKeys load_common_keys(Module& module, const StateDict& from) {
  return loaded(module, from, false);
}

SkippedKeys load_common_keys(Optimizer& optimizer, const StateDict& from) {
  return loaded(optimizer, from, false);
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t most = 3;
  if (names.size() <= most) return listed(names);
  return concat(listed(std::span(names).first(most)), " and ", names.size() - most, " more");
}

static std::string some_quoted(const char* verb, std::vector<std::string> keys) {
  for (std::string& key : keys) key = in_quotes(key);
  return keys.empty() ? "" : concat(verb, some_of(keys));
}

void check_no_keys_skipped(const char* what, const std::string& source,
                           const SkippedKeys& skipped) {
  if (skipped.empty()) return;
  const std::string missing = some_quoted("lacks ", skipped.missing);
  const std::string unexpected = some_quoted("holds ", skipped.unexpected);
  fail(what, ": ", source, ": it ", missing, missing.empty() || unexpected.empty() ? "" : " and ",
       unexpected, unexpected.empty() ? "" : ", which nothing expects");
}

void TrainingState::add(const std::string& name, Part part) {
  if (name.empty() || name.find('/') != name.npos) {
    fail("training state: name of a part is ", in_quotes(name),
         ", expected a non-empty one without a slash");
  }
  if (!parts_.emplace(name, std::move(part)).second) {
    fail("training state: part ", in_quotes(name), " exists already, expected another name");
  }
}

void TrainingState::add(const std::string& name, Module& module) {
  add(name, Part{.give = [&module] { return weft::state_dict(module); }, .take = {}});
  modules_.emplace(name, &module);
}

void TrainingState::add(const std::string& name, Optimizer& optimizer) {
  add(name, Part{});
  optimizers_.emplace(name, &optimizer);
}

/// The numbers of a part, without its name.
static std::map<std::string, int64_t> own_numbers(const std::string& part,
                                                  const std::map<std::string, int64_t>& all) {
  std::map<std::string, int64_t> own;
  const std::string prefix = concat(part, '/');
  for (const auto& [key, number] : all) {
    if (key.starts_with(prefix)) own.emplace(key.substr(prefix.size()), number);
  }
  return own;
}

void TrainingState::add(const std::string& name, const Tensor& tensor) {
  add(name, Part{.give = [tensor] { return StateDict{{{"value", tensor}}, {}}; }, .take = {}});
}

void TrainingState::add(const std::string& name, int64_t& number) {
  const auto give = [&number] { return StateDict{.tensors = {}, .numbers = {{"value", number}}}; };
  add(name, Part{give, [&number](const auto& numbers) { number = numbers.at("value"); }});
}

void TrainingState::add(const std::string& name, const std::function<RandomState&()>& random) {
  const auto give = [random] {
    return StateDict{{},
                     {{"seed", std::bit_cast<int64_t>(random().seed)},
                      {"stream", std::bit_cast<int64_t>(random().stream)}}};
  };
  const auto take = [random](const auto& numbers) {
    random() = {std::bit_cast<uint64_t>(numbers.at("seed")),
                std::bit_cast<uint64_t>(numbers.at("stream"))};
  };
  add(name, Part{give, take});
}

OptimizerKeys TrainingState::keys_of(Optimizer& optimizer,
                                     const std::map<std::string, int64_t>& saved) const {
  return {optimizer, {names_in(modules_, optimizer), names_of(optimizer)}, saved};
}

/// Stands for no checkpoint: each part has its own numbers.
static const std::map<std::string, int64_t> no_checkpoint;

StateDict TrainingState::state_dict() const { return state_dict_with(no_checkpoint); }

StateDict TrainingState::state_dict_with(const std::map<std::string, int64_t>& numbers) const {
  StateDict all;
  for (const auto& [name, part] : parts_) {
    const auto saved = own_numbers(name, numbers);
    const auto optimizer = optimizers_.find(name);
    if (optimizer != optimizers_.end()) keys_of(*optimizer->second, saved).check_kind();
    StateDict own =
        optimizer == optimizers_.end() ? part.give() : keys_of(*optimizer->second, saved).state();
    if (part.takes_any_numbers && &numbers != &no_checkpoint) own.numbers = saved;
    for (const auto& [key, tensor] : own.tensors) {
      all.tensors.emplace(concat(name, '/', key), tensor);
    }
    for (const auto& [key, number] : own.numbers) {
      all.numbers.emplace(concat(name, '/', key), number);
    }
  }
  return all;
}

std::ostream& operator<<(std::ostream& out, const TrainingState& state) {
  out << "training state";
  for (const auto& [name, part] : state.parts_) {
    const auto optimizer = state.optimizers_.find(name);
    const bool is_optimizer = optimizer != state.optimizers_.end();
    out << "\n  " << name << ": ";
    if (is_optimizer) {
      const Optimizer& own = *optimizer->second;
      out << (own.name().empty() ? "an optimizer" : own.name()) << " of " << own.parameters().size()
          << " parameters, " << own.state_bytes() << " bytes of state on this rank";
    } else {
      out << part.give();
    }
  }
  return out;
}

void TrainingState::take_numbers(const std::map<std::string, int64_t>& numbers) const {
  SkippedKeys skipped;
  add_unmatched_keys(state_dict_with(numbers).numbers, numbers, skipped);
  check_no_keys_skipped("training state", "what is loaded", skipped);
  for (const auto& [name, part] : parts_) {
    const auto own = own_numbers(name, numbers);
    const auto optimizer = optimizers_.find(name);
    if (optimizer != optimizers_.end()) keys_of(*optimizer->second, own).take(own);
    if (part.take) part.take(own);
  }
}

}  // namespace weft
