// SPDX-License-Identifier: Apache-2.0
#include "src/base/store/http.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "src/base/loaded_library.h"
#include "weft/error.h"

namespace weft::s3 {

static constexpr LoadedLibrary kLibraries[] = {{"libcurl.so.4", "/usr/lib/x86_64-linux-gnu"},
                                               {"libcurl-gnutls.so.4", "/usr/lib"}};

namespace {

struct Handle;
struct List;

// Numbers of libcurl's binary interface, which only grows since libcurl.so.4 (2006). No header is
// needed to build.
enum Option : int {
  kTimeoutConnect = 78,
  kLowSpeedLimit = 19,
  kLowSpeedTime = 20,
  kHttpGet = 80,
  kBufferSize = 98,
  kNoSignal = 99,
  kTimeoutMs = 155,
  kKeepAlive = 213,
  kPathAsIs = 234,
  kUploadBufferSize = 280,
  kWriteData = 10001,
  kUrl = 10002,
  kErrorBuffer = 10010,
  kPostFields = 10015,
  kHttpHeader = 10023,
  kHeaderData = 10029,
  kCustomRequest = 10036,
  kCaInfo = 10065,
  kWriteFunction = 20011,
  kHeaderFunction = 20079,
  kPostFieldSize = 30120
};
constexpr int kResponseCode = 0x200000 + 2;
constexpr int kGlobalAll = 3;
constexpr size_t kErrorBytes = 256;

/// Codes after which another attempt cannot help: a protocol, a URL, an answer that is longer than
/// was asked for, certificates.
constexpr int kFinal[] = {1, 3, 4, 23, 58, 59, 60, 77, 83, 90, 91};
/// The receiver refused bytes.
constexpr int kWriteError = 23;
/// The host is unknown, or no process listens.
constexpr int kUnreachable[] = {5, 6, 7};

/// The functions of the library that was found.
struct Curl {
  Handle* (*init)();
  int (*set)(Handle*, int, ...);
  int (*perform)(Handle*);
  int (*get)(Handle*, int, ...);
  void (*reset)(Handle*);
  List* (*append)(List*, const char*);
  void (*free_list)(List*);
  const char* (*words)(int);
};

const LoadedLibrary& found_library() {
  for (const LoadedLibrary& library : kLibraries) {
    if (library.can_be_loaded()) return library;
  }
  fail_call("s3",
            "neither libcurl.so.4 nor libcurl-gnutls.so.4 can be loaded, expected one of "
            "them; install the package libcurl4");
}

const Curl& curl() {
  static const Curl loaded = [] {
    const LoadedLibrary& library = found_library();
    const auto load = [&]<class Function>(Function*& function, const char* name) {
      function = reinterpret_cast<Function*>(library.symbol(name));
    };
    Curl made{};
    int (*global_init)(long) = nullptr;
    load(global_init, "curl_global_init");
    load(made.init, "curl_easy_init");
    load(made.set, "curl_easy_setopt");
    load(made.perform, "curl_easy_perform");
    load(made.get, "curl_easy_getinfo");
    load(made.reset, "curl_easy_reset");
    load(made.append, "curl_slist_append");
    load(made.free_list, "curl_slist_free_all");
    load(made.words, "curl_easy_strerror");
    if (const int code = global_init(kGlobalAll); code != 0) {
      fail_call("curl_global_init", made.words(code));
    }
    return made;
  }();
  return loaded;
}

/// Handles keep their connections open. They are never closed: a process may end in any thread, and
/// a forked one must not use, nor end, the connections of its parent.
class Handles {
 public:
  Handle* take() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(process_, ::getpid()) != ::getpid()) free_.clear();
    if (free_.empty()) return curl().init();
    Handle* const handle = free_.back();
    free_.pop_back();
    return handle;
  }
  void give_back(Handle* handle) {
    curl().reset(handle);
    const std::lock_guard lock(mutex_);
    free_.push_back(handle);
  }

 private:
  std::mutex mutex_;
  std::vector<Handle*> free_;
  pid_t process_ = ::getpid();
};

Handles& handles() {
  static auto* const all = new Handles;
  return *all;
}

/// Receives an answer in the library's callbacks.
struct Receiver {
  const HttpRequest& request;
  HttpAnswer& answer;
  int status = 0;

  static size_t header(const char* text, size_t size, size_t count, void* own) {
    auto& [request, answer, status] = *static_cast<Receiver*>(own);
    const std::string_view line(text, size * count);
    if (line.starts_with("HTTP/")) {
      const size_t space = line.find(' ');
      status = space == line.npos ? 0 : std::atoi(std::string(line.substr(space + 1)).c_str());
      answer.headers.clear();
    } else if (const size_t colon = line.find(':'); colon != line.npos) {
      std::string name(line.substr(0, colon));
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      std::string_view value = line.substr(colon + 1);
      while (!value.empty() && std::isspace(static_cast<unsigned char>(value.front())))
        value.remove_prefix(1);
      while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back())))
        value.remove_suffix(1);
      answer.headers[name] = value;
    }
    return line.size();
  }

  static size_t body(const char* text, size_t size, size_t count, void* own) {
    auto& [request, answer, status] = *static_cast<Receiver*>(own);
    constexpr size_t kMostText = size_t{64} << 20;
    const size_t bytes = size * count;
    if (status / 100 == 2 && !request.into.empty()) {
      if (bytes > request.into.size() - answer.received) return 0;
      std::memcpy(request.into.data() + answer.received, text, bytes);
      answer.received += bytes;
    } else {
      if (bytes > kMostText - std::min(kMostText, answer.text.size())) return 0;
      answer.text.append(text, bytes);
    }
    return bytes;
  }
};

}  // namespace

static void set_options(Handle* handle, const HttpRequest& request, List* headers,
                        Receiver& receiver, char* problem) {
  const auto set = [&](Option option, auto value) { curl().set(handle, option, value); };
  set(kUrl, request.url.c_str());
  set(kPathAsIs, 1L);
  set(kNoSignal, 1L);
  set(kKeepAlive, 1L);
  set(kTimeoutConnect, 10L);
  // A transfer fails below one byte a second for so many seconds.
  set(kLowSpeedLimit, 1L);
  set(kLowSpeedTime, 30L);
  set(kTimeoutMs, static_cast<long>(std::min(request.seconds, 1e6) * 1e3));
  set(kBufferSize, 512L << 10);
  set(kUploadBufferSize, 512L << 10);
  set(kErrorBuffer, problem);
  set(kHttpHeader, headers);
  set(kHeaderFunction, &Receiver::header);
  set(kHeaderData, &receiver);
  set(kWriteFunction, &Receiver::body);
  set(kWriteData, &receiver);
  if (!request.ca_bundle.empty()) set(kCaInfo, request.ca_bundle.c_str());
  if (request.method == "GET") {
    set(kHttpGet, 1L);
    return;
  }
  if (request.method == "PUT" || request.method == "POST") {
    set(kPostFieldSize, static_cast<int64_t>(request.body.size()));
    set(kPostFields,
        request.body.empty() ? "" : reinterpret_cast<const char*>(request.body.data()));
  }
  set(kCustomRequest, request.method.c_str());
}

HttpAnswer send(const HttpRequest& request) {
  HttpAnswer answer;
  Receiver receiver{request, answer};
  const std::unique_ptr<Handle, void (*)(Handle*)> handle(
      handles().take(), [](Handle* used) { handles().give_back(used); });
  List* headers = nullptr;
  const auto add = [&](const std::string& line) { headers = curl().append(headers, line.c_str()); };
  // curl adds these headers unless they are cleared.
  for (const char* none : {"Expect:", "Content-Type:", "Accept:"}) add(none);
  for (const auto& [name, value] : request.headers) {
    add(value.empty() ? name + ";" : concat(name, ": ", value));
  }
  const std::unique_ptr<List, void (*)(List*)> owner(headers, curl().free_list);
  std::array<char, kErrorBytes> problem{};
  set_options(handle.get(), request, headers, receiver, problem.data());
  const int code = curl().perform(handle.get());
  if (code != 0) {
    answer.problem = code == kWriteError ? "the store sent more than was asked for"
                     : problem[0]        ? problem.data()
                                         : curl().words(code);
    answer.is_final = std::ranges::count(kFinal, code) > 0;
    answer.is_unreachable = std::ranges::count(kUnreachable, code) > 0;
    return answer;
  }
  long status = 0;
  curl().get(handle.get(), kResponseCode, &status);
  answer.status = static_cast<int>(status);
  return answer;
}

}  // namespace weft::s3
