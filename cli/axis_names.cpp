// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <iterator>

#include "cli/parallel_transformer.h"
#include "weft/error.h"

namespace weft::cli {

/// Names that a flag or its documentation gives a meaning.
static constexpr std::string_view kReserved[] = {"tp", "ep",        "cp",   "dp",
                                                 "pp", "replicate", "shard"};
/// Words for kinds of parallelism.
static constexpr std::string_view kKinds[] = {
    "sp",    "mp",       "fsdp",    "hsdp",   "ddp",     "zero",  "data",   "tensor",
    "model", "pipeline", "context", "expert", "experts", "stage", "stages", "sequence"};

/// True when the words differ by one letter that is changed, added or left out, or by their order.
static bool is_near(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  if (a == b || b.size() - a.size() > 1) return a == b;
  const auto same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const bool is_equally_long = a.size() == b.size();
  return b.substr(same + 1) == a.substr(same + (is_equally_long ? 1 : 0)) ||
         (is_equally_long && std::ranges::is_permutation(a, b));
}

/// Returns whether a name promises something else than an axis that carries rows.
static bool is_misleading(std::string_view name) {
  if (std::ranges::find(kReserved, name) != std::end(kReserved)) return false;
  std::string plain;
  for (const unsigned char c : name) plain += static_cast<char>(std::tolower(c));
  const auto is_meant = [&](std::string_view reserved) {
    return plain.size() > 1 && is_near(plain, reserved);
  };
  return std::ranges::any_of(kReserved, is_meant) ||
         std::ranges::find(kKinds, plain) != std::end(kKinds) ||
         plain.find("parallel") != plain.npos;
}

void check_axis_names(const std::vector<MeshAxis>& axes, const std::string& mesh) {
  const auto axis = std::ranges::find_if(axes, is_misleading, &MeshAxis::name);
  if (axis == axes.end()) return;
  fail("--mesh ", mesh, ": axis is ", axis->name,
       ", expected tp (tensor parallelism), ep (experts), cp (sequences), pp (a pipeline), or dp, "
       "replicate, shard or a name unlike these for an axis that carries rows of the batch");
}

}  // namespace weft::cli
