// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "weft/error.h"

namespace weft {

/// A place for arrays between uses: on the device that computes with them (`false`), in pinned
/// memory of the host while a GPU computes (`true`), or in files.
class Tier {
 public:
  Tier(bool on_host = false) : on_host_(on_host) {}
  /// Files in `directory`, without a name and readable by their process only. The CPU reads and
  /// writes them while it computes.
  static Tier disk(std::string directory) {
    Tier tier;
    tier.directory_ = std::move(directory);
    return tier;
  }

  bool is_host() const { return on_host_; }
  bool is_disk() const { return !directory_.empty(); }
  bool offloads() const { return is_host() || is_disk(); }
  /// That of the files; empty for the other tiers.
  const std::string& directory() const { return directory_; }
  bool operator==(const Tier&) const = default;

  /// Returns "device", "host" or "disk:DIR" as a tier; std::invalid_argument, which begins with
  /// `what`, for any other text.
  static Tier named(std::string_view what, std::string_view text) {
    if (text == "device") return false;
    if (text == "host") return true;
    if (text.starts_with("disk:") && text.size() > 5) return disk(std::string(text.substr(5)));
    fail(what, ": tier is ", in_quotes(text), ", expected device, host or disk:DIR");
  }
  friend std::ostream& operator<<(std::ostream& out, const Tier& tier) {
    if (tier.is_disk()) return out << "disk:" << tier.directory_;
    return out << (tier.on_host_ ? "host" : "device");
  }

 private:
  bool on_host_;
  std::string directory_;
};

}  // namespace weft
