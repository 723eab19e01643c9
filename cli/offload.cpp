// SPDX-License-Identifier: Apache-2.0
#include "cli/offload.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

#include "weft/error.h"

namespace weft::cli {

static constexpr std::array<std::string_view, 5> kOffloaded = {"parameters", "gradients", "state",
                                                               "activations", "auto"};

void add_offload_flag(CLI::App& command, std::vector<std::string>& items) {
  command
      .add_option(
          "--offload", items,
          "Where parameters, gradients, the optimizer's state and what recomputed blocks save "
          "(activations) rest between uses, e.g. state=disk:DIR,parameters=host: host (the "
          "default) is pinned memory while GPUs compute, disk:DIR are files without a name "
          "in DIR; auto=disk:DIR lets --memory choose what rests there")
      ->type_name("WHAT[=TIER],...")
      ->delimiter(',');
}

Tier tier_of(const std::vector<std::string>& items, std::string_view what) {
  Tier tier;
  for (const std::string& item : items) {
    const size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = std::string_view(item).substr(0, equals);
    if (std::ranges::find(kOffloaded, name) == kOffloaded.end()) {
      fail("--offload: item is ", in_quotes(item),
           ", expected parameters, gradients, state, activations or auto, and a tier behind it, as "
           "in "
           "state=disk:DIR");
    }
    if (name != what) continue;
    tier = equals == item.size()
               ? Tier(true)
               : Tier::named(concat("--offload ", name), std::string_view(item).substr(equals + 1));
  }
  return tier;
}

void check_offload(const std::vector<std::string>& items, Device device) {
  for (const std::string_view what : kOffloaded) {
    if (!tier_of(items, what).is_host() || device.kind == DeviceKind::cuda) continue;
    fail("--offload: ", what, " rest on the host while ranks compute on ", device,
         ", expected a GPU; write ", what, "=disk:DIR");
  }
}

}  // namespace weft::cli
