// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <list>
#include <mutex>

#include "src/base/store/client.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/extend/hash.h"
#include "weft/extend/store.h"

namespace weft::s3 {

/// The first bytes of an object are read when it is opened: most headers are within.
static constexpr int64_t kOpened = int64_t{64} << 10;
/// Reads of fewer bytes go through a file in the system's folder for temporary ones.
static constexpr size_t kDirect = size_t{4} << 20;
/// The bytes of a fetch for a read at a random place, and at most where reads follow each other.
static constexpr int64_t kPiece = int64_t{256} << 10, kMostPieces = 16;

static void fetch(const Place& place, const std::string& etag, int64_t offset,
                  std::span<std::byte> into) {
  const int64_t last = offset + static_cast<int64_t>(into.size()) - 1;
  Call call{.method = "GET", .place = place, .into = into, .accepted = {404, 412}};
  call.headers.emplace_back("range", concat("bytes=", offset, '-', last));
  if (!etag.empty()) call.headers.emplace_back("if-match", etag);
  const Reply reply = Client::instance().call(call);
  const std::string range = reply.header("content-range");
  if (!range.empty() && !range.starts_with(concat("bytes ", offset, '-', last, '/'))) {
    fail_call("s3", printable(place.path()), ": the store sent the range ", printable(range),
              ", expected bytes ", offset, " to ", last);
  }
  const bool is_other = reply.status != 412 && reply.status != 404 &&
                        reply.header("etag") != etag && !reply.header("etag").empty();
  if (reply.status == 404) fail_call("s3", printable(place.path()), " was removed meanwhile");
  if (reply.status == 412 || is_other) {
    fail_call("s3", printable(place.path()), " was replaced by another object meanwhile");
  }
}

namespace {

/// The pieces of an object that were read, in a file without a name.
class Cache {
 public:
  Cache(Place place, std::string etag, int64_t size)
      : place_(std::move(place)),
        etag_(std::move(etag)),
        size_(size),
        has_(static_cast<size_t>((size + kPiece - 1) / kPiece)) {
    std::string path = (std::filesystem::temp_directory_path() / "weft-object-XXXXXX").string();
    file_ = OwnedDescriptor(above_standard(::mkostemp(path.data(), O_CLOEXEC)));
    if (file_.get() < 0) fail_call("mkstemp", path, ": ", std::strerror(errno));
    ::unlink(path.c_str());
  }

  bool is_of(const Place& place, const std::string& etag) const {
    return place_.key == place.key && place_.bucket == place.bucket && etag_ == etag;
  }

  void read(int64_t offset, std::span<std::byte> into) {
    const int64_t end = offset + static_cast<int64_t>(into.size());
    for (int64_t piece = offset / kPiece; piece * kPiece < end; ++piece) {
      const int64_t count = missing_from(piece);
      if (count > 0) load(piece, count);
    }
    while (!into.empty()) {
      const ssize_t got =
          TEMP_FAILURE_RETRY(::pread(file_.get(), into.data(), into.size(), offset));
      if (got <= 0) fail_call("pread", "the cache of ", place_.path());
      into = into.subspan(static_cast<size_t>(got));
      offset += got;
    }
  }

 private:
  /// Returns how many pieces to fetch from `first` on: 0 when it was fetched, one at a random
  /// place, and more after a piece that was fetched, because the object is being read through.
  int64_t missing_from(int64_t first) {
    const std::lock_guard lock(mutex_);
    const auto has = [&](int64_t piece) { return has_[static_cast<size_t>(piece)]; };
    if (has(first)) return 0;
    const int64_t most = first > 0 && has(first - 1) ? kMostPieces : 1;
    int64_t count = 1;
    while (count < most && first + count < std::ssize(has_) && !has(first + count)) ++count;
    return count;
  }

  /// Several threads may fetch the same pieces, which have the same bytes.
  void load(int64_t first, int64_t count) {
    const int64_t begin = first * kPiece, end = std::min(size_, (first + count) * kPiece);
    std::vector<std::byte> bytes(static_cast<size_t>(end - begin));
    fetch(place_, etag_, begin, bytes);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t put =
          TEMP_FAILURE_RETRY(::pwrite(file_.get(), bytes.data() + done, bytes.size() - done,
                                      static_cast<off_t>(begin) + static_cast<off_t>(done)));
      if (put <= 0) {
        fail_call("pwrite", "the cache of ", place_.path(), " in ",
                  std::filesystem::temp_directory_path().string(), ": ", std::strerror(errno),
                  "; set TMPDIR to a folder with more space");
      }
      done += static_cast<size_t>(put);
    }
    const std::lock_guard lock(mutex_);
    std::fill_n(has_.begin() + first, count, true);
  }

  const Place place_;
  const std::string etag_;
  const int64_t size_;
  std::mutex mutex_;
  std::vector<bool> has_;
  OwnedDescriptor file_;
};

/// Caches of this process, which its ranks share; the latest first.
class Caches {
 public:
  std::shared_ptr<Cache> of(const Place& place, const std::string& etag, int64_t size) {
    constexpr size_t kMost = 128;
    const std::lock_guard lock(mutex_);
    auto found =
        std::ranges::find_if(all_, [&](const auto& cache) { return cache->is_of(place, etag); });
    if (found == all_.end()) {
      if (all_.size() == kMost) all_.pop_back();
      all_.push_front(std::make_shared<Cache>(place, etag, size));
      found = all_.begin();
    }
    all_.splice(all_.begin(), all_, found);
    return all_.front();
  }

 private:
  std::mutex mutex_;
  std::list<std::shared_ptr<Cache>> all_;
};

class Reader final : public StoreReader {
 public:
  Reader(const std::string& what, const std::string& path) : place_(place_of(path)) {
    const Reply reply =
        Client::instance().call({.method = "GET",
                                 .place = place_,
                                 .headers = {{"range", concat("bytes=0-", kOpened - 1)}},
                                 .accepted = {404, 416}});
    if (reply.status == 404) {
      if (reply.code == "NoSuchBucket") Client::instance().call({.method = "GET", .place = place_});
      throw MissingObject(concat(what, ": cannot open ", printable(path), ": no such object"));
    }
    etag_ = reply.header("etag");
    if (reply.status == 416) return;  // it has no byte
    start_ = reply.text;
    const std::string range = reply.header("content-range");
    const size_t slash = range.rfind('/');
    size_ = slash == range.npos ? std::ssize(start_) : std::atoll(range.c_str() + slash + 1);
    if (std::ssize(start_) != std::min(size_, kOpened) && slash != range.npos) {
      fail_call("s3", what, ": ", printable(path), ": the store sent ", start_.size(), " of ",
                size_, " bytes, expected the first ", kOpened);
    }
  }

  int64_t size() const override { return size_; }
  uint64_t version() const override { return xxh3_of(std::as_bytes(std::span(etag_))); }

  void read(int64_t offset, std::span<std::byte> into) const override {
    if (into.empty()) return;
    const int64_t known = std::ssize(start_) - offset;
    const bool begins = known > 0;
    if (begins) {
      const size_t bytes = std::min(static_cast<size_t>(known), into.size());
      std::memcpy(into.data(), start_.data() + offset, bytes);
      into = into.subspan(bytes);
      offset += static_cast<int64_t>(bytes);
    }
    if (into.empty()) return;
    if (begins || into.size() >= kDirect) return fetch(place_, etag_, offset, into);
    static auto* const caches = new Caches;
    std::call_once(once_, [&] { cache_ = caches->of(place_, etag_, size_); });
    cache_->read(offset, into);
  }

 private:
  const Place place_;
  std::string etag_, start_;
  int64_t size_ = 0;
  mutable std::once_flag once_;
  mutable std::shared_ptr<Cache> cache_;
};

}  // namespace

}  // namespace weft::s3

namespace weft {

std::shared_ptr<const StoreReader> open_object(const std::string& what, const std::string& path) {
  return std::make_shared<s3::Reader>(what, path);
}

}  // namespace weft
