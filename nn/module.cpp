// SPDX-License-Identifier: Apache-2.0
#include "weft/module.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "nn/visit_modules.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/extend/module_trace.h"
#include "weft/extend/subject.h"

namespace weft {

void Module::fail_used(size_t i) const {
  fail("module: number of the used parameter is ", i, ", expected one below ", parameters_.size());
}

Tensors Module::operator()(const Tensors& inputs) {
  return call(inputs, [this](const Tensors& given) { return forward(given); });
}

/// Tells the trace the paths of the modules below an outermost one.
static void name_modules(Module& module) {
  if (Context::current().scope || ModuleTrace::has_name(&module)) return;
  for (const auto& [path, below] : module.named_modules()) {
    ModuleTrace::set_name(below, path.empty() ? "model" : path);
  }
}

Tensors Module::call(const Tensors& inputs, const std::function<Tensors(const Tensors&)>& forward) {
  if (!allocated_) [[unlikely]]
    allocate_beside(inputs);
  std::optional<ModuleTrace> trace;
  if (ModuleTrace::is_active()) [[unlikely]] {
    name_modules(*this);
    trace.emplace(this, inputs);
  }
  RunScope scope(this);
  const SubjectScope subject = SubjectScope::of_module(number_, known_as_);
  if (hooks_->empty() && enclosing_.empty()) return run_forward(inputs, forward);
  const HookList enclosing = enclosing_;
  Tensors given = inputs;
  for (auto hooks = enclosing.rbegin(); hooks != enclosing.rend(); ++hooks) {
    if ((*hooks)->before) given = (*hooks)->before(given);
  }
  // Copied, because a hook may change the list.
  for (const auto& hooks : HookList(*hooks_)) {
    if (hooks->before) given = hooks->before(given);
  }
  Tensors outputs = run_forward(given, forward);
  for (const auto& hooks : HookList(*hooks_)) {
    if (hooks->after) outputs = hooks->after(given, outputs);
  }
  for (const auto& hooks : enclosing) {
    if (hooks->after) outputs = hooks->after(given, outputs);
  }
  return outputs;
}

Tensor Module::operator()(const Tensor& input) {
  Tensors outputs = (*this)(Tensors{input});
  if (outputs.size() != 1) {
    fail("module: number of its outputs is ", outputs.size(), ", expected 1; call it with Tensors");
  }
  return std::move(outputs[0]);
}

HookHandle Module::add_hooks(ModuleHooks hooks) {
  hooks_->push_back(std::make_shared<const ModuleHooks>(std::move(hooks)));
  return {hooks_, hooks_->back()};
}

void HookHandle::remove() {
  const auto list = list_.lock();
  const auto own = own_.lock();
  if (list && own) std::erase(*list, own);
}

static std::string path_below(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

/// Parameters in the order of their first occurrence, and each one's index in the list.
struct FoundParameters {
  std::vector<NamedParameter> list;
  std::unordered_map<const Parameter*, size_t> places;
};

static void collect_parameters(const Module& module, const std::string& prefix,
                               FoundParameters& found) {
  for (const auto& [name, parameter] : module.own_parameters()) {
    const auto [place, is_new] = found.places.try_emplace(parameter.get(), found.list.size());
    if (is_new) found.list.push_back({{}, parameter});
    found.list[place->second].names.push_back(path_below(prefix, name));
  }
  for (const auto& [name, child] : module.children()) {
    collect_parameters(*child, path_below(prefix, name), found);
  }
}

std::vector<NamedParameter> Module::named_parameters() const {
  FoundParameters found;
  collect_parameters(*this, "", found);
  return std::move(found.list);
}

std::vector<ParameterPtr> Module::parameters() const {
  std::vector<ParameterPtr> parameters;
  std::unordered_set<const Parameter*> seen;
  visit_modules(*this, [&](const Module& module) {
    for (const auto& [name, parameter] : module.own_parameters()) {
      if (seen.insert(parameter.get()).second) parameters.push_back(parameter);
    }
  });
  return parameters;
}

static void collect_modules(Module& module, const std::string& path,
                            std::unordered_set<const Module*>& seen,
                            std::vector<std::pair<std::string, Module*>>& found) {
  if (!seen.insert(&module).second) return;
  found.emplace_back(path, &module);
  for (const auto& [name, child] : module.children()) {
    collect_modules(*child, path_below(path, name), seen, found);
  }
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::unordered_set<const Module*> seen;
  std::vector<std::pair<std::string, Module*>> found;
  collect_modules(*this, "", seen, found);
  return found;
}

/// Returns an iterator to the member of that name.
template <class Members> static auto place_of(Members& members, const std::string& name) {
  return std::find_if(members.begin(), members.end(),
                      [&](const auto& member) { return member.first == name; });
}

Module& Module::module(const std::string& path) {
  Module* at = this;
  for (size_t start = 0; start < path.size();) {
    const size_t end = std::min(path.find('.', start), path.size());
    const std::string part = path.substr(start, end - start);
    const auto& children = at->children();
    const auto found = place_of(children, part);
    if (found == children.end()) {
      fail("module: ", in_quotes(path),
           " does not exist: ", start == 0 ? "the module" : in_quotes(path.substr(0, start - 1)),
           " has no child ", in_quotes(part));
    }
    at = found->second.get();
    start = end + 1;
  }
  return *at;
}

void Module::set_training(bool training) {
  visit_modules(*this, [&](Module& module) { module.training_ = training; });
}

/// Throws unless the name is new and can be part of a dotted path.
void Module::check_new_name(const std::string& name) const {
  if (name.empty() || name.find('.') != name.npos) {
    fail("module: name of a parameter or child is ", in_quotes(name),
         ", expected a non-empty one without a dot");
  }
  if (place_of(parameters_, name) != parameters_.end() ||
      place_of(children_, name) != children_.end() || find_buffer(name)) {
    fail("module: ", in_quotes(name), " exists already, expected another name");
  }
}

ParameterPtr Module::declare(std::string name, const Shape& shape,
                             Parameter::Initializer initializer, DType dtype) {
  check_new_name(name);
  auto parameter = std::make_shared<Parameter>(shape, dtype, std::move(initializer));
  parameters_.emplace_back(std::move(name), parameter);
  allocated_ = false;
  return parameter;
}

void Module::is_known_as(const std::string& name) {
  if (!known_as_.empty()) return;
  known_as_ = name;
  number_ = xxh3_of(std::as_bytes(std::span(name)));
}

void Module::adopt(std::string name, std::shared_ptr<Module> child) {
  check_new_name(name);
  if (!child) fail("module: module for ", in_quotes(name), " is null, expected a module");
  child->is_known_as(name);
  children_.emplace_back(std::move(name), std::move(child));
  allocated_ = false;
}

/// The member of that name, which `other` is to replace.
template <class Member>
static Member& replaced(const char* op, const char* kind,
                        std::vector<std::pair<std::string, Member>>& members,
                        const std::string& name, const Member& other) {
  const auto own = place_of(members, name);
  if (own == members.end()) fail(op, ": ", kind, " ", in_quotes(name), " does not exist");
  if (!other) fail(op, ": ", kind, " for ", in_quotes(name), " is null, expected a ", kind);
  return own->second;
}

void Module::replace(const std::string& name, ParameterPtr parameter) {
  replaced("replace", "parameter", parameters_, name, parameter) = std::move(parameter);
  allocated_ = false;
}

void Module::replace(const std::string& name, std::shared_ptr<Module> child) {
  std::shared_ptr<Module>& own = replaced("replace", "module", children_, name, child);
  child->is_known_as(name);
  own = std::move(child);
  allocated_ = false;
}

bool Module::remove(const std::string& name) {
  const auto parameter = place_of(parameters_, name);
  if (parameter != parameters_.end()) return parameters_.erase(parameter), true;
  const auto child = place_of(children_, name);
  if (child != children_.end()) return children_.erase(child), true;
  return std::erase_if(buffers_, [&](const NamedBuffer& own) { return own.name == name; }) > 0;
}

void Module::set_parameter(const std::string& name, ParameterPtr parameter) {
  ParameterPtr& own = replaced("set_parameter", "parameter", parameters_, name, parameter);
  if (!(parameter->shape() == own->shape())) {
    fail("set_parameter: ", in_quotes(name), " is ", parameter->shape(), ", expected ",
         own->shape());
  }
  own = std::move(parameter);
  allocated_ = false;
}

}  // namespace weft
