// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/kept_results.h"

#include <algorithm>
#include <utility>

#include "ops/engine/binding.h"
#include "ops/engine/dispatch.h"
#include "ops/engine/engine.h"
#include "ops/engine/tensor_body.h"
#include "weft/error.h"
#include "weft/extend/op.h"
#include "weft/storage.h"

namespace weft {

KeptResults::KeptResults(std::vector<std::string> ops) : ops_(std::move(ops)) {
  for (const std::string& name : ops_) {
    const auto& known = all_ops();
    const auto found =
        std::ranges::find_if(known, [&](const Op& op) { return op.spec().name == name; });
    if (found == known.end()) {
      fail("recompute: a kept op is ", in_quotes(name),
           ", expected the name of one, as \"linear\"");
    }
    if (!found->spec().writes.empty()) {
      fail("recompute: kept op ", in_quotes(name),
           " changes its operands, expected one that makes results");
    }
  }
}

KeptResults::Scope::Scope(KeptResults* results, Run run)
    : before_(std::exchange(Engine::current().kept, results)),
      run_before_(results ? results->run_ : Run::first) {
  if (!results) return;
  results->run_ = run;
  results->next_ = 0;
}

KeptResults::Scope::~Scope() {
  KeptResults* results = std::exchange(Engine::current().kept, before_);
  if (results) results->run_ = run_before_;
}

bool KeptResults::names(const std::string& op) const {
  return std::ranges::find(ops_, op) != ops_.end();
}

void KeptResults::keep(const std::string& op, std::vector<Tensor> results) {
  Kept kept{op, std::move(results), {}};
  for (const Tensor& result : kept.results) kept.versions.push_back(result.storage()->version());
  kept_.push_back(std::move(kept));
}

std::vector<Tensor> KeptResults::take(const std::string& op) {
  if (next_ >= kept_.size() || kept_[next_].op != op || kept_[next_].results.empty()) {
    const bool known = next_ < kept_.size();
    fail("recompute: call ", next_, " of a kept op is of ", op, " in backward, expected ",
         known ? kept_[next_].op : std::string("none"), ", as in forward");
  }
  Kept& kept = kept_[next_++];
  kept.check_versions();
  return std::exchange(kept.results, {});
}

void KeptResults::Kept::check_versions() const {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].storage()->version() == versions[i]) continue;
    fail("recompute: kept result ", i, " of ", op, " ", results[i].shape(),
         " was changed in place after forward, expected the same values in backward");
  }
}

std::vector<Tensor> KeptResults::release() {
  std::vector<Tensor> all;
  for (Kept& kept : kept_) {
    kept.check_versions();
    for (Tensor& result : kept.results) all.push_back(std::exchange(result, {}));
  }
  return all;
}

void KeptResults::restore(std::vector<Tensor> results) {
  auto next = results.begin();
  for (Kept& kept : kept_) {
    for (size_t i = 0; i < kept.results.size(); ++i) {
      kept.results[i] = std::move(*next++);
      kept.versions[i] = kept.results[i].storage()->version();
    }
  }
}

bool take_kept(KeptResults& kept, const OpBody& op, Results& results) {
  if (kept.is_first() || !kept.names(op.spec.name)) return false;
  for (const Tensor& result : kept.take(op.spec.name)) {
    results.tensors[static_cast<size_t>(results.count++)] = relabeled(result, layout_of(result));
  }
  return true;
}

void keep_results(KeptResults& kept, const OpBody& op, const Results& results) {
  if (!kept.is_first() || !kept.names(op.spec.name)) return;
  const auto first = results.tensors.begin();
  kept.keep(op.spec.name, {first, first + results.count});
}

}  // namespace weft
