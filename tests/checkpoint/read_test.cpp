// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>

#include "checkpoint/blocks.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// Checkpoints of several blocks a rank, where tensors begin and end within pages and blocks.
class Read : public testing::Test {
 protected:
  struct Kind {
    const char* name;
    Shape shape;
    DType dtype;
    Placement on_dp, on_tp;
  };

  /// Each layout can be loaded in any other; `turn` selects the layouts.
  static StateDict state_on(const DeviceMesh& mesh, int turn, bool zero) {
    const Kind kinds[] = {
        {"long", {1'200'001}, DType::f32, Shard(0), Shard(0)},
        {"square", {512, 2048}, DType::f32, Shard(0), Shard(1)},
        {"wide", {3, 400'000}, DType::bf16, Shard(1), Replicate()},
        {"whole", {700'000}, DType::f32, Replicate(), Replicate()},
        {"bias", {5}, DType::f32, Replicate(), Shard(0)},
        {"aligned", {3, 1 << 20}, DType::f32, Shard(0), Replicate()},
    };
    StateDict state;
    int64_t salt = 0;
    for (const Kind& kind : kinds) {
      const Placement first = turn == 0 ? kind.on_dp : kind.on_tp;
      const Placement second = turn == 0 ? kind.on_tp : kind.on_dp;
      const Sharding sharding(mesh,
                              mesh.ndim() == 1 ? Placements{first} : Placements{first, second});
      state.tensors.emplace(kind.name,
                            zero ? zeros(kind.shape, {.dtype = kind.dtype, .sharding = sharding})
                                 : numbers(kind.shape, salt++, sharding, kind.dtype));
    }
    return state;
  }

  std::string saved(const std::vector<MeshAxis>& axes, int turn) const {
    std::string path;
    on_mesh(axes, [&](const DeviceMesh& mesh) {
      CheckpointSaver saver(mesh.communicator(), scratch_.path("saved"));
      const std::string own = saver.save(1, state_on(mesh, turn, false));
      if (mesh.rank() == 0) path = own;
    });
    return path;
  }

  static std::vector<std::string> files_of(const std::string& path) {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    return files;
  }

  /// The share of a file's pages that the page cache has.
  static double cached_share(const std::string& path) {
    const File file("test", path);
    const auto bytes = static_cast<size_t>(file.size());
    const int opened = ::open(path.c_str(), O_RDONLY);
    void* const mapped = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE, opened, 0);
    std::vector<unsigned char> pages((bytes + 4095) / 4096);
    EXPECT_EQ(::mincore(mapped, bytes, pages.data()), 0);
    ::munmap(mapped, bytes);
    ::close(opened);
    const auto cached = std::count_if(pages.begin(), pages.end(), [](auto is) { return is & 1; });
    return static_cast<double>(cached) / static_cast<double>(pages.size());
  }

  static void drop_pages(const std::string& path) {
    for (const std::string& name : files_of(path)) {
      const int file = ::open(name.c_str(), O_RDONLY);
      ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
      ::close(file);
    }
  }
  static void read_pages(const std::string& path) {
    for (const std::string& name : files_of(path)) {
      const File file("test", name);
      std::vector<std::byte> bytes(static_cast<size_t>(file.size()));
      file.read(0, bytes);
    }
  }

  static void flip_byte(const std::string& path, int64_t in_data) {
    const SafetensorsFile read(path);
    int64_t data = static_cast<int64_t>(fs::file_size(path));
    for (const SafetensorsEntry& entry : read.entries()) data = std::min(data, entry.offset);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(data + in_data);
    const int byte = file.get();
    file.seekp(data + in_data).put(static_cast<char>(byte ^ 1));
  }

  Scratch scratch_;
};

TEST_F(Read, GivesEachElementFromTheDiskAndFromTheCache) {
  const std::vector<std::vector<MeshAxis>> worlds = {
      {{"dp", 1}}, {{"dp", 3}}, {{"dp", 2}, {"tp", 2}}};
  for (size_t from = 0; from < worlds.size(); ++from) {
    const std::string path = saved(worlds[from], 0);
    for (size_t to = 0; to < worlds.size(); ++to) {
      const int turn = worlds[to].size() == 2 ? 1 : 0;
      for (const bool is_cold : {true, false}) {
        is_cold ? drop_pages(path) : read_pages(path);
        on_mesh(worlds[to], [&](const DeviceMesh& mesh) {
          StateDict into = state_on(mesh, turn, true);
          load(path, into);
          const StateDict expected = state_on(mesh, turn, false);
          for (const auto& [name, tensor] : expected.tensors) {
            EXPECT_EQ(into.tensors.at(name).local().to_vector<float>(),
                      tensor.local().to_vector<float>())
                << name << " saved on world " << from << ", loaded on " << to
                << (is_cold ? " cold" : " cached");
          }
        });
      }
    }
    fs::remove_all(path);
  }
}

TEST_F(Read, NamesTheFirstBadBlockFromTheDiskAndFromTheCache) {
  const std::string path = saved({{"dp", 1}}, 0);
  const std::string file = files_of(path).at(0);
  // The file has 7 blocks; each iteration damages one before those that are bad already.
  for (const int64_t block : {6, 4, 2}) {
    flip_byte(file, block * kBlockBytes + 4097);
    for (const bool is_cold : {true, false}) {
      // A page that was not written to the disk would stay.
      const int descriptor = ::open(file.c_str(), O_RDONLY);
      ::fsync(descriptor);
      ::close(descriptor);
      is_cold ? drop_pages(path) : read_pages(path);
      on_mesh({{"dp", 1}}, [&](const DeviceMesh& mesh) {
        StateDict into = state_on(mesh, 0, true);
        const std::string error = error_of([&] { load(path, into); });
        EXPECT_NE(error.find(concat("block ", block, " (tensor ")), std::string::npos) << error;
        EXPECT_NE(error.find(file), std::string::npos) << error;
      });
      const CheckpointReport found = inspect_checkpoint(path);
      EXPECT_EQ(found.verdict, Verdict::corrupt);
      EXPECT_EQ(found.block, block);
    }
  }
}

TEST_F(Read, KeepsInTheCacheOnlyWhatSeveralRanksWant) {
  std::string own, shared;
  on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
    for (const bool is_own : {true, false}) {
      const Sharding sharding(mesh, {is_own ? Placement(Shard(0)) : Placement(Replicate())});
      const StateDict state{{{"w", numbers({30, 1 << 17}, 1, sharding)}}, {}};
      CheckpointSaver saver(mesh.communicator(), scratch_.path(is_own ? "own" : "shared"));
      const std::string path = saver.save(1, state);
      if (mesh.rank() == 0) (is_own ? own : shared) = path;
    }
  });
  for (const std::string& path : {own, shared}) {
    const std::string file = files_of(path).at(0);
    drop_pages(path);
    const int past_cache = ::open(file.c_str(), O_RDONLY | O_DIRECT);
    if (past_cache >= 0) ::close(past_cache);
    if (past_cache < 0 || cached_share(file) > 0.1) GTEST_SKIP() << "all files here are cached";
    on_mesh({{"dp", 3}}, [&](const DeviceMesh& mesh) {
      const Placement on = path == own ? Placement(Shard(0)) : Placement(Replicate());
      StateDict into{{{"w", zeros({30, 1 << 17}, {.sharding = Sharding(mesh, {on})})}}, {}};
      load(path, into);
    });
    EXPECT_NEAR(cached_share(file), path == own ? 0 : 1, 0.1);
  }
}

TEST_F(Read, CallsEachOnceAndThrowsWhatTheFirstThrew) {
  for (const size_t count : {0, 1, 3, 100}) {
    std::mutex mutex;
    std::multiset<size_t> read;
    std::set<const std::byte*> buffers;
    work_in_parallel(count, kReads, [&](size_t i, const BlockBuffer& buffer) {
      const std::lock_guard lock(mutex);
      read.insert(i);
      buffers.insert(buffer.data());
    });
    EXPECT_EQ(read.size(), count);
    EXPECT_EQ(std::set<size_t>(read.begin(), read.end()).size(), count);
    EXPECT_LE(buffers.size(), 4u);
  }
  for (int time = 0; time < 50; ++time) {
    std::atomic<size_t> most = 0;
    const auto read = [&](size_t i, const BlockBuffer&) {
      most = std::max<size_t>(most, i);
      if (i >= 20) throw std::domain_error(concat("number ", i));
    };
    EXPECT_EQ(error_of<std::domain_error>([&] { work_in_parallel(1000, kReads, read); }),
              "number 20");
    EXPECT_LT(most, 30u);
  }
}

}  // namespace
}  // namespace weft
