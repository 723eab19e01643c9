// SPDX-License-Identifier: Apache-2.0
#include "fsdp/fsdp_state.h"

#include <algorithm>
#include <optional>
#include <range/v3/range/conversion.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/filter.hpp>
#include <range/v3/view/transform.hpp>
#include <ranges>
#include <utility>

#include "fsdp/fsdp_context.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/tape.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

template <class T> static std::shared_ptr<T> locked(const std::weak_ptr<T>& held) {
  if (auto found = held.lock()) return found;
  fail(
      "fully_shard: the outermost sharded module no longer exists, expected it to exist until the "
      "backward of its loss has ended");
}

/// Lets the tape write the gradient of an unsharded parameter into the group's buffer.
class FsdpState::Sink final : public GradientSink {
 public:
  Sink(std::weak_ptr<FsdpState> state, size_t i) : state_(std::move(state)), i_(i) {}
  Destination destination() override {
    const auto state = locked(state_);
    state->context()->pre_accumulate_grad(*state->group_, i_);
    return state->group_->gradients().destination(i_);
  }
  void complete() override {
    const auto state = locked(state_);
    state->context()->post_accumulate_grad(*state->group_, i_);
  }
  void receive(const Tensor& gradient) override {
    locked(state_)->group_->gradients().receive(i_, gradient);
  }

 private:
  std::weak_ptr<FsdpState> state_;
  size_t i_;
};

FsdpState::FsdpState(Roles roles, const FullyShardOptions& options)
    : group_(ParamGroup::make(std::move(roles), options)) {}

std::shared_ptr<FsdpContext> FsdpState::context() const { return locked(context_); }

void FsdpState::adopt(NamedParameter parameter, size_t member) {
  ModuleSharder::set_lazy_init(*parameter.parameter, [held = weak_from_this()] {
    const auto state = held.lock();
    if (const auto context = state ? state->find_context() : nullptr) context->lazy_init();
  });
  ModuleSharder::set_sharder(*parameter.parameter, weak_from_this());
  group_->adopt(std::move(parameter), member);
}

std::vector<Module*> FsdpState::modules() const {
  std::vector<Module*> modules;
  for (const Member& member : members_) {
    if (!member.life.expired()) modules.push_back(member.module);
  }
  return modules;
}

void FsdpState::materialize(Device device) {
  if (const auto context = find_context()) {
    context->materialize(*group_, device);
  } else {
    group_->build();
    group_->materialize(device);
  }
}

template <class F> static Tensors transformed(const Tensors& tensors, const F& f) {
  return tensors | ranges::views::transform([&](const Tensor& x) { return x ? f(x) : x; }) |
         ranges::to<std::vector>();
}

static bool is_real_floating(DType dtype) { return is_floating(dtype) && !is_complex(dtype); }

/// Casts the real floating tensors to `dtype`, if there is one.
static Tensors cast_all(const Tensors& tensors, const std::optional<DType>& dtype) {
  if (!dtype) return tensors;
  return transformed(
      tensors, [&](const Tensor& x) { return is_real_floating(x.dtype()) ? x.to(*dtype) : x; });
}

Tensors FsdpState::hooked(Tensors tensors, Hook hook) {
  if (!Context::current().grad_enabled) return tensors;
  const auto requires_grad = [](const Tensor& x) { return x && x.requires_grad(); };
  const Tensors wanted = tensors | ranges::views::filter(requires_grad) | ranges::to<std::vector>();
  if (wanted.empty()) return tensors;
  const Tensors recorded = record("fully_shard", wanted, wanted,
                                  [held = weak_from_this(), hook](const Tensors& gradients) {
                                    return (locked(held).get()->*hook)(gradients);
                                  });
  auto next = recorded.begin();
  for (Tensor& tensor : tensors) {
    if (requires_grad(tensor)) tensor = *next++;
  }
  return tensors;
}

/// A forward of several modules begins with the first of them, or with one that has run already. A
/// recomputation in backward, or a call outside the model's forward, runs one alone.
Tensors FsdpState::pre_forward(size_t member, const Tensors& inputs) {
  const auto shared = context();
  if (!open_ || members_[member].has_run || shared->backward_has_begun()) {
    shared->pre_forward(*group_);
    open_ = members_.size() > 1 && !shared->backward_has_begun();
    for (Member& each : members_) each.has_run = false;
  }
  Tensors cast = cast_all(inputs, group_->options().precision.inputs);
  if (members_.size() > 1 && divide_factor() != 1) {
    // A gradient that goes on to another of the modules is divided again there.
    cast = hooked(std::move(cast), &FsdpState::multiply);
  }
  if (!group_->has_frozen()) return cast;
  return hooked(std::move(cast), &FsdpState::input_grads_complete);
}

Tensors FsdpState::post_forward(size_t member, const Tensors& outputs) {
  members_[member].has_run = true;
  const bool all = std::ranges::all_of(
      members_, [](const Member& each) { return each.has_run || each.life.expired(); });
  const auto shared = context();
  if (all || !open_ || shared->is_first(*group_)) {
    open_ = false;
    shared->post_forward(*group_);
  }
  return hooked(cast_all(outputs, group_->options().precision.outputs), &FsdpState::pre_backward);
}

void FsdpState::close_forward() {
  if (std::exchange(open_, false)) context()->post_forward(*group_);
}

/// The divisor of the gradients that enter the modules, which the outermost ones apply.
double FsdpState::divide_factor() const {
  return group_.get() == &context()->root() ? group_->options().gradient_divide_factor : 1;
}

Tensors FsdpState::multiply(const Tensors& gradients) {
  const double factor = divide_factor();
  return transformed(gradients, [&](const Tensor& gradient) { return gradient * factor; });
}

Tensors FsdpState::pre_backward(const Tensors& gradients) {
  context()->in_backward(StepEvent::Kind::pre_backward, *group_);
  const double factor = divide_factor();
  if (factor != 1 && backward_creates_graph()) {
    fail("fully_shard: gradient_divide_factor is ", factor, ", expected 1 in a backward with ",
         "create_graph; FsdpModule::set_gradient_divide_factor divides gradients of parameters");
  }
  if (factor == 1) return gradients;
  return transformed(gradients, [&](const Tensor& gradient) { return gradient * (1 / factor); });
}

Tensors FsdpState::input_grads_complete(const Tensors& gradients) {
  context()->in_backward(StepEvent::Kind::input_grads_complete, *group_);
  return gradients;
}

void FsdpState::add_hooks(const std::vector<Module*>& modules) {
  group_->set_sink_maker(
      [held = weak_from_this()](size_t i) { return std::make_shared<Sink>(held, i); });
  group_->set_gatherer([held = weak_from_this()] {
    const auto state = held.lock();
    if (const auto context = state ? state->find_context() : nullptr) {
      context->gather_for_backward(*state->group_);
    }
  });
  for (size_t i = 0; i < modules.size(); ++i) {
    auto life = std::make_shared<bool>(true);
    members_.push_back({modules[i], life});
    ModuleSharder::add_materializer(*modules[i], [this](Device device) { materialize(device); });
    ModuleSharder::enclose(
        *modules[i],
        {.before = [this, i, life](const Tensors& inputs) { return pre_forward(i, inputs); },
         .after = [this, i](const Tensors&,
                            const Tensors& outputs) { return post_forward(i, outputs); }});
  }
}

static bool contains(const FsdpStates& states, const std::shared_ptr<FsdpState>& state) {
  return std::ranges::find(states, state) != states.end();
}

FsdpStates states_below(Module& module) {
  FsdpStates states;
  const auto all = module.named_modules();
  for (const auto& [name, child] : all) {
    if (child == &module) continue;
    for (auto& state : ModuleSharder::attachments<FsdpState>(*child)) {
      if (contains(states, state)) continue;
      std::vector<std::string> names;
      for (const Module* member : state->modules()) {
        const auto found =
            std::ranges::find_if(all, [&](const auto& other) { return other.second == member; });
        names.push_back(found == all.end() ? "" : found->first);
      }
      state->group()->set_names(std::move(names));
      states.push_back(std::move(state));
    }
  }
  return states;
}

FsdpStates states_from(const std::vector<Module*>& modules) {
  FsdpStates states;
  for (Module* module : modules) {
    for (auto& state : states_below(*module)) {
      if (!contains(states, state)) states.push_back(std::move(state));
    }
  }
  for (auto& state : ModuleSharder::attachments<FsdpState>(*modules[0])) {
    std::erase(states, state);
    state->group()->set_names(std::vector<std::string>(modules.size()));
    states.push_back(std::move(state));
  }
  return states;
}

/// True if a module below ignores the parameter, or its group has it and it has no name outside
/// the modules of that group.
static bool stays_below(const FsdpStates& below, const NamedParameter& named) {
  return std::ranges::any_of(below, [&](const auto& state) {
    const ParamGroup& owner = *state->group();
    const auto is_within = [&](const std::string& name) {
      return std::ranges::any_of(
          owner.names(), [&](const std::string& module) { return name.starts_with(module + '.'); });
    };
    return owner.ignores(*named.parameter) ||
           (owner.owns(*named.parameter) && std::ranges::all_of(named.names, is_within));
  });
}

/// Moves a parameter that a group below shares with something outside that group to the common
/// ancestor, which is the module that is sharded now.
static void adopt(const FsdpStates& below, const NamedParameter& named, size_t member,
                  FsdpState& state) {
  bool moved = false;
  for (const auto& other : below) moved = other->group()->disown(*named.parameter) || moved;
  if (moved && state.group()->is_first_rank()) {
    warn("fully_shard: parameter ", named.names.front(), " is also ", named.names.back(),
         ", so it is sharded with their common ancestor");
  }
  state.adopt(named, member);
}

/// Replicates an ignored parameter; the tape reduces its gradient.
static void replicate(Parameter& parameter, const DeviceMesh& mesh, const MixedPrecision& dtypes) {
  const bool floats = is_real_floating(parameter.dtype());
  const DType dtype = floats ? dtypes.buffers.value_or(parameter.dtype()) : parameter.dtype();
  const NoGrad no_grad;
  if (!parameter.is_materialized()) {
    const Sharding before = parameter.value().sharding();
    ModuleSharder::lay_out(
        parameter,
        empty(parameter.shape(), {dtype, meta, before ? before : Sharding(mesh.root(), {})}));
    return;
  }
  Tensor value = parameter.value().detach();
  if (!value.is_sharded()) value = distribute(value, mesh.root(), {});
  ModuleSharder::lay_out(parameter, value.to(dtype).detach());
}

namespace {

/// A parameter of module `member`, and the state that gets it; without one it is ignored.
struct Assigned {
  NamedParameter named;
  size_t member;
  std::shared_ptr<FsdpState> state;
  FsdpStates below;
};

}  // namespace

/// The state whose mesh and strategy the options name for a parameter; by default the last one.
static const std::shared_ptr<FsdpState>& state_for(const FsdpStates& states,
                                                   const FullyShardOptions& options,
                                                   const NamedParameter& named) {
  if (states.size() == 1) return states.back();
  const ShardPlacement placement = options.shard_placement_fn(named);
  const DeviceMesh mesh = placement.mesh ? placement.mesh : states.back()->group()->mesh();
  const Strategy strategy = placement.strategy.value_or(options.strategy);
  for (const auto& state : states) {
    if (state->is_for(mesh, strategy)) return state;
  }
  return states.back();
}

static std::vector<Assigned> assignment(const FsdpStates& states,
                                        const std::vector<Module*>& modules, bool again) {
  const FullyShardOptions& options = states.back()->group()->options();
  std::vector<std::string> unknown = options.ignored;
  std::vector<Assigned> all;
  const auto is_known = [&](const NamedParameter& named) {
    return std::ranges::any_of(
        all, [&](const Assigned& other) { return other.named.parameter == named.parameter; });
  };
  for (const auto& [member, module] : ranges::views::enumerate(modules)) {
    const FsdpStates below = states_below(*module);
    for (NamedParameter& named : module->named_parameters()) {
      if (is_known(named)) continue;
      auto found = std::find_first_of(unknown.begin(), unknown.end(), named.names.begin(),
                                      named.names.end());
      const auto& listed = options.ignored_params;
      const bool ignores =
          found != unknown.end() || std::ranges::find(listed, named.parameter) != listed.end();
      if (found != unknown.end()) unknown.erase(found);
      if (!ignores && stays_below(below, named)) continue;
      std::shared_ptr<FsdpState> state;
      if (!ignores) {
        state = state_for(states, options, named);
        state->group()->check(named, member);
      }
      all.push_back({std::move(named), member, std::move(state), below});
    }
  }
  if (!unknown.empty() && !again) {
    fail("fully_shard: ignored parameter ", in_quotes(unknown[0]), " does not exist");
  }
  return all;
}

void adopt_parameters(const FsdpStates& states, const std::vector<Module*>& modules, bool again) {
  ParamGroup& last = *states.back()->group();
  for (const Assigned& assigned : assignment(states, modules, again)) {
    const ParameterPtr& parameter = assigned.named.parameter;
    if (assigned.state) {
      adopt(assigned.below, assigned.named, assigned.member, *assigned.state);
    } else if (!last.ignores(*parameter)) {
      replicate(*parameter, last.mesh(), last.options().precision);
      last.ignore(parameter);
    }
  }
}

std::vector<ParamGroup*> adopt_again(const FsdpStates& before, const FsdpStates& states) {
  ParamGroup::Layouts layouts;
  for (const auto& state : before) state->group()->add_layouts(layouts);
  for (const auto& state : states) state->group()->begin_readopting(layouts);
  try {
    // Modules below come after those that contain them, the outermost at the end.
    const std::vector<Module*> outermost = states.back()->modules();
    FsdpStates done;
    for (const auto& state : std::views::reverse(states)) {
      const std::vector<Module*> modules = state->modules();
      if (modules == outermost || contains(done, state)) continue;
      const FsdpStates own = ModuleSharder::attachments<FsdpState>(*modules[0]);
      adopt_parameters(own, modules, true);
      done.insert(done.end(), own.begin(), own.end());
    }
    adopt_parameters(ModuleSharder::attachments<FsdpState>(*outermost[0]), outermost, true);
    states_from(outermost);
    for (const auto& state : states) state->group()->check_readopting();
  } catch (...) {
    for (const auto& state : states) state->group()->cancel_readopting();
    throw;
  }
  std::vector<ParamGroup*> changed;
  for (const auto& state : states) {
    if (state->group()->end_readopting()) changed.push_back(state->group().get());
  }
  return changed;
}

static void add_structure(const Module& module, uint64_t& sum) {
  const auto add = [&](const void* pointer) {
    sum = mixed(sum, reinterpret_cast<uintptr_t>(pointer));
  };
  for (const auto& [name, parameter] : module.own_parameters()) add(parameter.get());
  for (const auto& [name, child] : module.children()) {
    add(child.get());
    add_structure(*child, sum);
  }
  // Ends the children: a module that moves to the next one up changes the number.
  add(nullptr);
}

uint64_t structure_of(const std::vector<Module*>& modules) {
  uint64_t sum = 1;
  for (const Module* module : modules) add_structure(*module, sum);
  return sum;
}

}  // namespace weft::fsdp
