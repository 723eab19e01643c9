// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "src/base/store/s3_store.h"
#include "weft/error.h"

namespace weft::s3 {

/// Requests that are under way at once; each holds one part in memory.
static constexpr size_t kUploads = 8;
static constexpr int64_t kPart = int64_t{8} << 20, kBlock = int64_t{4} << 20;
/// S3 takes 10,000.
static constexpr int64_t kMostParts = 9000;
/// Marks an object as made by one writer: the answer to its last request may be lost.
static constexpr const char* kTagHeader = "x-amz-meta-weft-upload";

namespace {

/// Parts of an object, which several threads send.
class Upload final : public StoreWriter {
 public:
  Upload(const std::string& path, int64_t head, int64_t bytes)
      : place_(place_of(path)), tag_(random_tag()), is_single_(head + bytes <= 2 * kPart) {
    const int64_t least = (head + bytes) / kMostParts;
    part_bytes_ = is_single_ ? bytes : std::max(kPart, (least + kBlock - 1) / kBlock * kBlock);
    current_.reserve(static_cast<size_t>(part_bytes_));
  }

  ~Upload() override {
    stop();
    if (id_.empty()) return;
    const StoreDeadline short_one(5);
    try {
      client().call(
          {.method = "DELETE", .place = place_, .query = {{"uploadId", id_}}, .accepted = {404}});
    } catch (const std::exception&) {
      // The next saver of the run aborts it.
    }
  }

  void write(std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      // A single object has no other part.
      const size_t room = static_cast<size_t>(part_bytes_) - current_.size();
      const auto piece = bytes.first(is_single_ ? bytes.size() : std::min(room, bytes.size()));
      current_.insert(current_.end(), piece.begin(), piece.end());
      bytes = bytes.subspan(piece.size());
      if (!is_single_ && std::ssize(current_) == part_bytes_) end_part();
    }
  }

  void finish(std::span<const std::byte> head) override {
    const bool has_parts = next_ > 1;
    if (has_parts && !current_.empty()) end_part();
    std::vector<std::byte>& rest = has_parts ? first_ : current_;
    rest.insert(rest.begin(), head.begin(), head.end());
    if (!has_parts) return finish_single(rest);
    enqueue(1, std::move(rest));
    wait_for_all();
    complete();
    id_.clear();
  }

 private:
  struct Part {
    int number;
    std::vector<std::byte> bytes;
  };

  static Client& client() { return Client::instance(); }

  void end_part() {
    std::vector<std::byte> bytes = std::exchange(current_, {});
    take_buffer();
    if (next_ == 1) {
      begin();
      // The head belongs before these.
      first_ = std::move(bytes);
    } else {
      enqueue(next_, std::move(bytes));
    }
    ++next_;
  }

  /// Reuses the memory of a part that was sent.
  void take_buffer() {
    const std::lock_guard lock(mutex_);
    if (!sent_.empty()) {
      current_ = std::move(sent_.back());
      sent_.pop_back();
    }
    current_.reserve(static_cast<size_t>(part_bytes_));
  }

  void begin() {
    const Reply reply = client().call({.method = "POST",
                                       .place = place_,
                                       .query = {{"uploads", ""}},
                                       .headers = {{kTagHeader, tag_}}});
    id_ = element(reply.text, "UploadId");
    if (id_.empty()) fail_call("s3", printable(place_.path()), ": the store gave no upload id");
  }

  void enqueue(int number, std::vector<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    if (threads_.size() < kUploads && waiting_.size() >= idle_) {
      threads_.emplace_back([this] { send_parts(); });
    }
    changed_.wait(lock, [&] { return waiting_.size() < 2 || error_; });
    if (error_) std::rethrow_exception(error_);
    waiting_.push_back({number, std::move(bytes)});
    changed_.notify_all();
  }

  void send_parts() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [&] { return !waiting_.empty() || ends_; });
      --idle_;
      if (waiting_.empty() || error_) return;
      Part part = std::move(waiting_.front());
      waiting_.pop_front();
      changed_.notify_all();
      lock.unlock();
      std::string etag;
      std::exception_ptr error;
      try {
        etag = sent(part);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      if (error && !error_) error_ = error;
      if (error) is_cancelled_ = true;
      if (!error) etags_[part.number] = etag;
      part.bytes.clear();
      sent_.push_back(std::move(part.bytes));
      changed_.notify_all();
    }
  }

  std::string sent(const Part& part) const {
    const Reply reply =
        client().call({.method = "PUT",
                       .place = place_,
                       .query = {{"partNumber", std::to_string(part.number)}, {"uploadId", id_}},
                       .body = part.bytes,
                       .has_hashes = true,
                       .is_cancelled = &is_cancelled_});
    return reply.header("etag");
  }

  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ssize(etags_) == next_ - 1 || error_; });
    if (error_) std::rethrow_exception(error_);
  }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      is_cancelled_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void finish_single(const std::vector<std::byte>& bytes) {
    const Pairs tag{{kTagHeader, tag_}};
    Call call{.method = "PUT",
              .place = place_,
              .headers = tag,
              .body = bytes,
              .has_hashes = true,
              .accepted = {412}};
    call.headers.emplace_back("if-none-match", "*");
    call.accepted.push_back(501);
    Reply reply = client().call(call);
    if (reply.status == 501) {
      check_free();
      call.headers = tag;
      reply = client().call(call);
    }
    check_made(reply);
  }

  void complete() {
    std::string xml = document();
    Call call{.method = "POST",
              .place = place_,
              .query = {{"uploadId", id_}},
              .headers = {{"if-none-match", "*"}},
              .body = std::as_bytes(std::span(xml)),
              .accepted = {400, 404, 412, 501}};
    Reply reply = client().call(call);
    if (reply.status == 501) {
      check_free();
      call.headers.clear();
      reply = client().call(call);
    }
    if (reply.status == 400 && reply.code == "InvalidPart") {
      // An answer to a part had a wrong ETag: the store knows the right one.
      list_parts();
      xml = document();
      call.body = std::as_bytes(std::span(xml));
      reply = client().call(call);
    }
    check_made(reply);
  }

  std::string document() const {
    std::string xml = "<CompleteMultipartUpload>";
    for (const auto& [number, etag] : etags_) {
      xml += concat("<Part><PartNumber>", number, "</PartNumber><ETag>", etag, "</ETag></Part>");
    }
    return xml + "</CompleteMultipartUpload>";
  }

  void list_parts() {
    std::string marker;
    do {
      Call call{.method = "GET", .place = place_, .query = {{"uploadId", id_}}};
      if (!marker.empty()) call.query.emplace_back("part-number-marker", marker);
      const Reply reply = client().call(call);
      for (const std::string_view part : elements(reply.text, "Part")) {
        const auto known = etags_.find(std::atoi(element(part, "PartNumber").c_str()));
        if (known != etags_.end()) known->second = element(part, "ETag");
      }
      const bool has_more = element(reply.text, "IsTruncated") == "true";
      marker = has_more ? element(reply.text, "NextPartNumberMarker") : "";
    } while (!marker.empty());
  }

  void check_free() const {
    if (Store::of(place_.path()).kind(place_.path()) != PathKind::missing) fail_exists();
  }

  [[noreturn]] void fail_exists() const {
    fail_call("s3", place_.path(), " exists, expected no object; nothing is overwritten");
  }

  /// An earlier attempt may have made the object: then it has this writer's tag.
  void check_made(const Reply& reply) const {
    if (reply.status / 100 == 2) return;
    const Reply there = client().call({.method = "GET",
                                       .place = place_,
                                       .headers = {{"range", "bytes=0-0"}},
                                       .accepted = {404, 416}});
    if (there.header(kTagHeader) == tag_) return;
    if (reply.status == 412) fail_exists();
    fail_call("s3", printable(place_.path()), ": the upload cannot be completed: ",
              reply.code.empty() ? concat("status ", reply.status) : reply.code,
              reply.code == "NoSuchUpload" ? "; another job aborted it" : "");
  }

  const Place place_;
  const std::string tag_;
  const bool is_single_;
  int64_t part_bytes_;
  /// The first part without its head, and the one that is being filled.
  std::vector<std::byte> first_, current_;
  int next_ = 1;
  std::string id_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Part> waiting_;
  std::vector<std::vector<std::byte>> sent_;
  std::map<int, std::string> etags_;
  std::vector<std::thread> threads_;
  std::exception_ptr error_;
  size_t idle_ = 0;
  bool ends_ = false;
  /// The parts under way are not sent again.
  std::atomic<bool> is_cancelled_ = false;
};

}  // namespace

}  // namespace weft::s3

namespace weft {

std::unique_ptr<StoreWriter> create_object(const std::string& path, int64_t head, int64_t bytes) {
  return std::make_unique<s3::Upload>(path, head, bytes);
}

}  // namespace weft
