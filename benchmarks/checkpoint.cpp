// SPDX-License-Identifier: Apache-2.0
// Saving and loading a model and its optimizer, compared with raw I/O on the same disk.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "benchmarks/report.h"
#include "weft/checkpoint.h"
#include "weft/communicator.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/ops.h"
#include "weft/ranks.h"

namespace weft::bench {

static constexpr const char* kAbout =
    R"(Saves and loads parameters and two moments of --mib MiB each, sharded over N ranks
(threads), compared with write() + fsync and read() of the same bytes on the same disk, and reads
past the page cache, 4 a rank at once. Cold: pages dropped by fadvise; warm: pages in the
cache, put there by read() where a load leaves none. async_block is what save_async blocks,
memcpy a copy of the same bytes. value is GB/s of the whole state over the slowest rank's
median; round 0 is dropped. The folder is made and deleted; it needs 3 times --mib on the disk,
twice. One JSON line a case.)";

namespace fs = std::filesystem;

namespace {

struct Options {
  std::string directory;
  int64_t mib = 512;
  int ranks = 2;
  int rounds = 5;

  void add_to(CLI::App& app) {
    app.add_option("--dir", directory, "A folder on the local disk")
        ->default_val("weft-bench-checkpoint");
    app.add_option("--mib", mib, "Size of the parameters")->check(CLI::Range(16, 1 << 20));
    app.add_option("--ranks", ranks, "Ranks")->check(CLI::Range(1, 64));
    app.add_option("--rounds", rounds, "Rounds")->check(CLI::Range(1, 1000));
  }
};

/// Seconds of the slowest rank, by case and round.
class Rounds {
 public:
  template <class F> void time(const Communicator& world, const std::string& name, const F& f) {
    world.barrier();
    const double seconds = seconds_of(f);
    std::lock_guard lock(mutex_);
    auto& times = times_[name];
    auto& seen = seen_[{name, world.rank()}];
    if (times.size() == seen) times.push_back(0);
    times[seen] = std::max(times[seen], seconds);
    ++seen;
  }
  const std::map<std::string, std::vector<double>>& times() const { return times_; }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<double>> times_;
  std::map<std::pair<std::string, int>, size_t> seen_;
};

}  // namespace

static constexpr size_t kCall = size_t{16} << 20;

/// write() in calls of 16 MiB, then fsync.
static void write_raw(const std::string& path, std::span<const std::byte> bytes) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (file < 0) fail_call("open", path);
  while (!bytes.empty()) {
    const ssize_t done = ::write(file, bytes.data(), std::min(kCall, bytes.size()));
    if (done <= 0) fail_call("write", path);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  if (::fsync(file) != 0) fail_call("fsync", path);
  ::close(file);
}

/// read() in calls of 16 MiB.
static void read_raw(const std::string& path, std::span<std::byte> bytes) {
  const int file = ::open(path.c_str(), O_RDONLY);
  if (file < 0) fail_call("open", path);
  while (!bytes.empty()) {
    const ssize_t done = ::read(file, bytes.data(), std::min(kCall, bytes.size()));
    if (done <= 0) fail_call("read", path);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  ::close(file);
}

/// O_DIRECT reads that bypass the page cache, 4 calls of 4 MiB at a time.
static void read_raw_past_cache(const std::string& path, std::span<std::byte> bytes) {
  constexpr size_t call = size_t{4} << 20;
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECT);
  if (file < 0) fail_call("open", path);
  std::atomic<size_t> next = 0;
  std::atomic<bool> failed = false;
  const auto read = [&] {
    for (size_t at = next.fetch_add(call); at < bytes.size(); at = next.fetch_add(call)) {
      const size_t count = std::min(call, bytes.size() - at);
      const auto offset = static_cast<off_t>(at);
      const ssize_t done = ::pread(file, bytes.data() + at, count, offset);
      if (done != static_cast<ssize_t>(count)) failed = true;
    }
  };
  {
    std::array<std::jthread, 3> others;
    for (std::jthread& thread : others) thread = std::jthread(read);
    read();
  }
  ::close(file);
  if (failed) fail_call("pread", path);
}

/// Asks the system to drop the cached pages of every file in the directory.
static void drop_pages(const std::string& directory) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const int file = ::open(entry.path().c_str(), O_RDONLY);
    (void)::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

/// Loads every file in the directory into the page cache.
static void read_pages(const std::string& directory) {
  std::vector<std::byte> memory;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    memory.resize(entry.file_size());
    read_raw(entry.path(), memory);
  }
}

/// Parameters and two moments of Linear(2048, 2048) layers, sharded over the ranks.
static StateDict state_of(const DeviceMesh& mesh, int64_t mib) {
  StateDict state;
  for (int64_t layer = 0; layer < mib / 16; ++layer) {
    for (const char* part : {"model/weight", "optimizer/m", "optimizer/v"}) {
      state.tensors.emplace(concat(part, '.', layer),
                            uniform({2048, 2048}, -1, 1, {.sharding = Sharding(mesh, {Shard(0)})}));
    }
  }
  return state;
}

static void run_round(const Communicator& world, const Options& options, StateDict& state,
                      std::span<std::byte> buffer, int round, Rounds& rounds) {
  const std::string top = concat(options.directory, "/round", round);
  if (world.rank() == 0) fs::create_directories(concat(top, "/raw"));
  world.barrier();
  const std::string mine = concat(top, "/raw/", world.rank());
  const auto drop = [&](const std::string& directory) {
    world.barrier();  // unsynced pages of another rank would stay cached
    if (world.rank() == 0) drop_pages(directory);
  };
  rounds.time(world, "raw_write", [&] { write_raw(mine, buffer); });
  drop(top);
  rounds.time(world, "raw_read_cold", [&] { read_raw(mine, buffer); });
  drop(top);
  rounds.time(world, "raw_read_past_cache", [&] { read_raw_past_cache(mine, buffer); });
  read_raw(mine, buffer);
  rounds.time(world, "raw_read_warm", [&] { read_raw(mine, buffer); });

  CheckpointSaver saver(world, concat(top, "/saved"));
  std::string path;
  rounds.time(world, "save", [&] { path = saver.save(round, state); });
  const std::vector<float> before = state.tensors.begin()->second.to_vector<float>();
  fill_(state.tensors.begin()->second, 0);
  world.barrier();
  drop(path);
  rounds.time(world, "load_cold", [&] { load(path, state); });
  if (state.tensors.begin()->second.to_vector<float>() != before) {
    fail_call("load", "did not restore the elements");
  }
  // A load that bypassed the page cache left no pages there.
  if (world.rank() == 0) read_pages(path);
  rounds.time(world, "load_warm", [&] { load(path, state); });
  world.barrier();
  if (world.rank() == 0) fs::remove_all(top), ::sync();
  world.barrier();
}

/// The saver and its copies persist between saves, as in training.
static void run_async_round(const Communicator& world, CheckpointSaver& saver, StateDict& state,
                            std::span<std::byte> buffer, int round, Rounds& rounds) {
  rounds.time(world, "memcpy", [&] {
    std::byte* to = buffer.data();
    for (const auto& [name, tensor] : state.tensors) {
      const MemoryBlock block = tensor.block();
      const size_t bytes = static_cast<size_t>(block.numel()) * size_of(block.dtype);
      std::memcpy(to, block.data, bytes);
      to += bytes;
    }
  });
  std::string path;
  rounds.time(world, "async_block", [&] { path = saver.save_async(round, state); });
  saver.wait();
  world.barrier();
  if (world.rank() == 0) fs::remove_all(path), ::sync();
  world.barrier();
}

static void print_case(const std::string& name, std::vector<double> times, const Options& options,
                       double bytes) {
  const double warmup = times.front();
  times.erase(times.begin());
  const Spread spread = spread_of(times);
  print({{"bench", "weft_checkpoint"},
         {"case", name},
         {"value", rounded(bytes / spread.median / 1e9, 3)},
         {"unit", "GB/s"},
         {"median_s", rounded(spread.median, 4)},
         {"min_s", rounded(*std::min_element(times.begin(), times.end()), 4)},
         {"max_s", rounded(*std::max_element(times.begin(), times.end()), 4)},
         {"warmup_s", rounded(warmup, 4)},
         {"bytes", static_cast<int64_t>(bytes)},
         {"ranks", options.ranks},
         {"rounds", times.size()}});
}

static void run_checkpoint(const Options& options) {
  Rounds rounds;
  const int64_t bytes = 3 * options.mib << 20;
  run_ranks(options.ranks,
            [&](const Communicator& world) {
              const NoGrad no_grad;
              const DeviceMesh mesh(world, {{"ranks", world.size()}});
              StateDict state = state_of(mesh, options.mib);
              const Tensor memory = uniform({bytes / world.size() / 4});
              const std::span buffer(memory.block().as<std::byte>(),
                                     static_cast<size_t>(bytes / world.size()));
              for (int round = 0; round <= options.rounds; ++round) {
                run_round(world, options, state, buffer, round, rounds);
              }
              CheckpointSaver saver(world, concat(options.directory, "/async"));
              for (int round = 0; round <= options.rounds; ++round) {
                run_async_round(world, saver, state, buffer, round, rounds);
              }
            },
            {.threads_per_rank = 1});
  fs::remove_all(options.directory);
  for (const auto& [name, times] : rounds.times()) {
    print_case(name, times, options, static_cast<double>(bytes));
  }
}

}  // namespace weft::bench

int main(int argc, char** argv) {
  return weft::bench::run_program("bench_checkpoint", weft::bench::kAbout, argc, argv,
                                  weft::bench::run_checkpoint);
}
