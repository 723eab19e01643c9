// SPDX-License-Identifier: Apache-2.0
#include "cli/offload.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "weft/error.h"

namespace weft::cli {

static constexpr std::string_view kBudget = "budget=";

std::string_view policy_of(std::string_view choice, size_t index) {
  if (choice == "selective") return index % 2 == 0 ? "full" : "none";
  return choice.starts_with(kBudget) ? "none" : choice;
}

int64_t bytes_from(std::string_view flag, const std::string& text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},      {"B", 1},        {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}};
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), last, number);
  const std::string_view unit(stop, static_cast<size_t>(last - stop));
  const auto known = std::ranges::find(kUnits, unit, [](const auto& one) { return one.first; });
  const bool good = error == std::errc() && known != std::end(kUnits);
  const double bytes = good ? number * known->second : 0;
  if (!good || !(bytes >= 1) || bytes > 0x1p62) {
    fail(flag, " is ", in_quotes(text), ", expected bytes such as 2GiB, 512MiB or 1000000");
  }
  return static_cast<int64_t>(bytes);
}

std::optional<int64_t> budget_of(const std::string& choice) {
  static constexpr std::string_view kChoices[] = {"none", "full", "selective", "op"};
  if (choice.starts_with(kBudget)) {
    return bytes_from("--activation-checkpointing budget", choice.substr(kBudget.size()));
  }
  if (std::ranges::find(kChoices, choice) == std::end(kChoices)) {
    fail("--activation-checkpointing is ", in_quotes(choice),
         ", expected none, full, selective, op or budget=BYTES");
  }
  return {};
}

static constexpr std::array<std::string_view, 5> kOffloaded = {"parameters", "gradients", "state",
                                                               "activations", "auto"};

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
