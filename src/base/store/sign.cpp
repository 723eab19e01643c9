// SPDX-License-Identifier: Apache-2.0
#include "src/base/store/sign.h"

#include <algorithm>
#include <map>

#include "src/base/store/sha256.h"
#include "weft/error.h"

namespace weft::s3 {

std::string escaped_for_url(std::string_view text, bool keeps_slashes) {
  static constexpr std::string_view kKept = "-._~";
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || kKept.find(c) != kKept.npos ||
                          (keeps_slashes && c == '/');
    if (is_plain) {
      out += c;
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
  }
  return out;
}

/// Escaped and sorted by the escaped names, then values.
static std::string query_of(const Request& request) {
  Pairs pairs;
  for (const auto& [name, value] : request.query) {
    pairs.emplace_back(escaped_for_url(name, false), escaped_for_url(value, false));
  }
  std::ranges::sort(pairs);
  std::string text;
  for (const auto& [name, value] : pairs) {
    text += text.empty() ? "" : "&";
    text.append(name).append("=").append(value);
  }
  return text;
}

std::string target_of(const Request& request) {
  const std::string query = query_of(request);
  return escaped_for_url(request.path, true) + (query.empty() ? "" : "?" + query);
}

/// One space for each run of white space, and none at the ends.
static std::string trimmed(std::string_view text) {
  std::string out;
  bool is_space = false;
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f') {
      is_space = !out.empty();
      continue;
    }
    if (is_space) out += ' ';
    is_space = false;
    out += c;
  }
  return out;
}

static std::string lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

Pairs signed_headers(const Request& request, const std::string& host,
                     const Credentials& credentials, const std::string& region,
                     const std::string& payload_hash, std::time_t now) {
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char time[17], day[9];
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%SZ", &utc);
  std::strftime(day, sizeof day, "%Y%m%d", &utc);
  Pairs headers = request.headers;
  headers.emplace_back("x-amz-content-sha256", payload_hash);
  headers.emplace_back("x-amz-date", time);
  if (!credentials.token.empty()) headers.emplace_back("x-amz-security-token", credentials.token);

  std::map<std::string, std::string> sorted{{"host", host}};
  for (const auto& [name, value] : headers) sorted[lower(name)] = trimmed(value);
  std::string names, lines;
  for (const auto& [name, value] : sorted) {
    names.append(names.empty() ? "" : ";").append(name);
    lines.append(name).append(":").append(value).append("\n");
  }
  const std::string canonical =
      concat(request.method, '\n', escaped_for_url(request.path, true), '\n', query_of(request),
             '\n', lines, '\n', names, '\n', payload_hash);
  const std::string scope = concat(day, '/', region, "/s3/aws4_request");
  const std::string text =
      concat("AWS4-HMAC-SHA256\n", time, '\n', scope, '\n', hex_of(sha256(canonical)));
  Digest key = hmac("AWS4" + credentials.secret, day);
  for (const std::string& part : {region, std::string("s3"), std::string("aws4_request"), text}) {
    key = hmac(text_of(key), part);
  }
  headers.emplace_back("authorization",
                       concat("AWS4-HMAC-SHA256 Credential=", credentials.id, '/', scope,
                              ", SignedHeaders=", names, ", Signature=", hex_of(key)));
  return headers;
}

}  // namespace weft::s3
