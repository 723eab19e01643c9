// SPDX-License-Identifier: Apache-2.0
#include "weft/tier.h"

#include "weft/error.h"

namespace weft {

Tier Tier::named(std::string_view what, std::string_view text) {
  constexpr std::string_view kDisk = "disk:";
  if (text == "device") return false;
  if (text == "host") return true;
  if (text.starts_with(kDisk) && text.size() > kDisk.size()) {
    return disk(std::string(text.substr(kDisk.size())));
  }
  fail(what, ": tier is ", in_quotes(std::string(text)), ", expected device, host or disk:DIR");
}

}  // namespace weft
