// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program that saves: lets the k-th system call that a rank makes below a
// directory fail, or the machine lose its power there. Environment:
//   WEFT_CRASH_ROOT   the directory
//   WEFT_CRASH        <kind>:<k>:<ranks>, ranks as a mask; kinds:
//     kill            the process is killed before the call
//     eio enospc eintr short   the call fails so, once; short: half is written
//     dead            this and all later calls of the rank fail
//     lose_writes     killed, and what was written and not synced is zeros
//     lose_names      killed, and names that were made and not synced are gone
//     lose_all        both
//   WEFT_CRASH_ONLY   write or sync: only such calls count and fail
//   WEFT_CRASH_COUNT  a file that gets the number of calls of each rank at exit
//   WEFT_CRASH_PROCESS  set: every thread of the process is the rank that a launcher gave the
//   process,
//                     or rank 0. Without it only threads that call weft_crash_rank have a rank.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace fs = std::filesystem;

thread_local int rank_of_thread = -1;

int rank_of_process() {
  if (!std::getenv("WEFT_CRASH_PROCESS")) return -1;
  for (const char* name : {"WEFT_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (const char* text = std::getenv(name)) return std::atoi(text);
  }
  return 0;
}

int own_rank() {
  static const int of_process = rank_of_process();
  return rank_of_thread >= 0 ? rank_of_thread : of_process;
}

/// The shim's own calls pass.
thread_local bool is_inside = false;

/// The kind of the call under way, for WEFT_CRASH_ONLY.
thread_local std::string_view kind_of_call;

/// A name that was made: undone when the power goes before its directory is synced.
struct MadeName {
  std::string path, was, directory;
  bool is_directory;
};

struct Shim {
  std::mutex mutex;
  std::string root, kind, only;
  int k = -1, ranks = 0;
  std::map<int, int> calls;
  std::map<int, std::string> open_files;
  std::map<std::string, bool> is_dirty;
  std::vector<MadeName> names;

  Shim() {
    if (const char* text = std::getenv("WEFT_CRASH_ROOT")) root = text;
    if (const char* text = std::getenv("WEFT_CRASH_ONLY")) only = text;
    if (const char* text = std::getenv("WEFT_CRASH")) {
      char word[32] = {};
      if (std::sscanf(text, "%31[a-z_]:%d:%d", word, &k, &ranks) == 3) kind = word;
    }
  }
  ~Shim() {
    const char* path = std::getenv("WEFT_CRASH_COUNT");
    if (!path) return;
    is_inside = true;
    if (FILE* file = std::fopen(path, "w")) {
      for (const auto& [rank, count] : calls) std::fprintf(file, "%d %d\n", rank, count);
      std::fclose(file);
    }
  }

  bool is_below(const char* path) const {
    return !root.empty() && std::strncmp(path, root.c_str(), root.size()) == 0;
  }
};

Shim& shim() {
  static Shim* one = new Shim;
  static const struct Report {
    ~Report() { one->~Shim(); }
  } report;
  return *one;
}

void lose_writes(Shim& state) {
  for (const auto& [path, dirty] : state.is_dirty) {
    std::error_code error;
    const auto size = fs::file_size(path, error);
    if (!dirty || error) continue;
    fs::resize_file(path, 0, error);
    fs::resize_file(path, size, error);
  }
}

void lose_names(Shim& state) {
  for (size_t i = state.names.size(); i-- > 0;) {
    const MadeName& made = state.names[i];
    std::error_code error;
    if (!made.was.empty()) {
      fs::rename(made.path, made.was, error);
    } else {
      fs::remove_all(made.path, error);
    }
  }
}

/// The fate of this call: 0 continues, otherwise the error; `half`: writes only one half.
int fate(bool& half) {
  Shim& state = shim();
  const std::string_view kind = std::exchange(kind_of_call, {});
  if (!state.only.empty() && kind != state.only) return 0;
  const int rank = own_rank();
  const int call = state.calls[rank]++;
  if (rank < 0 || !(state.ranks >> rank & 1) || call < state.k) return 0;
  if (state.kind == "dead") return EIO;
  if (call > state.k) return 0;
  if (state.kind == "eio") return EIO;
  if (state.kind == "enospc") return ENOSPC;
  if (state.kind == "eintr") return EINTR;
  half = state.kind == "short";
  if (half || state.kind.empty()) return 0;
  is_inside = true;
  if (state.kind == "lose_writes" || state.kind == "lose_all") lose_writes(state);
  if (state.kind == "lose_names" || state.kind == "lose_all") lose_names(state);
  ::kill(::getpid(), SIGKILL);
  ::pause();
  return 0;
}

template <class F> F real(const char* name) {
  return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

/// Runs one intercepted call under the lock, unless it fails; `call` gets whether to do one half.
template <class Call> auto fated(const Call& call) {
  is_inside = true;
  const std::lock_guard lock(shim().mutex);
  bool half = false;
  const int error = fate(half);
  decltype(call(half)) result = -1;
  if (error) {
    errno = error;
  } else {
    result = call(half);
  }
  is_inside = false;
  return result;
}

/// The same of a call without halves; `done` keeps the books.
template <class Call, class Done> int intercepted(bool counts, const Call& call, const Done& done) {
  if (is_inside || !counts) return call();
  return fated([&](bool) {
    const int result = call();
    const int kept = errno;
    if (result >= 0) done(result);
    errno = kept;
    return result;
  });
}

/// A name that was given: what was written and not synced goes with it.
void renamed(const char* from, const char* to) {
  shim().names.push_back({to, from, fs::path(to).parent_path().string(), false});
  shim().is_dirty[to] = std::exchange(shim().is_dirty[from], false);
  for (auto& [descriptor, path] : shim().open_files) {
    if (path == from) path = to;
  }
}

bool is_tracked(int descriptor) {
  if (is_inside) return false;
  const std::lock_guard lock(shim().mutex);
  return shim().open_files.contains(descriptor);
}

/// One read or write of `count` bytes, or of half of them; `call` gets how many.
template <class Call> ssize_t transferred(int descriptor, size_t count, const Call& call) {
  if (!is_tracked(descriptor)) return call(count);
  return fated([&](bool half) { return call(half ? (count + 1) / 2 : count); });
}

/// The same, of a write.
template <class Call> ssize_t written(int descriptor, size_t count, const Call& call) {
  kind_of_call = "write";
  const ssize_t result = transferred(descriptor, count, call);
  kind_of_call = {};
  if (result > 0 && is_tracked(descriptor)) {
    const std::lock_guard lock(shim().mutex);
    shim().is_dirty[shim().open_files[descriptor]] = true;
  }
  return result;
}

std::string parent_of(const std::string& path) { return fs::path(path).parent_path().string(); }

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

/// The calling thread is this rank; only ranks' calls count.
void weft_crash_rank(int rank) { rank_of_thread = rank; }

/// A thread that a rank starts is of that rank: it writes what is saved asynchronously.
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) {
  struct Start {
    void* (*start)(void*);
    void* argument;
    int rank;
  };
  const auto start_of_rank = [](void* given) {
    const Start own = *static_cast<Start*>(given);
    delete static_cast<Start*>(given);
    rank_of_thread = own.rank;
    return own.start(own.argument);
  };
  const auto next =
      real<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return next(thread, attributes, start_of_rank, new Start{start, argument, rank_of_thread});
}

int open(const char* path, int flags, ...) {
  const auto next = real<int (*)(const char*, int, mode_t)>("open");
  return intercepted(
      shim().is_below(path), [&] { return next(path, flags, 0666); },
      [&](int descriptor) {
        shim().open_files[descriptor] = path;
        if (flags & O_CREAT) shim().names.push_back({path, "", parent_of(path), false});
      });
}

int mkdir(const char* path, mode_t mode) {
  const auto next = real<int (*)(const char*, mode_t)>("mkdir");
  return intercepted(
      shim().is_below(path), [&] { return next(path, mode); },
      [&](int) {
        shim().names.push_back({path, "", parent_of(path), true});
      });
}

int close(int descriptor) {
  const auto next = real<int (*)(int)>("close");
  return intercepted(
      is_tracked(descriptor), [&] { return next(descriptor); },
      [&](int) { shim().open_files.erase(descriptor); });
}

int fallocate(int descriptor, int mode, off_t offset, off_t length) {
  const auto next = real<int (*)(int, int, off_t, off_t)>("fallocate");
  return intercepted(
      is_tracked(descriptor), [&] { return next(descriptor, mode, offset, length); },
      [&](int) { shim().is_dirty[shim().open_files[descriptor]] = true; });
}

int sync_file_range(int descriptor, off_t offset, off_t length, unsigned flags) {
  const auto next = real<int (*)(int, off_t, off_t, unsigned)>("sync_file_range");
  return intercepted(
      is_tracked(descriptor), [&] { return next(descriptor, offset, length, flags); }, [](int) {});
}

ssize_t pwrite(int descriptor, const void* bytes, size_t count, off_t offset) {
  const auto next = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  return written(descriptor, count,
                 [&](size_t most) { return next(descriptor, bytes, most, offset); });
}

ssize_t write(int descriptor, const void* bytes, size_t count) {
  const auto next = real<ssize_t (*)(int, const void*, size_t)>("write");
  return written(descriptor, count, [&](size_t most) { return next(descriptor, bytes, most); });
}

ssize_t pread(int descriptor, void* bytes, size_t count, off_t offset) {
  const auto next = real<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  return transferred(descriptor, count,
                     [&](size_t most) { return next(descriptor, bytes, most, offset); });
}

ssize_t read(int descriptor, void* bytes, size_t count) {
  const auto next = real<ssize_t (*)(int, void*, size_t)>("read");
  return transferred(descriptor, count, [&](size_t most) { return next(descriptor, bytes, most); });
}

int ftruncate(int descriptor, off_t length) {
  const auto next = real<int (*)(int, off_t)>("ftruncate");
  return intercepted(
      is_tracked(descriptor), [&] { return next(descriptor, length); },
      [&](int) { shim().is_dirty[shim().open_files[descriptor]] = true; });
}

/// A copy of a descriptor is the same file.
int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  const int result = real<int (*)(int, int, long)>("fcntl")(descriptor, command, argument);
  const bool copies = command == F_DUPFD || command == F_DUPFD_CLOEXEC;
  if (copies && result >= 0 && is_tracked(descriptor)) {
    const std::lock_guard lock(shim().mutex);
    shim().open_files[result] = shim().open_files[descriptor];
  }
  return result;
}

int fsync(int descriptor) {
  const auto next = real<int (*)(int)>("fsync");
  if (is_tracked(descriptor)) kind_of_call = "sync";
  return intercepted(
      is_tracked(descriptor), [&] { return next(descriptor); },
      [&](int) {
        const std::string& path = shim().open_files[descriptor];
        shim().is_dirty[path] = false;
        std::erase_if(shim().names, [&](const MadeName& made) { return made.directory == path; });
      });
}

int renameat2(int from_in, const char* from, int to_in, const char* to, unsigned flags) {
  const auto next = real<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
  return intercepted(
      shim().is_below(to), [&] { return next(from_in, from, to_in, to, flags); },
      [&](int) { renamed(from, to); });
}

int rename(const char* from, const char* to) {
  const auto next = real<int (*)(const char*, const char*)>("rename");
  return intercepted(
      shim().is_below(to), [&] { return next(from, to); }, [&](int) { renamed(from, to); });
}

int link(const char* from, const char* to) {
  const auto next = real<int (*)(const char*, const char*)>("link");
  return intercepted(
      shim().is_below(to), [&] { return next(from, to); },
      [&](int) {
        shim().names.push_back({to, "", parent_of(to), false});
        shim().is_dirty[to] = shim().is_dirty[from];
      });
}

// std::filesystem::remove_all calls this; paths are relative to a directory that it opened.
int unlinkat(int directory, const char* path, int flags) {
  const auto next = real<int (*)(int, const char*, int)>("unlinkat");
  return intercepted(
      own_rank() >= 0, [&] { return next(directory, path, flags); }, [](int) {});
}

int unlink(const char* path) {
  const auto next = real<int (*)(const char*)>("unlink");
  return intercepted(
      shim().is_below(path), [&] { return next(path); }, [](int) {});
}

}  // extern "C"
#pragma GCC visibility pop
