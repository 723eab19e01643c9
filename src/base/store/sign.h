// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/store/credentials.h"

namespace weft::s3 {

using Pairs = std::vector<std::pair<std::string, std::string>>;

/// A request before it is signed. Path and query are not escaped.
struct Request {
  std::string method;
  /// Begins with the first slash of the URL.
  std::string path;
  /// These may be in any order; a name may have an empty value.
  Pairs query = {};
  /// Further headers, all of which are signed.
  Pairs headers = {};
};

/// Escapes all bytes but letters, digits and "-._~", and slashes if `keeps_slashes`.
std::string escaped_for_url(std::string_view text, bool keeps_slashes);
/// The path and query of a request as they are sent: the query is sorted.
std::string target_of(const Request& request);

/// Returns the request's headers with those of AWS Signature Version 4 for the service "s3":
/// x-amz-date, x-amz-content-sha256 (`payload_hash`), x-amz-security-token and authorization.
/// `host` as the URL has it, with a port that is not the scheme's.
Pairs signed_headers(const Request& request, const std::string& host,
                     const Credentials& credentials, const std::string& region,
                     const std::string& payload_hash, std::time_t now);

}  // namespace weft::s3
