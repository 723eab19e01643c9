// SPDX-License-Identifier: Apache-2.0
#include "weft/parameter.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/visit_modules.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/disk_tensor.h"
#include "weft/extend/module_sharder.h"
#include "weft/extend/tape.h"
#include "weft/init.h"
#include "weft/layers.h"
#include "weft/ops/elementwise.h"
#include "weft/ops/factories.h"

namespace weft {

Parameter::Parameter(const Shape& shape, DType dtype, Initializer initializer)
    : value_(empty(shape, {.dtype = dtype, .device = meta})),
      initializer_(std::move(initializer)),
      trainable_(is_floating(dtype)) {
  if (trainable_) value_.set_requires_grad();
}

void Parameter::clear_grad() const {
  if (value_.requires_grad()) value_.set_grad({});
}

void Parameter::set_trainable(bool trainable) {
  if (!trainable && value_.requires_grad()) {
    hooked_ = empty({}, {.dtype = dtype(), .device = meta});
    hooked_.set_requires_grad();
    move_gradient_hooks(value_, hooked_);
  }
  value_.set_requires_grad(trainable);
  if (trainable && hooked_) move_gradient_hooks(std::exchange(hooked_, {}), value_);
  trainable_ = trainable;
}

void Parameter::fail_stale() const {
  throw_runtime_error(
      concat("parameter: ", shape(),
             " was changed after it was gathered for forward; the next forward gathers it "
             "again, until then take its value()"));
}

void Parameter::set_value(Tensor value) {
  const bool has_memory =
      value && value.device().kind != DeviceKind::meta && value.storage()->is_bound();
  // Code that shards the parameter copies the elements later, when other owners of them may have
  // changed them. Optimizers need dense values to join neighbours.
  const bool copies = has_memory && (used_ || !value.local().block().is_dense());
  if (copies) value = clone(value.detach());
  lay_out(std::move(value));
  initialized_ = initialized_ || is_materialized();
}

void Parameter::lay_out(Tensor value) {
  if (!value) fail("set_value: tensor is undefined, expected one of shape ", shape());
  if (!(value.shape() == shape())) {
    fail("set_value: shape is ", value.shape(), ", expected ", shape(), ", that of the parameter");
  }
  // A separate handle: the caller's may be a leaf, or part of a graph.
  value = value.detach();
  value.set_requires_grad(trainable_);
  move_gradient_hooks(value_, value);
  value_ = std::move(value);
}

void Parameter::materialize(Device device) {
  if (initialized_) return;
  if (!is_materialized()) {
    PurposeScope purpose(Purpose::parameters);
    lay_out(empty(shape(), {.dtype = dtype(), .device = device, .sharding = value_.sharding()}));
  }
  NoGrad no_grad;
  if (initializer_ && is_materialized()) {
    const bool on_disk = rests_on_disk(value_);
    const Tensor filled = on_disk ? memory_like(value_) : value_;
    initializer_(filled);
    if (on_disk) write_to_disk(value_, filled);
  }
  initialized_ = is_materialized();
}

void Module::materialize(Device device) {
  for (const auto& [path, module] : named_modules()) {
    for (const auto& make : module->materializers_) make(device);
  }
  for (const ParameterPtr& parameter : parameters()) parameter->materialize(device);
  move_buffers(device);
}

void Module::allocate_beside(const Tensors& inputs) {
  const std::vector<ParameterPtr> all = parameters();
  Device device = cpu;
  for (const ParameterPtr& parameter : all) {
    if (const Sharding sharding = parameter->value().sharding()) device = sharding.mesh().device();
  }
  for (const Tensor& input : inputs) {
    if (!input) continue;
    device = input.device();
    if (device.kind == DeviceKind::meta) return;
    break;
  }
  // A sharded parameter may be laid out before its slice has memory.
  const auto lacks_memory = [](const ParameterPtr& p) {
    return !p->is_materialized() || !p->value().storage()->is_bound();
  };
  if (std::any_of(all.begin(), all.end(), lacks_memory)) materialize(device);
  // Nested modules would otherwise each look at all parameters below them.
  visit_modules(*this, [](Module& module) { module.allocated_ = true; });
}

void Module::to(DType dtype) {
  if (!is_floating(dtype) || is_complex(dtype)) {
    fail("to: dtype is ", dtype, ", expected a floating one");
  }
  for (const auto& [path, module] : named_modules()) {
    if (module->attachments_.empty()) continue;
    fail("to: module ", in_quotes(path), " is fully sharded, expected one before fully_shard; or ",
         "give fully_shard a MixedPrecision");
  }
  const auto changes = [&](const Tensor& x) {
    return is_floating(x.dtype()) && !is_complex(x.dtype()) && x.dtype() != dtype;
  };
  const NoGrad no_grad;
  for (const ParameterPtr& parameter : parameters()) {
    const Tensor before = parameter->value(), grad = parameter->grad();
    if (!changes(before)) continue;
    const bool has_memory = parameter->is_materialized();
    ModuleSharder::lay_out(
        *parameter,
        has_memory ? before.to(dtype) : empty(before.shape(), {dtype, meta, before.sharding()}));
    if (grad) parameter->value().set_grad(grad.to(dtype));
  }
  for (const auto& [path, module] : named_modules()) {
    for (NamedBuffer& buffer : module->buffers_) {
      if (changes(buffer.value)) buffer.value = buffer.value.to(dtype);
    }
  }
}

void Module::to(Device device) {
  check_available(device);
  const std::vector<NamedParameter> all = named_parameters();
  for (const auto& [names, parameter] : all) {
    const bool has_memory = parameter->is_materialized();
    // materialize() makes parameters on the CPU.
    if (has_memory ? parameter->value().device() == device : device == cpu) continue;
    if (has_memory && !ModuleSharder::has_used(*parameter)) continue;
    fail("to: parameter ", in_quotes(names[0]),
         has_memory ? " is fully sharded" : " has no memory yet",
         ", expected a module before fully_shard and after materialize(); or call materialize(",
         device, ")");
  }
  const NoGrad no_grad;
  for (const auto& [names, parameter] : all) {
    if (!parameter->is_materialized() || parameter->value().device() == device) continue;
    const Tensor grad = parameter->grad();
    ModuleSharder::lay_out(*parameter, parameter->value().to(device));
    if (grad) parameter->value().set_grad(grad.to(device));
  }
  move_buffers(device);
}

void Module::move_buffers(Device device) {
  if (device.kind == DeviceKind::meta) return;
  const NoGrad no_grad;
  for (const auto& [path, module] : named_modules()) {
    for (NamedBuffer& buffer : module->buffers_) {
      if (buffer.value.device() != device) buffer.value = buffer.value.to(device);
    }
  }
}

const NamedBuffer* Module::find_buffer(const std::string& name) const {
  const auto found = std::ranges::find(buffers_, name, &NamedBuffer::name);
  return found == buffers_.end() ? nullptr : &*found;
}

void Module::register_buffer(std::string name, Tensor value, bool persistent) {
  check_new_name(name);
  if (!value) fail("register_buffer: tensor of ", in_quotes(name), " is undefined, expected one");
  buffers_.push_back({std::move(name), value.detach(), persistent});
}

void Module::set_buffer(const std::string& name, Tensor value) {
  auto* own = const_cast<NamedBuffer*>(find_buffer(name));
  if (!own) fail("set_buffer: buffer ", in_quotes(name), " does not exist");
  if (!value) fail("set_buffer: tensor of ", in_quotes(name), " is undefined, expected one");
  own->value = value.detach();
}

const Tensor& Module::buffer(const std::string& name) const {
  const NamedBuffer* own = find_buffer(name);
  if (!own) fail("module: buffer ", in_quotes(name), " does not exist");
  return own->value;
}

std::vector<NamedBuffer> Module::named_buffers() const {
  std::vector<NamedBuffer> all;
  for (const auto& [path, module] : const_cast<Module*>(this)->named_modules()) {
    for (const NamedBuffer& buffer : module->buffers_) {
      all.push_back({path.empty() ? buffer.name : concat(path, '.', buffer.name), buffer.value,
                     buffer.persistent});
    }
  }
  return all;
}

void ModuleSharder::replicate_buffers(Module& module, const DeviceMesh& mesh) {
  const NoGrad no_grad;
  for (const auto& [path, below] : module.named_modules()) {
    for (NamedBuffer& buffer : below->buffers_) {
      if (!buffer.value.is_sharded()) buffer.value = distribute(buffer.value, mesh.root(), {});
    }
  }
}

}  // namespace weft

namespace weft::init {

Target::Target(Parameter& parameter) : shape_(parameter.shape()) {
  if (parameter.is_materialized()) {
    tensor_ = parameter.value();
  } else {
    later_ = &parameter;
  }
}

void Target::fill(const Parameter::Initializer& values) const {
  if (later_) return later_->set_initializer(values);
  NoGrad no_grad;
  values(tensor_);
}

void constant_(const Target& to, double value) { to.fill(constant_values(value)); }

void normal_(const Target& to, double mean, double std) {
  to.fill([=](const Tensor& values) { weft::normal_(values, mean, std); });
}

void uniform_(const Target& to, double a, double b) {
  to.fill([=](const Tensor& values) { weft::uniform_(values, a, b); });
}

/// Inputs and outputs of a weight [outputs, inputs, ...].
struct Fans {
  double in, out;
};

static Fans fans_of(const char* what, const Shape& shape) {
  if (shape.ndim() < 2) fail(what, ": shape is ", shape, ", expected at least 2 dims");
  double field = 1;
  for (int d = 2; d < shape.ndim(); ++d) field *= static_cast<double>(shape[d]);
  return {static_cast<double>(shape[1]) * field, static_cast<double>(shape[0]) * field};
}

void xavier_uniform_(const Target& to, double gain) {
  const auto [in, out] = fans_of("xavier_uniform_", to.shape());
  const double bound = gain * std::sqrt(6 / (in + out));
  uniform_(to, -bound, bound);
}

void xavier_normal_(const Target& to, double gain) {
  const auto [in, out] = fans_of("xavier_normal_", to.shape());
  normal_(to, 0, gain * std::sqrt(2 / (in + out)));
}

double calculate_gain(std::string_view nonlinearity, std::optional<double> param) {
  if (nonlinearity == "linear" || nonlinearity == "sigmoid") return 1;
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "relu") return std::numbers::sqrt2;
  if (nonlinearity == "leaky_relu") return std::sqrt(2 / (1 + std::pow(param.value_or(0.01), 2)));
  fail("calculate_gain: nonlinearity is ", in_quotes(nonlinearity),
       ", expected one of linear, sigmoid, tanh, relu, leaky_relu");
}

static double kaiming_deviation(const char* what, const Target& to, double a, std::string_view mode,
                                std::string_view nonlinearity) {
  if (mode != "fan_in" && mode != "fan_out") {
    fail(what, ": mode is ", in_quotes(mode), ", expected fan_in or fan_out");
  }
  const auto [in, out] = fans_of(what, to.shape());
  return calculate_gain(nonlinearity, a) / std::sqrt(mode == "fan_in" ? in : out);
}

void kaiming_uniform_(const Target& to, double a, std::string_view mode,
                      std::string_view nonlinearity) {
  const double bound =
      std::numbers::sqrt3 * kaiming_deviation("kaiming_uniform_", to, a, mode, nonlinearity);
  uniform_(to, -bound, bound);
}

void kaiming_normal_(const Target& to, double a, std::string_view mode,
                     std::string_view nonlinearity) {
  normal_(to, 0, kaiming_deviation("kaiming_normal_", to, a, mode, nonlinearity));
}

}  // namespace weft::init
