// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_set>
#include <vector>

#include "weft/module.h"

namespace weft {

/// Calls visit(module) once for `module` and each one below it, parents first.
template <class M, class Visit> void visit_modules(M& module, const Visit& visit) {
  std::unordered_set<const Module*> seen;
  std::vector<M*> left = {&module};
  while (!left.empty()) {
    M& next = *left.back();
    left.pop_back();
    if (!seen.insert(&next).second) continue;
    visit(next);
    for (auto child = next.children().rbegin(); child != next.children().rend(); ++child) {
      left.push_back(child->second.get());
    }
  }
}

}  // namespace weft
