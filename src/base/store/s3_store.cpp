// SPDX-License-Identifier: Apache-2.0
#include "src/base/store/s3_store.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <random>
#include <set>

#include "weft/error.h"

namespace weft::s3 {

static Client& client() { return Client::instance(); }

static std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string random_tag() {
  std::random_device random;
  return formatted("%08x%08x", random(), random());
}

std::string prefix_of(const Place& directory) {
  return directory.key.empty() ? "" : directory.key + "/";
}

/// The name after the last slash.
static std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

static std::string parent_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

/// The object whose existence hides a directory.
static Place marker_of(const std::string& directory) {
  return place_of(concat(parent_of(directory), '/', kHiddenPrefix, name_of(directory)));
}

/// Refuses a page that is not a complete answer of that name: it would list nothing.
static void check_listing(const Place& place, const Reply& reply, const char* name) {
  if (reply.text.find(concat("</", name, ">")) != std::string::npos) return;
  fail_call("s3", printable(place.path()), ": the answer to a listing is not a ", name,
            "; check that AWS_ENDPOINT_URL is the address of an S3 server");
}

Listing listing_of(const std::string& bucket, const std::string& prefix, bool has_delimiter,
                   int most) {
  Listing found;
  std::string token;
  do {
    Call call{"GET", {bucket, ""}, {{"list-type", "2"}, {"encoding-type", "url"}}};
    call.query.emplace_back("prefix", prefix);
    if (has_delimiter) call.query.emplace_back("delimiter", "/");
    if (most > 0) call.query.emplace_back("max-keys", std::to_string(most));
    if (!token.empty()) call.query.emplace_back("continuation-token", token);
    const Reply reply = client().call(call);
    check_listing({bucket, prefix}, reply, "ListBucketResult");
    for (const std::string_view object : elements(reply.text, "Contents")) {
      found.objects.emplace_back(unescaped_url(element(object, "Key")),
                                 std::atoll(element(object, "Size").c_str()));
      found.times.push_back(element(object, "LastModified"));
    }
    for (const std::string_view common : elements(reply.text, "CommonPrefixes")) {
      found.prefixes.push_back(unescaped_url(element(common, "Prefix")));
    }
    token = element(reply.text, "NextContinuationToken");
  } while (!token.empty() && most == 0);
  return found;
}

static bool has_object(const Place& place) {
  const Listing found = listing_of(place.bucket, place.key, false, 1);
  return !found.objects.empty() && found.objects[0].first == place.key;
}

PathKind S3Store::kind(const std::string& path) {
  const Place place = place_of(path);
  const Listing below = listing_of(place.bucket, prefix_of(place), false, 1);
  if (place.key.empty()) return PathKind::directory;
  if (!below.objects.empty() && !has_object(marker_of(place.path()))) return PathKind::directory;
  return has_object(place) ? PathKind::file : PathKind::missing;
}

std::vector<StoredName> S3Store::list(const std::string& directory, std::error_code& error) {
  error.clear();
  const Place place = place_of(directory);
  const std::string prefix = prefix_of(place);
  const Listing found = listing_of(place.bucket, prefix, true);
  std::vector<StoredName> names;
  std::set<std::string> hidden;
  for (const auto& [key, bytes] : found.objects) {
    const std::string name = key.substr(prefix.size());
    if (name.empty()) continue;  // a placeholder, which some programs make for a directory
    names.push_back({name, PathKind::file, bytes});
    if (name.starts_with(kHiddenPrefix)) hidden.insert(name.substr(kHiddenPrefix.size()));
  }
  for (const std::string& key : found.prefixes) {
    const std::string name = key.substr(prefix.size(), key.size() - prefix.size() - 1);
    if (!hidden.contains(name)) names.push_back({name, PathKind::directory});
  }
  return names;
}

/// The text of an object and its ETag; nothing when it is missing.
static std::optional<std::pair<std::string, std::string>> text_of(const Place& place) {
  const Call call{.method = "GET", .place = place, .accepted = {404}};
  Reply reply = client().call(call);
  if (reply.status != 404) return {{std::move(reply.text), reply.header("etag")}};
  if (reply.code == "NoSuchBucket") client().call({.method = "GET", .place = place});
  return {};
}

std::optional<std::string> S3Store::get(const std::string& path) {
  const auto found = text_of(place_of(path));
  return found ? std::optional(found->first) : std::nullopt;
}

void S3Store::put(const std::string& path, std::string_view text) {
  client().call({.method = "PUT", .place = place_of(path), .body = bytes_of(text)});
}

/// A store refused a condition that it does not know.
static std::atomic<bool> lacks_conditions = false;

/// Puts under a condition; false when that does not hold. The answer to an earlier attempt may have
/// been lost (libcurl itself sends again where a connection was closed): the text decides whether
/// that made the object.
static bool put_if(const Place& place, std::string_view text, const char* header,
                   const std::string& value) {
  const Reply reply = client().call({.method = "PUT",
                                     .place = place,
                                     .headers = {{header, value}},
                                     .body = bytes_of(text),
                                     .accepted = {404, 412, 501}});
  if (reply.status / 100 == 2) return true;
  if (reply.code == "NoSuchBucket") client().call({.method = "GET", .place = place});
  if (reply.status != 501) {
    const auto now = text_of(place);
    return now && now->first == text;
  }
  // A store without conditional writes: `check_conditional_writes` warns.
  lacks_conditions = true;
  const auto now = text_of(place);
  const bool holds = value == "*" ? !now : now && now->second == value;
  if (holds) client().call({.method = "PUT", .place = place, .body = bytes_of(text)});
  return holds;
}

bool S3Store::put_new(const std::string& path, std::string_view text) {
  return put_if(place_of(path), text, "if-none-match", "*");
}

bool S3Store::update(const std::string& path, const Edit& edit) {
  const Place place = place_of(path);
  const auto now = text_of(place);
  const std::optional<std::string> text = now ? edit(now->first) : std::nullopt;
  return text && put_if(place, *text, "if-match", now->second);
}

void S3Store::remove(const std::string& path) {
  client().call({.method = "DELETE", .place = place_of(path), .accepted = {404}});
}

void S3Store::remove_directory(const std::string& path) {
  std::string directory = place_of(path).path();
  const std::string name = name_of(directory);
  if (name.starts_with(kHiddenPrefix)) {
    directory = concat(parent_of(directory), '/', name.substr(kHiddenPrefix.size()));
  }
  const Place place = place_of(directory), marker = marker_of(directory);
  put(marker.path(), "removed\n");
  for (const auto& [key, bytes] : listing_of(place.bucket, prefix_of(place), false).objects) {
    remove(Place{place.bucket, key}.path());
  }
  remove(marker.path());
}

/// Seconds since 1970 of "2026-11-29T04:44:14.000Z".
static int64_t seconds_of(const std::string& text) {
  std::tm parts{};
  return ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) ? ::timegm(&parts) : 0;
}

int64_t S3Store::written(const std::string& directory) {
  const Place place = place_of(directory);
  int64_t latest = 0;
  for (const std::string& time : listing_of(place.bucket, prefix_of(place), false).times) {
    latest = std::max(latest, seconds_of(time));
  }
  return latest;
}

void S3Store::make_directories(const std::string&) {}

}  // namespace weft::s3

namespace weft {

std::vector<std::pair<std::string, int64_t>> objects_below(const std::string& directory) {
  const s3::Place place = s3::place_of(directory);
  const std::string prefix = s3::prefix_of(place);
  std::vector<std::pair<std::string, int64_t>> found;
  for (const auto& [key, bytes] : s3::listing_of(place.bucket, prefix, false).objects) {
    const std::string rest = concat('/', key.substr(prefix.size()));
    if (rest.find("/.") != rest.npos || rest.ends_with('/')) continue;
    found.emplace_back(s3::Place{place.bucket, key}.path(), bytes);
  }
  std::ranges::sort(found);
  return found;
}

void abort_uploads(const std::string& directory,
                   const std::function<bool(const std::string& name)>& goes) {
  const s3::Place place = s3::place_of(directory);
  const std::string prefix = s3::prefix_of(place);
  std::string key_marker, id_marker;
  do {
    s3::Call call{"GET", {place.bucket, ""}, {{"uploads", ""}, {"prefix", prefix}}};
    call.query.emplace_back("encoding-type", "url");
    if (!key_marker.empty()) {
      call.query.emplace_back("key-marker", key_marker);
      call.query.emplace_back("upload-id-marker", id_marker);
    }
    const s3::Reply reply = s3::client().call(call);
    s3::check_listing(place, reply, "ListMultipartUploadsResult");
    for (const std::string_view upload : s3::elements(reply.text, "Upload")) {
      const std::string key = s3::unescaped_url(s3::element(upload, "Key"));
      if (!key.starts_with(prefix)) continue;
      const std::string rest = key.substr(prefix.size());
      if (!goes(rest.substr(0, rest.find('/')))) continue;
      s3::client().call({.method = "DELETE",
                         .place = {place.bucket, key},
                         .query = {{"uploadId", s3::element(upload, "UploadId")}},
                         .accepted = {404}});
    }
    const bool has_more = s3::element(reply.text, "IsTruncated") == "true";
    key_marker = has_more ? s3::unescaped_url(s3::element(reply.text, "NextKeyMarker")) : "";
    id_marker = s3::element(reply.text, "NextUploadIdMarker");
  } while (!key_marker.empty());
}

void check_conditional_writes(const std::string& directory) {
  const std::string path = concat(directory, "/.conditional-", s3::random_tag());
  Store& store = Store::of(path);
  const bool is_new = store.put_new(path, "first\n"), is_again = store.put_new(path, "second\n");
  const bool is_replaced = store.update(path, [&](const std::string&) {
    store.put(path, "third\n");
    return "fourth\n";
  });
  store.remove(path);
  if (is_new && !is_again && !is_replaced && !s3::lacks_conditions) return;
  warn("s3: ", printable(directory), ": the store ignores conditional writes (",
       is_new && !is_again && !s3::lacks_conditions ? "If-Match" : "If-None-Match",
       "); two jobs that begin to save there at once are not kept apart");
}

}  // namespace weft
