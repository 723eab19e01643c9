// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace weft::s3 {

struct Credentials {
  std::string id, secret;
  /// Names the session; may be empty.
  std::string token;
  bool operator==(const Credentials&) const = default;
};

/// The settings of a store; docs/guides/object_stores.md lists them.
struct Settings {
  Credentials credentials;
  std::string region;
  /// "https://host[:port]", without a slash at its end; empty: AWS.
  std::string endpoint;
  /// A file of certificates of authorities; empty: those of the system.
  std::string ca_bundle;
  /// Seconds after which a request that failed is not repeated.
  double deadline = 300;
};

/// Reads the environment variables and files of the AWS command line, anew at each call.
/// std::runtime_error names the file or variable that is wrong, or says where credentials were
/// looked for.
Settings settings_from_environment();

}  // namespace weft::s3
