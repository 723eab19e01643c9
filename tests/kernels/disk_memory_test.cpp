// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/disk_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <numeric>

#include "src/device/disk_queue.h"
#include "tests/support/collected_warnings.h"
#include "tests/support/scratch.h"

namespace weft {

using Bytes = std::vector<std::byte>;

static Bytes pattern(int64_t bytes, int salt) {
  Bytes all(static_cast<size_t>(bytes));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<std::byte>((i * 31 + i / 251 + static_cast<size_t>(salt)) & 0xff);
  }
  return all;
}

static void write_all(const std::shared_ptr<DiskMemory>& memory, size_t array, const Bytes& bytes) {
  memory->write(memory->offset(array), static_cast<int64_t>(bytes.size()), bytes.data()).wait();
}

static Bytes read_all(const std::shared_ptr<DiskMemory>& memory, size_t array, int64_t bytes) {
  Bytes all(static_cast<size_t>(bytes), std::byte{7});
  memory->read(memory->offset(array), bytes, all.data()).wait();
  return all;
}

constexpr int64_t kSizes[] = {0, 1, 4096, 5000, DiskMemory::kBlock, 3 * DiskMemory::kBlock + 17};

static std::shared_ptr<DiskMemory> made(const std::string& directory) {
  std::vector<DiskMemory::Array> arrays;
  for (const int64_t bytes : kSizes) arrays.push_back({concat("array of ", bytes), bytes});
  return DiskMemory::make(directory, std::move(arrays));
}

TEST(DiskMemory, ReadsZerosAndThenWhatWasWritten) {
  const Scratch scratch;
  const auto memory = made(scratch.root());
  for (size_t i = 0; i < std::size(kSizes); ++i) {
    EXPECT_EQ(memory->offset(i) % DiskMemory::kAlignment, 0);
    EXPECT_EQ(read_all(memory, i, kSizes[i]), Bytes(static_cast<size_t>(kSizes[i])));
  }
  for (int turn = 0; turn < 2; ++turn) {
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      write_all(memory, i, pattern(kSizes[i], static_cast<int>(i) + turn));
    }
    for (size_t i = 0; i < std::size(kSizes); ++i) {
      EXPECT_EQ(read_all(memory, i, kSizes[i]), pattern(kSizes[i], static_cast<int>(i) + turn));
    }
  }
}

TEST(DiskMemory, PassesThePageCacheFromAlignedMemory) {
  const Scratch scratch;
  const auto memory = made(scratch.root());
  const int64_t bytes = kSizes[5], part = 2 * DiskMemory::kBlock;
  const DiskBuffer from(bytes), to(bytes);
  const Bytes expected = pattern(bytes, 3);
  std::copy(expected.begin(), expected.end(), from.data());
  memory->write(memory->offset(5), bytes, from.data(), true).wait();
  // Blocks from the middle on.
  auto last = memory->read(memory->offset(5) + part, bytes - part, to.data() + part, true);
  auto first = memory->read(memory->offset(5), part, to.data(), true);
  first.wait();
  last.wait();
  EXPECT_EQ(Bytes(to.data(), to.data() + bytes), expected);
}

TEST(DiskMemory, IsAFileWithoutANameForThisUser) {
  const Scratch scratch;
  const auto memory = made(scratch.root());
  EXPECT_TRUE(std::filesystem::is_empty(scratch.root()));
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry, ignored).string();
    if (target.find(scratch.root()) == std::string::npos) continue;
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    EXPECT_EQ(status.st_nlink, 0U);
    ++found;
  }
  EXPECT_GE(found, 1);
}

TEST(DiskMemory, ReportsBlocksThatChanged) {
  const Scratch scratch;
  const auto memory = made(scratch.root());
  write_all(memory, 5, pattern(kSizes[5], 1));
  corrupt_open_file(scratch.root(), memory->offset(5) + DiskMemory::kBlock + 100);
  const std::string error = error_of<std::runtime_error>([&] { read_all(memory, 5, kSizes[5]); });
  EXPECT_TRUE(has(error, concat("offload: array of ", kSizes[5], ": the ", DiskMemory::kBlock,
                                " bytes from byte ", memory->offset(5) + DiskMemory::kBlock,
                                " of a file in ", scratch.root(), " have hash ")));
}

TEST(DiskMemory, ChecksForSpaceBeforehand) {
  const Scratch scratch;
  const std::string error = error_of<std::runtime_error>([&] {
    DiskMemory::make(scratch.root(), {{"a model", int64_t{1} << 50}});
  });
  EXPECT_NE(error.find("bytes free, expected 1125899906842624"), std::string::npos) << error;
}

TEST(DiskMemory, TakesWholeBlocksOnly) {
  const Scratch scratch;
  const auto memory = made(scratch.root());
  Bytes bytes(100);
  const std::string error =
      error_of([&] { memory->read(memory->offset(5) + 5, 100, bytes.data()).wait(); });
  EXPECT_NE(error.find("expected whole blocks"), std::string::npos) << error;
  // A write that is refused changes nothing.
  write_all(memory, 5, pattern(kSizes[5], 4));
  for (const int64_t from : {5, 0}) {
    const std::string refused =
        error_of([&] { memory->write(memory->offset(5) + from, 100, bytes.data()).wait(); });
    EXPECT_NE(refused.find("are written, expected whole blocks"), std::string::npos) << refused;
  }
  EXPECT_EQ(read_all(memory, 5, kSizes[5]), pattern(kSizes[5], 4));
}

/// Expects that `run` returns 0 in a child.
static void expect_success(int (*run)(const Scratch& scratch)) {
  const Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run(scratch));
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(DiskMemory, RequestsThatHangFailInTime) {
  const Scratch scratch;
  // No request ends in no time. The threads use the memory after that.
  static auto* const bytes = new Bytes(size_t{64} << 20);
  const int file = ::open(scratch.write("file", "").c_str(), O_RDWR | O_CLOEXEC);
  {
    DiskQueue queue(std::chrono::milliseconds(0));
    for (int i = 0; i < 2; ++i) {
      DiskRequest request{file, true, 0, bytes->data(), static_cast<int64_t>(bytes->size())};
      queue.start(request);
      queue.wait(request);
      EXPECT_EQ(request.error, ETIMEDOUT);
    }
  }
  ::close(file);
}

/// Runs in a child, which inherits arrays and then makes its own.
static int end_in_a_child(const Scratch& scratch) {
  auto inherited = made(scratch.root());
  write_all(inherited, 5, pattern(kSizes[5], 6));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = made(scratch.root());
    write_all(own, 5, pattern(kSizes[5], 7));
    const bool is_read = read_all(own, 5, kSizes[5]) == pattern(kSizes[5], 7);
    inherited.reset();
    ::_exit(is_read ? 0 : 15);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) return 16;
  return read_all(inherited, 5, kSizes[5]) == pattern(kSizes[5], 6) ? 0 : 17;
}

TEST(DiskMemory, SurvivesAChildOfFork) { expect_success(end_in_a_child); }

/// Runs in a child, whose environment asks for plain reads and writes.
static int read_plainly(const Scratch& scratch) {
  ::setenv("WEFT_PLAIN_IO", "1", 1);
  const CollectedWarnings warnings;
  const auto memory = made(scratch.root());
  const DiskBuffer from(kSizes[5]), to(kSizes[5]);
  const Bytes expected = pattern(kSizes[5], 2);
  std::copy(expected.begin(), expected.end(), from.data());
  memory->write(memory->offset(5), kSizes[5], from.data(), true).wait();
  memory->read(memory->offset(5), kSizes[5], to.data(), true).wait();
  if (Bytes(to.data(), to.data() + kSizes[5]) != expected) return 12;
  const bool is_told = warnings.first().find("WEFT_PLAIN_IO is set") != std::string::npos;
  return warnings.size() == 1 && is_told ? 0 : 13;
}

TEST(DiskMemory, IsReadPlainlyOnRequest) { expect_success(read_plainly); }

TEST(DiskMemory, QueuesPerformManyRequests) {
  const Scratch scratch;
  const int file = ::open(scratch.write("file", "").c_str(), O_RDWR | O_CLOEXEC);
  DiskQueue queue;
  Bytes bytes = pattern(200 * 1000, 1), found(bytes.size());
  for (const bool writes : {true, false}) {
    std::vector<DiskRequest> requests;
    for (int64_t i = 0; i < 200; ++i) {
      requests.push_back(
          {file, writes, i * 1000, (writes ? bytes : found).data() + i * 1000, 1000});
    }
    for (DiskRequest& request : requests) queue.start(request);
    for (DiskRequest& request : requests) queue.wait(request);
    for (const DiskRequest& request : requests) EXPECT_EQ(request.error, 0);
  }
  EXPECT_EQ(found, bytes);
  DiskRequest beyond{file, false, int64_t{1} << 30, found.data(), 10};
  queue.start(beyond);
  queue.wait(beyond);
  EXPECT_EQ(beyond.error, EIO);
  ::close(file);
}

}  // namespace weft
