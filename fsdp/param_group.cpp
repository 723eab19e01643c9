// SPDX-License-Identifier: Apache-2.0
#include "fsdp/param_group.h"

#include <algorithm>
#include <numeric>
#include <range/v3/view/enumerate.hpp>
#include <utility>

#include "weft/extend/module_sharder.h"
#include "weft/extend/tape.h"
#include "weft/extend/views.h"
#include "weft/ops/factories.h"

namespace weft::fsdp {

static ParamTypes types_of(const MixedPrecision& precision, DType declared) {
  if (!is_floating(declared) || is_complex(declared))
    return {declared, declared, declared, declared, declared};
  ParamTypes types;
  types.storage = precision.storage.value_or(declared);
  types.compute = precision.compute.value_or(types.storage);
  types.gather = precision.gather.value_or(types.compute);
  types.accumulate = precision.accumulate.value_or(types.storage);
  types.reduce = precision.reduce.value_or(types.accumulate);
  return types;
}

Sharding layout_for(const Roles& roles, const Sharding& other_axes, int dim, size_t count,
                    Placement others, Placement replicas) {
  const DeviceMesh root = roles.mesh.root();
  Pattern pattern = other_axes ? other_axes.pattern() : Pattern(root.ndim());
  for (size_t i = 0; i < roles.sharded.size(); ++i) {
    pattern.set(root.axis(roles.sharded[i]), i < count ? Placement(Shard(dim)) : others);
  }
  for (const std::string& axis : roles.replicas) pattern.set(root.axis(axis), replicas);
  return Sharding::of(root, pattern);
}

ParamGroup::ParamGroup(Roles roles, const FullyShardOptions& options)
    : roles_(std::move(roles)), options_(options), gradients_(roles_, options_) {}

std::shared_ptr<ParamGroup> ParamGroup::make(Roles roles, const FullyShardOptions& options) {
  return {new ParamGroup(std::move(roles), options), [](ParamGroup* gone) {
            const auto home = gone->home_;
            gone->is_under_way() ? home->take(gone) : delete gone;
          }};
}

bool ParamGroup::is_under_way() const {
  return gradients_.is_under_way() ||
         std::ranges::any_of(levels_, [](const Level& level) { return level.is_under_way(); });
}

bool ParamGroup::owns(const Parameter& parameter) const {
  return std::ranges::any_of(parameters_,
                             [&](const Adopted& adopted) { return adopted.is(parameter); });
}

bool ParamGroup::ignores(const Parameter& parameter) const {
  return std::ranges::any_of(
      ignored_, [&](const ParameterPtr& ignored) { return ignored.get() == &parameter; });
}

void ParamGroup::adopt(NamedParameter parameter, size_t member) {
  const bool trainable = parameter.parameter->is_trainable();
  parameters_.push_back({std::move(parameter), member, trainable});
}

bool ParamGroup::disown(const Parameter& parameter) {
  return std::erase_if(parameters_, [&](const Adopted& own) { return own.is(parameter); }) > 0;
}

void ParamGroup::set_names(std::vector<std::string> names) {
  names_ = std::move(names);
  name_ = listed(names_, std::identity(), "+");
  identify();
}

static uint64_t hash_of(std::string_view text) { return xxh3_of(std::as_bytes(std::span(text))); }

void ParamGroup::set_model(uint64_t model, uint64_t number) {
  model_ = model;
  number_ = number;
  identify();
}

uint64_t ParamGroup::content() const {
  uint64_t content = hash_of(name_);
  for (const Adopted& adopted : parameters_) {
    content = mixed(content, hash_of(path_of(adopted.named, adopted.member)));
    for (const int64_t size : adopted.named.parameter->shape()) {
      content = mixed(content, static_cast<uint64_t>(size));
    }
  }
  return content;
}

/// The norm of gradients may be over ranks that hold other parts of a model, so that these only
/// compare its number, unless FSDP uses the whole mesh.
void ParamGroup::identify() {
  const uint64_t model = roles_.mesh.size() == roles_.mesh.root().size() ? model_ : number_ + 1;
  subject_ = mixed(model_, hash_of(name_));
  for (const auto& param : params_) {
    const uint64_t own = mixed(model_, hash_of(param->name));
    ModuleSharder::set_subject(*param->parameter, own, model);
    subject_ = mixed(subject_, own);
  }
  std::string group = name_.empty() && !params_.empty()
                          ? concat("the module of ", in_quotes(params_[0]->name))
                          : concat("module ", in_quotes(name_));
  if (number_ > 0) group += concat(" of model ", number_ + 1);
  words_ = {concat("parameters of ", group), concat("gradients of ", group)};
}

SubjectScope ParamGroup::reducing(int bucket, size_t reduction) const {
  return {mixed(mixed(subject_, gradients_.subject(bucket)), reduction), words_[1]};
}

std::string ParamGroup::path_of(const NamedParameter& named, size_t member) const {
  const std::string& module = names_[member];
  return module.empty() ? named.name() : concat(module, ".", named.name());
}

void ParamGroup::drop_params() {
  for (const auto& param : params_) ModuleSharder::set_used(*param->parameter, {});
  params_.clear();
  levels_.clear();
  add_gradients();
  slice_bytes_ = 0;
  frozen_ = 0;
}

bool ParamGroup::build() {
  if (built_) return false;
  drop_params();
  for (Adopted& adopted : parameters_) {
    adopted.trainable = adopted.named.parameter->is_trainable();
    if (ModuleSharder::has_used(*adopted.named.parameter)) {
      fail("fully_shard: parameter ", path_of(adopted.named, adopted.member),
           " is sharded with another module already, expected once; shard a module that contains "
           "both, before the first forward");
    }
    check(adopted.named, adopted.member);
  }
  // Trainable parameters are adjacent, so that one call updates them all.
  std::ranges::stable_partition(parameters_,
                                [](const Adopted& adopted) { return adopted.trainable; });
  for (const Adopted& adopted : parameters_) add_param(adopted);
  add_gradients();
  make_levels();
  const bool declared = std::ranges::any_of(
      params_, [](const auto& param) { return !param->parameter->is_materialized(); });
  const bool has_values = !declared && !params_.empty();
  if (has_values) set_device(params_[0]->parameter->value().device());
  if (declared) {
    slices_ = Storage::unbound(slice_bytes_, cpu, concat("slices of ", name_));
    disk_ = {};
  } else {
    allocate_slices();
  }
  for (const auto& param : params_) {
    keep_value(*param);
    if (has_slices()) copy_value(*param);
    show(*param);
  }
  built_ = true;
  identify();
  return has_values;
}

void ParamGroup::set_device(Device device) {
  device_ = device;
  gradients_.set_device(device);
}

/// One level for the axes gathered once an update or a step, one for those gathered at each use. A
/// group whose slices are all of its parameters needs no level, or one that casts, or one that
/// copies from the host.
void ParamGroup::make_levels() {
  if (params_.empty()) return;
  AxisGroup kept = roles_.kept_group();
  AxisGroup use = roles_.use_group();
  bool casts = std::ranges::any_of(params_, [](const auto& param) {
    return param->types.storage != param->types.compute || param->extension;
  });
  const bool offloads = options_.offload.parameters.offloads();
  const bool codes =
      roles_.ranks_at_use == 0 && std::ranges::all_of(params_, [](const auto& param) {
        return param->codes && !param->extension;
      });
  const auto stages = [&](size_t first, size_t last) {
    return codes ? stages_of(roles_, first, last, options_.quantization) : std::nullopt;
  };
  if (kept.size > 1 || (use.size == 1 && casts && !offloads)) {
    levels_.emplace_back(
        kept, roles_.keeps_gathered || kept.size == 1 ? Lifetime::update : Lifetime::step,
        stages(roles_.at_use, roles_.sharded.size()));
  }
  if (use.size > 1 || (offloads && levels_.empty())) {
    levels_.emplace_back(use, Lifetime::use, stages(0, roles_.at_use));
  }
  for (Level& level : levels_) {
    for (const auto& param : params_) {
      level.add(*param, array_of(*param, level, use), options_.quantization.block);
    }
    if (&level == &levels_.front() && rests_on_disk()) level.close_on_disk();
  }
}

/// The part of a parameter that a level gathers, with the chunks of the slices.
Level::Array ParamGroup::array_of(const FsdpParam& param, const Level& level,
                                  const AxisGroup& use) const {
  const bool top = &level == &levels_.back(), bottom = &level == &levels_.front();
  Level::Array array{.shape = param.unsharded_shape,
                     .dtype = top ? param.types.compute : param.types.gather,
                     .extension = bottom ? param.extension : nullptr};
  if (roles_.ranks_at_use == 0) {
    if (!top) {
      int64_t& length = array.shape[param.dim];
      length = parts_of(length, use.sizes)[static_cast<size_t>(use.rank)];
    }
    return array;
  }
  const std::vector<int64_t> slices = parts_of(array.shape[param.dim], roles_.group(0, 1).sizes);
  const auto own = static_cast<ptrdiff_t>(slices.size()) / use.size;
  if (!top) {
    const auto first = slices.begin() + use.rank * own;
    array.lengths.assign(first, first + own);
    array.shape[param.dim] = std::accumulate(first, first + own, int64_t{0});
    return array;
  }
  for (auto at = slices.begin(); at != slices.end(); at += own) {
    array.lengths.push_back(std::accumulate(at, at + own, int64_t{0}));
  }
  return array;
}

void ParamGroup::check_layout(const std::string& name, const Tensor& value, int dim) const {
  const bool shards = !roles_.sharded.empty();
  if (shards && value.ndim() == 0) {
    fail("fully_shard: parameter ", name, " has 0 dimensions, expected at least 1; ignore it");
  }
  if (dim < 0 || (shards && dim >= value.ndim())) {
    fail("fully_shard: shard dimension of parameter ", name, " ", value.shape(), " is ", dim,
         ", expected 0 to ", value.ndim() - 1);
  }
  if (!value.is_sharded()) return;
  const Sharding sharding = value.sharding();
  const DeviceMesh root = roles_.mesh.root();
  if (sharding.mesh() != root) {
    fail("fully_shard: layout of parameter ", name, " is ", sharding, ", expected one over ", root);
  }
  if (sharding.has_inner()) {
    fail("fully_shard: layout of parameter ", name, " is ", sharding,
         ", expected no cut of an inner factor; redistribute it first");
  }
  bool taken = sharding.has_partial();
  for (int axis = 0; axis < roles_.mesh.ndim(); ++axis) {
    taken = taken || !sharding[roles_.mesh.root_axis(axis)].is_replicate();
  }
  if (taken) {
    fail("fully_shard: layout of parameter ", name, " is ", sharding,
         ", expected R on the axes of ", roles_.mesh,
         " and no Partial; give it whole, or distributed over other axes");
  }
}

int ParamGroup::dim_of(const NamedParameter& named) const {
  if (options_.shard_placement_fn) {
    if (const auto dim = options_.shard_placement_fn(named).dim) return *dim;
  }
  if (options_.shard_dim) return options_.shard_dim(named);
  return named.parameter->shape().ndim() > roles_.dim ? roles_.dim : 0;
}

void ParamGroup::check(const NamedParameter& parameter, size_t member) const {
  if (layouts_.contains(parameter.parameter.get())) return;
  check_layout(path_of(parameter, member), parameter.parameter->value(), dim_of(parameter));
}

void ParamGroup::add_param(const Adopted& adopted) {
  const NamedParameter& named = adopted.named;
  const Tensor& value = named.parameter->value();
  auto param = std::make_unique<FsdpParam>();
  param->name = path_of(named, adopted.member);
  param->parameter = named.parameter;
  param->trainable = adopted.trainable;
  param->dim = dim_of(named);
  param->types = types_of(options_.precision, value.dtype());
  if (options_.extension) param->extension = options_.extension(named);
  const DType stored = param->types.storage;
  if (is_floating(stored) && !is_complex(stored)) param->codes = options_.quantization.gather;
  param->shape = value.shape();
  const auto known = layouts_.find(named.parameter.get());
  param->other_axes = known == layouts_.end() ? value.sharding() : known->second;
  const auto layout = [&](size_t axes, Placement others) {
    return layout_for(roles_, param->other_axes, param->dim, axes, others, others);
  };
  param->sharded_layout = layout(roles_.sharded.size(), Replicate());
  param->gradient_layout = layout(0, Partial());
  const auto local_shape = [&](const Sharding& sharding) {
    return empty(param->shape, {param->types.storage, meta, sharding}).box().shape;
  };
  param->unsharded_shape = local_shape(layout(0, Replicate()));
  param->sharded_shape = local_shape(param->sharded_layout);
  param->slice_offset = place_of_array(param->sharded_elements(), param->types.storage,
                                       rests_on_disk(), slice_bytes_);
  params_.push_back(std::move(param));
}

/// Makes the tensor that forward reads, on unbound storage.
void ParamGroup::make_unsharded(FsdpParam& param) {
  const DType dtype = param.types.compute;
  const auto bytes = static_cast<size_t>(param.unsharded_elements()) * size_of(dtype);
  const Ref<Storage> memory = Storage::unbound(bytes, device_, concat("parameter ", param.name));
  if (!levels_.empty()) memory->mark_copy();
  if (param.unsharded) weft::set_gatherer(param.unsharded, {});
  const Sharding layout =
      layout_for(roles_, param.other_axes, param.dim, 0, Replicate(), Replicate());
  param.unsharded = local_in(memory, 0, param.shape, dtype, layout);
  weft::set_gatherer(param.unsharded, gatherer_);
  if (param.trainable) {
    param.unsharded.set_requires_grad(true);
    set_gradient_sink(param.unsharded, sink_maker_(param.grad));
  }
  ModuleSharder::set_used(*param.parameter, param.unsharded);
}

void ParamGroup::unshard(size_t level, BufferPool& pool) {
  runs_here();
  const SubjectScope subject = gathering(level);
  if (awaits_memory() && slices_->device().kind != DeviceKind::meta) {
    fail("fully_shard: the parameters of ", title(),
         " have no memory, expected some; call materialize() on the model first");
  }
  std::vector<Level::Source> sources;
  if (level > 0) levels_[level - 1].wait_for_unshard();
  for (const auto& [i, param] : ranges::views::enumerate(params_)) {
    sources.push_back(level > 0
                          ? levels_[level - 1].source(i)
                          : Level::Source{slices_, param->slice_offset, param->types.storage});
  }
  levels_[level].unshard(sources, pool, controls.all_gather);
}

void ParamGroup::wait_for_unshard() {
  for (size_t i = 0; i < levels_.size(); ++i) {
    const SubjectScope subject = gathering(i);
    levels_[i].wait_for_unshard();
    levels_[i].wait_for_other_stream();
  }
  const bool changed = std::exchange(unsharded_, seen_) != seen_;
  if (params_.empty() || (!changed && params_[0]->unsharded.storage()->is_bound())) return;
  const Ref<Storage>& memory = levels_.empty() ? slices_ : levels_.back().memory();
  for (size_t i = 0; i < params_.size(); ++i) {
    Storage& unsharded = *params_[i]->unsharded.storage();
    if (changed) mark_written(params_[i]->unsharded);
    if (unsharded.device().kind == DeviceKind::meta) continue;
    const size_t offset =
        levels_.empty() ? params_[i]->slice_offset : levels_.back().region(i).offset;
    unsharded.bind(static_cast<char*>(memory->data()) + offset);
    if (!levels_.empty()) ModuleSharder::used_is_of(*params_[i]->parameter, slices_->version());
  }
}

void ParamGroup::reshard(size_t level, BufferPool& pool) {
  const SubjectScope subject = gathering(level);
  levels_[level].wait_for_unshard();
  if (level + 1 == levels_.size()) unbind_all();
  levels_[level].reshard(pool, controls.keeps_storage);
}

void ParamGroup::reduce_grads(int bucket, size_t reduction) {
  runs_here();
  const SubjectScope subject = reducing(bucket, reduction);
  gradients_.reduce(bucket, reduction);
}

/// Errors are dropped because the ranks can no longer agree on the step, and another error that
/// says why is on its way to the user.
void ParamGroup::wait_quietly() noexcept {
  gradients_.wait_quietly();
  for (Level& level : levels_) {
    try {
      level.wait_for_unshard();
    } catch (const std::exception&) {
    }
  }
}

}  // namespace weft::fsdp
