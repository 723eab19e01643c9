// SPDX-License-Identifier: Apache-2.0
#include "src/base/store/client.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ctime>
#include <limits>
#include <random>
#include <thread>

#include "src/base/store/sha256.h"
#include "weft/error.h"
#include "weft/extend/store.h"

namespace weft::s3 {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

Place place_of(const std::string& path) {
  constexpr std::string_view kScheme = "s3://";
  std::string_view rest(path);
  rest.remove_prefix(kScheme.size());
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const size_t slash = std::min(rest.find('/'), rest.size());
  Place place{std::string(rest.substr(0, slash)), std::string(rest.substr(slash))};
  if (!place.key.empty()) place.key.erase(0, 1);
  const bool is_name = place.bucket.size() >= 3 && place.bucket.size() <= 63 &&
                       std::ranges::all_of(place.bucket, [](char c) {
                         return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
                       });
  if (!is_name) {
    fail("s3: ", in_quotes(path), " names the bucket ", in_quotes(place.bucket),
         ", expected s3://bucket/key with a bucket of 3 to 63 letters, digits, dots and hyphens");
  }
  return place;
}

std::vector<std::string_view> elements(std::string_view xml, std::string_view name) {
  const std::string open = concat('<', name), close = concat("</", name, '>');
  std::vector<std::string_view> found;
  for (size_t at = 0; (at = xml.find(open, at)) != xml.npos;) {
    at += open.size();
    const size_t begin = xml.find('>', at);
    // Another element may begin with this name.
    const bool is_it = at < xml.size() && (xml[at] == '>' || xml[at] == ' ' || xml[at] == '/');
    if (begin == xml.npos) break;
    if (!is_it || xml[begin - 1] == '/') continue;
    const size_t end = xml.find(close, begin);
    if (end == xml.npos) break;
    found.push_back(xml.substr(begin + 1, end - begin - 1));
    at = end;
  }
  return found;
}

static std::string unescaped_xml(std::string_view text) {
  static constexpr std::pair<std::string_view, char> kNamed[] = {
      {"&amp;", '&'}, {"&lt;", '<'},   {"&gt;", '>'},   {"&quot;", '"'}, {"&apos;", '\''},
      {"&#34;", '"'}, {"&#39;", '\''}, {"&#13;", '\r'}, {"&#10;", '\n'}, {"&#xD;", '\r'}};
  std::string out;
  while (!text.empty()) {
    const auto* const found = std::ranges::find_if(
        kNamed, [&](const auto& named) { return text.starts_with(named.first); });
    const bool is_named = found != std::end(kNamed);
    out += is_named ? found->second : text[0];
    text.remove_prefix(is_named ? found->first.size() : 1);
  }
  return out;
}

std::string element(std::string_view xml, std::string_view name) {
  const auto found = elements(xml, name);
  return found.empty() ? std::string() : unescaped_xml(found[0]);
}

std::string unescaped_url(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const bool is_escape =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], text.data() + i + 3, byte, 16).ptr == text.data() + i + 3;
    out += is_escape ? static_cast<char>(byte) : text[i] == '+' ? ' ' : text[i];
    if (is_escape) i += 2;
  }
  return out;
}

Client& Client::instance() {
  // Never destroyed: threads may still use it while the process ends.
  static auto* const client = new Client;
  return *client;
}

Settings Client::settings() {
  const std::lock_guard lock(mutex_);
  if (!settings_) settings_ = settings_from_environment();
  return *settings_;
}

bool Client::renew(const Credentials& used) {
  const std::lock_guard lock(mutex_);
  settings_ = settings_from_environment();
  return !(settings_->credentials == used);
}

/// The URL without the target, and its host.
static std::pair<std::string, std::string> server_of(const Settings& settings, const Place& place,
                                                     bool& has_bucket) {
  std::string url = settings.endpoint;
  has_bucket = false;
  if (url.empty()) {
    const bool fits = place.bucket.find_first_of("._") == std::string::npos;
    const char* const domain =
        settings.region.starts_with("cn-") ? ".amazonaws.com.cn" : ".amazonaws.com";
    has_bucket = fits;
    url = concat("https://", fits ? place.bucket + "." : "", "s3.", settings.region, domain);
  }
  return {url, url.substr(url.find("://") + 3)};
}

/// The host without the port that the scheme implies: curl omits it from the signed header.
static std::string signed_host(std::string host, bool is_http) {
  const std::string_view usual = is_http ? ":80" : ":443";
  if (host.ends_with(usual)) host.resize(host.size() - usual.size());
  return host;
}

Reply Client::attempt(const Call& call, const Settings& settings, double seconds) {
  bool has_bucket = false;
  auto [url, host] = server_of(settings, call.place, has_bucket);
  // A path in the endpoint begins those of all requests.
  const size_t slash = host.find('/');
  const std::string root = slash == host.npos ? "" : host.substr(slash);
  host.resize(std::min(slash, host.size()));
  url.resize(url.size() - root.size());
  host = signed_host(host, url.starts_with("http://"));
  Request request{call.method,
                  concat(root, has_bucket ? "" : "/" + call.place.bucket, '/', call.place.key),
                  call.query, call.headers};
  // TLS protects what is sent, readers check checkpoints, and the store compares other hashes.
  const bool is_hashed = url.starts_with("http://") && !call.has_hashes;
  const std::string hash =
      is_hashed || call.body.empty() ? hex_of(sha256(call.body)) : "UNSIGNED-PAYLOAD";
  const HttpRequest sent{.method = call.method,
                         .url = url + target_of(request),
                         .headers = signed_headers(request, host, settings.credentials,
                                                   settings.region, hash, std::time(nullptr)),
                         .body = call.body,
                         .into = call.into,
                         .ca_bundle = settings.ca_bundle,
                         .seconds = seconds};
  Reply reply{send(sent)};
  if (reply.status / 100 == 2 && reply.received != call.into.size()) {
    reply.problem =
        concat("the answer has ", reply.received, " bytes, expected ", call.into.size());
    reply.status = 0;
  }
  // CompleteMultipartUpload may report an error with status 200.
  const bool is_document = call.method == "POST" || reply.status / 100 != 2;
  if (is_document && reply.text.find("<Error") != reply.text.npos) {
    reply.code = element(reply.text, "Code");
    if (reply.status == 200) reply.status = 500;
  }
  return reply;
}

/// Returns true when the same request may succeed later.
static bool is_temporary(const Reply& reply) {
  if (reply.status == 0) return !reply.is_final;
  static constexpr int kStatuses[] = {408, 429, 500, 502, 503, 504, 509};
  static constexpr const char* kCodes[] = {"RequestTimeout",  "SlowDown",
                                           "InternalError",   "ServiceUnavailable",
                                           "Throttling",      "ConditionalRequestConflict",
                                           "OperationAborted"};
  return std::ranges::count(kStatuses, reply.status) > 0 ||
         std::ranges::count(kCodes, reply.code) > 0;
}

/// Throws the store's answer as one sentence.
[[noreturn]] static void fail_reply(const Call& call, const Settings& settings,
                                    const Reply& reply) {
  const std::string path = printable(call.place.path());
  const std::string where = settings.endpoint.empty() ? "AWS" : settings.endpoint;
  const std::string key = in_quotes(settings.credentials.id);
  const std::string& code = reply.code;
  if (reply.status == 0 && reply.is_unreachable) {
    fail_call("s3", path, ": ", where, " cannot be reached (", reply.problem,
              "), expected an S3 server; check the network and AWS_ENDPOINT_URL");
  }
  if (reply.status == 0) fail_call("s3", path, ": ", where, ": ", reply.problem);
  if (code == "InvalidAccessKeyId" || code == "InvalidClientTokenId") {
    fail_call("s3", path, ": ", where, " does not know the access key ", key,
              "; check AWS_ACCESS_KEY_ID or ~/.aws/credentials");
  }
  if (code == "SignatureDoesNotMatch") {
    fail_call("s3", path, ": the secret key is not that of the access key ", key,
              "; check AWS_SECRET_ACCESS_KEY or ~/.aws/credentials");
  }
  if (code == "RequestTimeTooSkewed") {
    fail_call("s3", path, ": the clock of this machine differs from that of ", where, " (",
              reply.header("date"), ") by more than it accepts; set the clock");
  }
  if (code == "NoSuchBucket") {
    fail_call("s3", path, ": bucket ", in_quotes(call.place.bucket), " does not exist at ", where);
  }
  std::string region = reply.header("x-amz-bucket-region");
  if (region.empty()) region = element(reply.text, "Region");
  const bool is_elsewhere = code == "AuthorizationHeaderMalformed" || code == "PermanentRedirect" ||
                            code == "IllegalLocationConstraintException" || reply.status == 301;
  if (is_elsewhere && !region.empty()) {
    fail_call("s3", path, ": bucket ", in_quotes(call.place.bucket), " is in region ", region,
              ", but the region is ", settings.region, "; set AWS_REGION=", region);
  }
  if (code == "ExpiredToken") {
    fail_call("s3", path, ": the session of the access key ", key, " has ended; renew it");
  }
  const std::string message = element(reply.text, "Message");
  if (reply.status == 403) {
    fail_call("s3", path, ": ", where, " denies ", call.method, " to the access key ", key, " (",
              code.empty() ? "403" : code, message.empty() ? "" : ": " + message, ")");
  }
  fail_call("s3", path, ": ", call.method, " failed with status ", reply.status,
            code.empty() ? "" : ", " + code, message.empty() ? "" : ": " + message);
}

static double random_share() {
  thread_local std::minstd_rand random{std::random_device()()};
  return std::uniform_real_distribution<double>(0.5, 1)(random);
}

static thread_local double deadline_of_thread = std::numeric_limits<double>::infinity();

Reply Client::call(const Call& call) {
  const Clock::time_point begin = Clock::now();
  bool is_renewed = false;
  double pause = 0.1;
  for (int attempts = 0;; ++attempts) {
    const Settings own = settings();
    const Seconds before = Clock::now() - begin;
    Reply reply = attempt(call, own, std::max(0.1, deadline_of_thread - before.count()));
    const bool is_success = reply.status / 100 == 2;
    if (reply.status != 0) was_reached_ = true;
    // 400 may also be ExpiredToken or RequestTimeout: these are not the answer to the call.
    const bool is_other = reply.status == 400 && reply.code != "InvalidPart";
    const bool is_accepted = std::ranges::count(call.accepted, reply.status) > 0 && !is_other;
    if (is_success || is_accepted) return reply;
    const bool may_be_old = reply.status == 400 || reply.status == 401 || reply.status == 403;
    if (may_be_old && !std::exchange(is_renewed, true) && renew(own.credentials)) continue;
    // An endpoint that never answered is likely to be a wrong one.
    const double most = std::min({own.deadline, deadline_of_thread,
                                  reply.status == 0 && !was_reached_ ? 5.0 : own.deadline});
    const Seconds spent = Clock::now() - begin;
    const bool is_cancelled = call.is_cancelled && *call.is_cancelled;
    if (!is_temporary(reply) || is_cancelled || spent.count() + pause > most) {
      if (attempts > 0 && is_temporary(reply) && !reply.is_unreachable) {
        const std::string why =
            reply.status == 0
                ? reply.problem
                : concat("status ", reply.status, reply.code.empty() ? "" : ", ", reply.code);
        fail_call("s3", printable(call.place.path()), ": ", call.method, " failed ", attempts + 1,
                  " times in ", formatted("%.1f", spent.count()), " s, at last by ", why);
      }
      fail_reply(call, own, reply);
    }
    std::this_thread::sleep_for(Seconds(pause * random_share()));
    pause = std::min(pause * 2, 20.0);
  }
}

}  // namespace weft::s3

namespace weft {

StoreDeadline::StoreDeadline(double seconds)
    : before_(std::exchange(s3::deadline_of_thread, seconds)) {}

StoreDeadline::~StoreDeadline() { s3::deadline_of_thread = before_; }

}  // namespace weft
