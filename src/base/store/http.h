// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>

#include "src/base/store/sign.h"

namespace weft::s3 {

/// One HTTP request.
struct HttpRequest {
  std::string method, url;
  Pairs headers = {};
  std::span<const std::byte> body = {};
  /// Receives the body of a successful answer; without it, HttpAnswer::text does.
  std::span<std::byte> into = {};
  std::string ca_bundle = {};
  /// The request is given up after so many seconds.
  double seconds = std::numeric_limits<double>::infinity();
};

struct HttpAnswer {
  /// 0: there was none, or not all of it, for the reason `problem`.
  int status = 0;
  std::string problem = {};
  /// The host was not reached at all.
  bool is_unreachable = false;
  /// Another attempt cannot help, for example because of a certificate.
  bool is_final = false;
  /// Names are in lower case.
  std::map<std::string, std::string> headers = {};
  std::string text = {};
  /// Bytes that went to HttpRequest::into.
  size_t received = 0;

  std::string header(const char* name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string() : found->second;
  }
};

/// Sends a request by libcurl, which is loaded at the first call, over a connection of this process
/// that is free. An answer that stops for 30 seconds is given up. std::runtime_error only when
/// libcurl is missing.
HttpAnswer send(const HttpRequest& request);

}  // namespace weft::s3
