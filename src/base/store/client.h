// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/store/credentials.h"
#include "src/base/store/http.h"

namespace weft::s3 {

/// "s3://bucket/key": the key has no slash at its end, and is empty for the bucket itself.
struct Place {
  std::string bucket, key;
  std::string path() const { return "s3://" + bucket + (key.empty() ? "" : "/" + key); }
};
Place place_of(const std::string& path);

/// A request to a bucket.
struct Call {
  std::string method;
  Place place;
  Pairs query = {};
  Pairs headers = {};
  std::span<const std::byte> body = {};
  /// Receives the bytes of the answer, which must be exactly so many.
  std::span<std::byte> into = {};
  /// The body carries hashes that its readers check: it is not hashed again to be signed.
  bool has_hashes = false;
  /// Statuses besides those of success that the caller handles.
  std::vector<int> accepted = {};
  /// Once true, the request is not repeated.
  const std::atomic<bool>* is_cancelled = nullptr;
};

struct Reply : HttpAnswer {
  /// The error's code in the answer: "NoSuchKey".
  std::string code = {};
};

/// Sends signed requests, and again after pauses that grow while the store is busy, the network
/// fails or an answer is cut, until the deadline. Several threads may call at once.
class Client {
 public:
  /// That of the environment as it is at the first call.
  static Client& instance();

  /// std::runtime_error, one sentence, for an answer that is neither success nor accepted.
  Reply call(const Call& call);

 private:
  Settings settings();
  /// Reads the files again, for example after a session has ended. True where that changed them.
  bool renew(const Credentials& used);
  Reply attempt(const Call& call, const Settings& settings, double seconds);

  std::mutex mutex_;
  std::optional<Settings> settings_;
  std::atomic<bool> was_reached_ = false;
};

/// The text of the first element `name` of an XML document, unescaped; "" when there is none.
std::string element(std::string_view xml, std::string_view name);
/// The contents of all elements `name`, which do not nest, as they are.
std::vector<std::string_view> elements(std::string_view xml, std::string_view name);
std::string unescaped_url(std::string_view text);

}  // namespace weft::s3
