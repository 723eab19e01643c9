// SPDX-License-Identifier: Apache-2.0
#include <memory>

#include "weft/autograd.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/kept_results.h"
#include "weft/extend/tape.h"
#include "weft/module.h"

namespace weft {

namespace {

/// A run of `function` that backward repeats: its inputs and the context it ran in.
struct RepeatedRun {
  std::function<Tensors(const Tensors&)> function;
  Tensors inputs;
  std::vector<uint64_t> versions;
  RandomState random;
  Traffic traffic;
  /// Null if no results are kept.
  std::shared_ptr<KeptResults> kept;
};

/// Restores the context of the first run, with recording enabled, for its lifetime.
class RepeatScope {
 public:
  explicit RepeatScope(const RepeatedRun& run)
      : traffic_(run.traffic),
        random_(Context::current().random),
        grad_enabled_(Context::current().grad_enabled) {
    Context::current().random = run.random;
    Context::current().grad_enabled = true;
  }
  ~RepeatScope() {
    Context::current().random = random_;
    Context::current().grad_enabled = grad_enabled_;
  }
  RepeatScope(const RepeatScope&) = delete;
  RepeatScope& operator=(const RepeatScope&) = delete;

 private:
  TrafficScope traffic_;
  RandomState random_;
  bool grad_enabled_;
};

}  // namespace

/// Returns `input` as the start of the repeated run's tape. Its gradient is stored in `caught`
/// without a copy, which a leaf would make.
static Tensor repeated_input(const Tensor& input, size_t i,
                             const std::shared_ptr<Tensors>& caught) {
  if (!input || !input.requires_grad()) return input;
  return record("recompute input", {}, {input}, [i, caught](const Tensors& gradients) {
    (*caught)[i] = gradients[0];
    return Tensors();
  })[0];
}

static Tensors repeat(const RepeatedRun& run, const std::shared_ptr<Tensors>& caught) {
  RepeatScope scope(run);
  Tensors inputs;
  for (size_t i = 0; i < run.inputs.size(); ++i) {
    const Tensor& input = run.inputs[i];
    if (input && input.storage()->version() != run.versions[i]) {
      fail("recompute: input ", i, " ", input.shape(),
           " was changed in place after forward, expected the same values in backward");
    }
    inputs.push_back(repeated_input(input, i, caught));
  }
  const KeptResults::Scope kept(run.kept.get(), KeptResults::Run::repeated);
  return run.function(inputs);
}

/// Outputs without gradients, such as indices, are passed on unrecorded.
static bool is_differentiable(const Tensor& output) {
  return output && is_floating(output.dtype());
}

static Tensors gradients_of_repeated(const RepeatedRun& run, const Tensors& gradients) {
  auto caught = std::make_shared<Tensors>(run.inputs.size());
  Tensors outputs = repeat(run, caught);
  std::erase_if(outputs, [](const Tensor& output) { return !is_differentiable(output); });
  if (outputs.size() != gradients.size()) {
    fail("recompute: number of results is ", outputs.size(), " in backward, expected ",
         gradients.size(), ", as in forward");
  }
  Tensors roots, given;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i] || !outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    given.push_back(gradients[i]);
  }
  if (!roots.empty()) backward(roots, given);
  return std::move(*caught);
}

Tensors recompute(const std::function<Tensors(const Tensors&)>& function, const Tensors& inputs,
                  const std::vector<std::string>& kept) {
  const Context& context = Context::current();
  if (!context.grad_enabled) {
    // The repeated run of an outer recomputation records this one, with separate results.
    const KeptResults::Scope none(nullptr, KeptResults::Run::first);
    return function(inputs);
  }
  RepeatedRun run{function, inputs, {}, context.random, context.traffic, {}};
  if (!kept.empty()) run.kept = std::make_shared<KeptResults>(kept);
  for (const Tensor& input : inputs) {
    run.versions.push_back(input ? input.storage()->version() : 0);
  }
  Tensors outputs;
  {
    NoGrad no_grad;
    const KeptResults::Scope scope(run.kept.get(), KeptResults::Run::first);
    outputs = function(inputs);
  }
  Tensors recorded;
  std::copy_if(outputs.begin(), outputs.end(), std::back_inserter(recorded), is_differentiable);
  recorded = record("recompute", inputs, recorded, [run = std::move(run)](const Tensors& given) {
    return gradients_of_repeated(run, given);
  });
  auto next = recorded.begin();
  for (Tensor& output : outputs) {
    if (is_differentiable(output)) output = *next++;
  }
  return outputs;
}

}  // namespace weft
