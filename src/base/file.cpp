// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "weft/error.h"
#include "weft/extend/store.h"

namespace weft {

static constexpr int kFirstFree = STDERR_FILENO + 1;

void open_standard_descriptors() noexcept {
  for (int descriptor = 0; descriptor < kFirstFree; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is this one, unless another thread opens something meanwhile.
    const int opened = ::open("/dev/null", descriptor == STDIN_FILENO ? O_RDONLY : O_WRONLY);
    if (opened >= kFirstFree) ::close(opened);
  }
}

int above_standard(int descriptor) noexcept {
  if (descriptor < 0 || descriptor >= kFirstFree) return descriptor;
  const int moved = ::fcntl(descriptor, F_DUPFD_CLOEXEC, kFirstFree);
  const int reason = errno;
  ::close(descriptor);
  errno = reason;
  return moved;
}

void OwnedDescriptor::close() {
  if (descriptor_ >= 0) ::close(release());
}

OwnedDescriptor opened_descriptor(const std::string& path, int flags, unsigned mode) {
  return OwnedDescriptor(above_standard(static_cast<int>(
      TEMP_FAILURE_RETRY(::open(path.c_str(), flags | O_CLOEXEC | O_NOCTTY, mode)))));
}

struct File::Body {
  std::string what;
  std::string path;
  OwnedDescriptor descriptor;
  /// Set for an object, which has no descriptor.
  std::shared_ptr<const StoreReader> object = {};
  int64_t size = 0;
  std::pair<uint64_t, uint64_t> identity;
  std::atomic<int64_t> bytes_read{0};

  Body(std::string asking, std::string name) : what(std::move(asking)), path(std::move(name)) {}
};

static const char* kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// Fails by the system where it has too little left; returns where the path is wrong.
static void check_system(const std::string& what, const std::string& path, int reason) {
  for (const int of_system : {EMFILE, ENFILE, ENOMEM, EIO, ENOSPC, EDQUOT}) {
    if (reason == of_system) fail_call("open", what, ": ", path, ": ", std::strerror(reason));
  }
}

File::File(const std::string& what, const std::string& path)
    : body_(std::make_shared<Body>(what, path)) {
  if (is_object_path(path)) {
    body_->object = open_object(what, path);
    body_->size = body_->object->size();
    body_->identity = {body_->object->version(), 0};
    return;
  }
  // Without O_NONBLOCK, opening a pipe without a writer blocks indefinitely.
  body_->descriptor = opened_descriptor(path, O_RDONLY | O_NONBLOCK);
  if (body_->descriptor.get() < 0) {
    const int reason = errno;
    check_system(what, path, reason);
    fail(what, ": cannot open ", path, ": ", std::strerror(reason));
  }
  struct stat status {};
  if (::fstat(body_->descriptor.get(), &status) != 0) {
    fail_call("fstat", path, ": ", std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(what, ": ", path, " is ", kind_of_file(status.st_mode), ", expected a file");
  }
  body_->size = status.st_size;
  body_->identity = {status.st_dev, status.st_ino};
}

const std::string& File::path() const { return body_->path; }

int64_t File::size() const { return body_->size; }

std::pair<uint64_t, uint64_t> File::identity() const { return body_->identity; }

int64_t File::bytes_read() const { return body_->bytes_read.load(std::memory_order_relaxed); }

void File::read(int64_t offset, std::span<std::byte> into) const {
  if (body_->object) {
    const auto end = offset + static_cast<int64_t>(into.size());
    if (end > body_->size) {
      fail_call("read", body_->what, ": ", body_->path, " ends at byte ", body_->size,
                ", but bytes ", offset, " to ", end, " are wanted");
    }
    body_->object->read(offset, into);
    body_->bytes_read.fetch_add(std::ssize(into), std::memory_order_relaxed);
    return;
  }
  size_t done = 0;
  while (done < into.size()) {
    const auto at = static_cast<off_t>(offset) + static_cast<off_t>(done);
    const ssize_t got =
        ::pread(body_->descriptor.get(), into.data() + done, into.size() - done, at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_call("pread", body_->path, ": ", std::strerror(errno));
    if (got == 0) {
      fail_call("pread", body_->what, ": ", body_->path,
                done > 0 ? " ends at byte " : " ends at or before byte ", at, ", but bytes ",
                offset, " to ", offset + static_cast<int64_t>(into.size()),
                " are wanted; it was cut since it was opened with ", body_->size, " bytes");
    }
    done += static_cast<size_t>(got);
  }
  body_->bytes_read.fetch_add(static_cast<int64_t>(done), std::memory_order_relaxed);
}

std::string File::text(int64_t offset, int64_t bytes) const {
  std::string text(static_cast<size_t>(bytes), '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_file(const std::string& what, const std::string& path, int64_t most) {
  const File file(what, path);
  if (file.size() > most) {
    fail(what, ": ", path, " has ", file.size(), " bytes, expected at most ", most);
  }
  return file.text();
}

static constexpr size_t kMaxJsonDepth = 32;

/// Checks each token once and builds no document, so that hostile input costs only its own size.
class JsonCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonCheck(const std::string& what, const std::string& source) : what_(what), source_(source) {}

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool string(string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return scalar() && enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      fail(what_, ": ", source_, ": the key ", in_quotes(name), " stands twice in one object");
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...; last read: '...'":
    // the part after "last read" repeats the text, which may be long.
    if (const size_t start = reason.find("] "); start != reason.npos)
      reason.remove_prefix(start + 2);
    reason = reason.substr(0, std::min(reason.find("; last read"), size_t{200}));
    fail(what_, ": ", source_, ": not valid JSON: ", reason);
  }

 private:
  bool scalar() const {
    if (keys_.empty()) fail(what_, ": ", source_, ": the JSON value is not an object");
    return true;
  }
  bool enter() {
    if (keys_.size() == kMaxJsonDepth) {
      fail(what_, ": ", source_, ": the JSON is more than ", kMaxJsonDepth, " levels deep");
    }
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& what_;
  const std::string& source_;
  std::vector<std::unordered_set<std::string>> keys_;
};

void check_json(const std::string& what, const std::string& source, std::string_view text) {
  // The parser treats a zero byte as the end of the text and skips a byte order mark.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    fail(what, ": ", source, ": not valid JSON: a zero byte at byte ", zero);
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(what, ": ", source, ": not valid JSON: it starts with a byte order mark");
  }
  JsonCheck check(what, source);
  nlohmann::json::sax_parse(text, &check);
}

std::string read_json(const std::string& what, const std::string& path, int64_t max_bytes) {
  std::string text = read_file(what, path, max_bytes);
  if (text.empty()) fail(what, ": ", path, " is empty, expected a JSON object");
  check_json(what, path, text);
  return text;
}

OutputFile::OutputFile(std::string what, std::string path, Mode mode)
    : what_(std::move(what)), path_(std::move(path)) {
  const bool is_own = mode == Mode::replace_own;
  const int flags = mode == Mode::append ? O_APPEND : O_TRUNC | (is_own ? O_NOFOLLOW : 0);
  open_standard_descriptors();
  descriptor_ = opened_descriptor(path_, O_WRONLY | O_CREAT | flags, is_own ? 0600 : 0666);
  if (descriptor_.get() >= 0) return;
  const int reason = errno;
  check_system(what_, path_, reason);
  fail(what_, ": ", in_quotes(path_), " cannot be written: ", std::strerror(reason));
}

void OutputFile::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(descriptor_.get(), text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_call("write", what_, ": ", in_quotes(path_), ": ", std::strerror(errno));
    text.remove_prefix(static_cast<size_t>(done));
  }
}

void OutputFile::close() {
  // Linux frees the descriptor even where it reports an interrupted call.
  if (::close(descriptor_.release()) == 0 || errno == EINTR) return;
  fail_call("close", what_, ": ", in_quotes(path_), ": ", std::strerror(errno));
}

}  // namespace weft
