// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <random>
#include <system_error>
#include <thread>

#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/ranks.h"
#include "weft/safetensors.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// A checkpoint of 3 ranks, and what may happen to its files.
class Inspect : public testing::Test {
 protected:
  void SetUp() override {
    path_ = saved(1, 3);
    files_ = {file(0), file(1), file(2)};
  }

  /// Two blocks on each rank would take 8 MiB: `rows` chooses.
  std::string saved(int64_t step, int ranks, int64_t rows = 9) const {
    std::string path;
    on_mesh({{"dp", ranks}}, [&](const DeviceMesh& mesh) {
      StateDict state;
      state.tensors.emplace("w", numbers({rows, 4}, step, Sharding(mesh, {Shard(0)})));
      state.tensors.emplace("v", numbers({3}, step, Sharding(mesh, {Shard(0)}), i64));
      state.tensors.emplace("whole", numbers({2, 2}, step));
      CheckpointSaver saver(mesh.communicator(), scratch_.path("saved"));
      const std::string own = saver.save(step, state);
      if (mesh.rank() == 0) path = own;
    });
    return path;
  }
  std::string file(int rank) const {
    return concat(path_, "/rank-0000", rank, "-of-00003.safetensors");
  }
  static void write_bytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  static void change_byte(const std::string& path, size_t at, char byte) {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(at)).put(byte);
  }
  CheckpointReport report() const { return inspect_checkpoint(path_); }
  /// The error of loading on one rank.
  std::string load_error() const {
    StateDict into;
    into.tensors = {
        {"w", zeros({9, 4})}, {"v", zeros({3}, {.dtype = i64})}, {"whole", zeros({2, 2})}};
    return error_of([&] { load(path_, into); });
  }

  Scratch scratch_;
  std::string path_;
  std::vector<std::string> files_;
};

TEST_F(Inspect, FindsACompleteOne) {
  const CheckpointReport found = report();
  EXPECT_EQ(found.verdict, Verdict::complete) << found.reason;
  EXPECT_EQ(found.reason, "");
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.ranks, 3);
  EXPECT_EQ(found.tensors, 3);
  EXPECT_EQ(found.bytes, 9 * 4 * 4 + 3 * 8 + 4 * 4);
  EXPECT_EQ(load_error(), "nothing");
  // Nor is a directory that was renamed another one.
  fs::rename(path_, scratch_.path("renamed"));
  EXPECT_EQ(inspect_checkpoint(scratch_.path("renamed")).verdict, Verdict::complete);
}

TEST_F(Inspect, NamesMissingFiles) {
  for (int rank = 0; rank < 3; ++rank) {
    const std::string bytes = bytes_in(file(rank));
    fs::remove(file(rank));
    const CheckpointReport found = report();
    EXPECT_EQ(found.verdict, Verdict::incomplete);
    EXPECT_EQ(found.reason, concat("checkpoint: ", path_, " lacks 1 of 3 files: rank-0000", rank,
                                   "-of-00003.safetensors"));
    EXPECT_EQ(found.files,
              std::vector<std::string>{concat("rank-0000", rank, "-of-00003.safetensors")});
    EXPECT_NE(load_error().find("is missing"), std::string::npos) << load_error();
    write_bytes(file(rank), bytes);
  }
  EXPECT_EQ(report().verdict, Verdict::complete);
  for (int rank = 0; rank < 3; ++rank) fs::remove(file(rank));
  EXPECT_EQ(report().verdict, Verdict::incomplete);
  EXPECT_EQ(report().reason, concat("checkpoint: ", path_, " holds no rank's file"));
  EXPECT_EQ(error_of([&] { inspect_checkpoint(scratch_.path("absent")); }),
            concat("checkpoint: ", scratch_.path("absent"),
                   " is missing or a file, expected a directory"));
}

TEST_F(Inspect, FindsFilesOfAnotherLength) {
  for (int rank = 0; rank < 3; ++rank) {
    const std::string bytes = bytes_in(file(rank));
    const std::string name = fs::path(file(rank)).filename().string();
    for (const size_t length : {bytes.size() - 1, bytes.size() / 2, size_t{8}, size_t{0}}) {
      write_bytes(file(rank), bytes.substr(0, length));
      EXPECT_EQ(report().verdict, Verdict::corrupt) << length;
      EXPECT_EQ(report().file, name);
      EXPECT_EQ(inspect_checkpoint(path_, {.depth = Inspection::headers}).verdict,
                Verdict::corrupt);
      EXPECT_NE(load_error(), "nothing");
    }
    write_bytes(file(rank), bytes + "x");
    EXPECT_EQ(report().verdict, Verdict::corrupt);
    EXPECT_EQ(report().file, name);
    EXPECT_NE(load_error(), "nothing");
    write_bytes(file(rank), bytes);
  }
}

TEST_F(Inspect, FindsEveryFlippedBit) {
  std::mt19937 random(5);
  const bool sanitized = std::getenv("WEFT_SWEEP_PERCENT") != nullptr &&
                         std::string(std::getenv("WEFT_SWEEP_PERCENT")) == "2";
  const int flips = sanitized ? 500 : 10'000;
  const std::string bytes = bytes_in(file(1));
  const size_t data =
      bytes.size() - static_cast<size_t>(SafetensorsFile(file(1)).entries().back().bytes +
                                         SafetensorsFile(file(1)).entries()[0].bytes);
  int found = 0;
  for (int i = 0; i < flips; ++i) {
    // A third each: length and JSON, its padding, data.
    const size_t json = 8 + bytes.substr(8).find_last_of('}') + 1;
    const size_t places[] = {random() % json, json + random() % (data - json),
                             data + random() % (bytes.size() - data)};
    const size_t at = places[i % 3];
    change_byte(file(1), at, static_cast<char>(bytes[at] ^ 1 << random() % 8));
    const CheckpointReport verdict = report();
    change_byte(file(1), at, bytes[at]);
    const bool right = verdict.verdict == Verdict::corrupt &&
                       verdict.file == "rank-00001-of-00003.safetensors" &&
                       (at < data || (verdict.block == 0 && verdict.tensor != ""));
    found += right;
    ASSERT_TRUE(right) << "byte " << at << ": " << verdict.reason;
  }
  EXPECT_EQ(found, flips);
}

TEST_F(Inspect, NamesTensorAndBlock) {
  // 9 MiB a rank: blocks 0, 1 and 2.
  path_ = saved(2, 3, 3 * 9 * (1 << 16));
  std::string bytes = bytes_in(file(2));
  const auto data = static_cast<size_t>(SafetensorsFile(file(2)).entries()[0].offset);
  bytes[data + (9 << 20) + 1] ^= 1;
  write_bytes(file(2), bytes);
  const CheckpointReport found = inspect_checkpoint(path_, {.threads = 2});
  EXPECT_EQ(found.verdict, Verdict::corrupt);
  EXPECT_EQ(found.file, "rank-00002-of-00003.safetensors");
  EXPECT_EQ(found.tensor, "w");
  EXPECT_EQ(found.block, 2);
  EXPECT_EQ(found.reason,
            concat("checkpoint: ", file(2), ": block 2 (tensor \"w\") does not have its checksum"));
  StateDict into{{{"w", zeros({3 * 9 * (1 << 16), 4})}}, {}};
  EXPECT_EQ(error_of([&] { (void)load_common_keys(path_, into); }), found.reason);
}

TEST_F(Inspect, FindsMixedGenerationsAndWorlds) {
  const std::string other = saved(1, 3), two = saved(1, 2);
  const std::string name = "rank-00001-of-00003.safetensors";
  const std::string bytes = bytes_in(file(1));
  fs::copy_file(other + "/" + name, file(1), fs::copy_options::overwrite_existing);
  CheckpointReport found = report();
  EXPECT_EQ(found.verdict, Verdict::mixed) << found.reason;
  EXPECT_EQ(found.files, std::vector<std::string>{name});
  EXPECT_NE(load_error().find("is not of step 1 of generation "), std::string::npos);
  // The files of two ranks exchanged.
  write_bytes(file(1), bytes_in(file(2)));
  EXPECT_EQ(report().verdict, Verdict::mixed);
  write_bytes(file(1), bytes);
  EXPECT_EQ(report().verdict, Verdict::complete);
  // A file of a world of another size in the same directory.
  fs::copy_file(two + "/rank-00001-of-00002.safetensors",
                path_ + "/rank-00001-of-00002.safetensors");
  found = report();
  EXPECT_EQ(found.verdict, Verdict::mixed);
  EXPECT_EQ(found.files, std::vector<std::string>{"rank-00001-of-00002.safetensors"});
  fs::remove(path_ + "/rank-00001-of-00002.safetensors");
  write_bytes(path_ + "/model.safetensors", bytes);
  EXPECT_EQ(report().verdict, Verdict::mixed);
}

TEST_F(Inspect, TakesNoLinksPipesOrDirectoriesForFiles) {
  const std::string moved = scratch_.path("elsewhere");
  fs::rename(file(1), moved);
  fs::create_symlink(moved, file(1));
  EXPECT_EQ(report().verdict, Verdict::corrupt);
  EXPECT_EQ(report().reason, concat("checkpoint: ", file(1), ": it is a link, not a file"));
  EXPECT_EQ(load_error(), report().reason);
  fs::remove(file(1));
  ASSERT_EQ(::mkfifo(file(1).c_str(), 0600), 0);
  EXPECT_EQ(report().verdict, Verdict::corrupt);
  EXPECT_EQ(report().reason, concat("checkpoint: ", file(1), " is a pipe, expected a file"));
  fs::remove(file(1));
  fs::create_directory(file(1));
  EXPECT_EQ(report().reason, concat("checkpoint: ", file(1), " is a directory, expected a file"));
}

/// No more descriptors than are open, and `more`, while it lives.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t more) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(0);
    ::close(next);
    const rlimit few{static_cast<rlim_t>(next) + more, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;
  ~FewDescriptors() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(Inspect, CallsNothingCorruptThatCouldNotBeOpened) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer opens a pipe to look at an object, and calls the object wrong";
#endif
  const std::string directory = scratch_.path("saved");
  for (const rlim_t more : {0, 1}) {
    const FewDescriptors few(more);
    EXPECT_NE(error_of<std::runtime_error>([&] { report(); }).find("Too many open files"),
              std::string::npos);
    EXPECT_NE(error_of<std::runtime_error>([&] {
                newest_complete_checkpoint(directory);
              }).find("Too many open files"),
              std::string::npos);
  }
  EXPECT_EQ(report().verdict, Verdict::complete);
}

TEST_F(Inspect, HasFewFilesOpenAtOnce) {
  path_ = saved(2, 16);
  StateDict into;
  into.tensors = {
      {"w", zeros({9, 4})}, {"v", zeros({3}, {.dtype = i64})}, {"whole", zeros({2, 2})}};
  const FewDescriptors few(20);
  EXPECT_EQ(inspect_checkpoint(path_, {.threads = 2}).reason, "");
  EXPECT_EQ(newest_complete_checkpoint(scratch_.path("saved")), path_);
  load(path_, into);
  EXPECT_EQ(into.tensors.at("w").to_vector<double>(), small_numbers({9, 4}, 2));
}

/// No thread can be started while it lives: none has memory for such a stack.
class NoThreads {
 public:
  NoThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    ::pthread_attr_init(&huge);
    ::pthread_attr_setstacksize(&huge, size_t{1} << 48);
    ::pthread_setattr_default_np(&huge);
    ::pthread_attr_destroy(&huge);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;
  ~NoThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }

 private:
  pthread_attr_t before_{};
};

TEST_F(Inspect, ReadsAllWhereNoThreadsAreToBeHad) {
  path_ = saved(2, 3, 3 << 19);
  StateDict into{{{"w", zeros({3 << 19, 4})}, {"v", zeros({3}, {.dtype = i64})}}, {}};
  const NoThreads none;
#ifndef __SANITIZE_THREAD__
  EXPECT_THROW(std::thread([] {}).join(), std::system_error);
#endif
  EXPECT_EQ(inspect_checkpoint(path_, {.threads = 3}).verdict, Verdict::complete);
  EXPECT_EQ(load_common_keys(path_, into), (SkippedKeys{{}, {"whole"}}));
}

TEST_F(Inspect, ThrowsWhatAThreadThrew) {
  path_ = saved(2, 3, 3 << 8);
  const InspectOptions options{
      .threads = 3, .progress = [](int64_t, int64_t) { throw std::domain_error("enough"); }};
  EXPECT_EQ(error_of<std::domain_error>([&] { inspect_checkpoint(path_, options); }), "enough");
}

TEST_F(Inspect, BelievesTheNameOrMostFiles) {
  // All files of a smaller world come first by name.
  const std::string two = saved(5, 2);
  for (const char* name : {"rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors"}) {
    fs::copy_file(two + "/" + name, path_ + "/" + name);
  }
  const std::string renamed = scratch_.path("renamed");
  for (int i = 0; i < 2; ++i) {
    const CheckpointReport found = report();
    EXPECT_EQ(found.verdict, Verdict::mixed) << found.reason;
    EXPECT_EQ(found.step, 1);
    EXPECT_EQ(found.files, (std::vector<std::string>{"rank-00000-of-00002.safetensors",
                                                     "rank-00001-of-00002.safetensors"}));
    StateDict into{{{"w", zeros({9, 4})}}, {}};
    (void)load_common_keys(path_, into);
    EXPECT_EQ(into.tensors.at("w").to_vector<double>(), small_numbers({9, 4}, 1)) << path_;
    if (i == 0) fs::rename(path_, renamed);
    path_ = renamed;
  }
}

/// The manifest decides; a name of the same form that says otherwise is MIXED.
TEST_F(Inspect, BelievesNoNameThatTheManifestContradicts) {
  const std::string directory = scratch_.path("saved"), newer = saved(7, 2);
  const std::string generation = fs::path(path_).filename().string().substr(14);
  const std::string name = "step-00000009-" + generation;
  const std::string renamed = directory + "/" + name;
  fs::rename(path_, renamed);
  std::vector<std::string> passed;
  const auto note = [&](const std::string& path, const CheckpointReport& verdict) {
    passed.push_back(concat(name_of(verdict.verdict), ' ', path));
  };
  EXPECT_EQ(newest_complete_checkpoint(directory, note), newer);
  const std::string sentence =
      concat("checkpoint: ", renamed, " is named ", name, ", expected step-00000001-", generation,
             " by its manifest; rename it");
  for (const std::string& path : {renamed, renamed + "/", renamed + "/."}) {
    const CheckpointReport found = inspect_checkpoint(path);
    EXPECT_EQ(found.verdict, Verdict::mixed) << path;
    EXPECT_EQ(found.step, 1);
    EXPECT_EQ(found.files, std::vector<std::string>{});
  }
  EXPECT_EQ(inspect_checkpoint(renamed).reason, sentence);
  path_ = renamed;
  EXPECT_EQ(load_error(), sentence);
  EXPECT_EQ(error_of([&] { checkpoint_contents(renamed); }), sentence);
  // Newer work under an older name is not hidden: it comes first, and readers report it.
  const std::string hidden = directory + "/step-00000002-" + generation;
  fs::rename(newer, hidden);
  fs::rename(renamed, directory + "/step-00000001-" + generation);
  passed.clear();
  EXPECT_EQ(newest_complete_checkpoint(directory, note),
            directory + "/step-00000001-" + generation);
  EXPECT_EQ(passed, std::vector<std::string>{"MIXED " + hidden});
  EXPECT_EQ(list_checkpoints(directory)[0], hidden);
  // Any other name is only a name.
  fs::rename(hidden, directory + "/mybackup");
  EXPECT_EQ(inspect_checkpoint(directory + "/mybackup").verdict, Verdict::complete);
  EXPECT_EQ(checkpoint_contents(directory + "/mybackup").tensors.size(), 3u);
}

TEST_F(Inspect, FallsBackToTheNewestCompleteOne) {
  const std::string second = saved(2, 3), third = saved(3, 2);
  const std::string directory = scratch_.path("saved");
  EXPECT_EQ(newest_complete_checkpoint(directory), third);
  fs::remove(third + "/rank-00000-of-00002.safetensors");
  write_bytes(second + "/rank-00002-of-00003.safetensors", "short");
  std::vector<std::string> passed;
  const std::string newest = newest_complete_checkpoint(
      directory, [&](const std::string& path, const CheckpointReport& verdict) {
        passed.push_back(concat(name_of(verdict.verdict), ' ', path));
      });
  EXPECT_EQ(newest, path_);
  EXPECT_EQ(passed,
            (std::vector<std::string>{concat("INCOMPLETE ", third), concat("CORRUPT ", second)}));
  fs::remove_all(path_);
  EXPECT_EQ(newest_complete_checkpoint(directory), "");
}

TEST_F(Inspect, TakesWhatTheFirstRankFinds) {
  const std::string empty = scratch_.path("empty");
  fs::create_directory(empty);
  run_ranks(3, [&](const Communicator& world) {
    const std::string directory = world.rank() == 0 ? scratch_.path("saved") : empty;
    EXPECT_EQ(newest_complete_checkpoint(world, directory), path_);
    EXPECT_EQ(newest_complete_checkpoint(world, empty), "");
  });
}

TEST_F(Inspect, ThrowsOnAllRanksWhatTheFirstOneThrows) {
  const std::string absent = scratch_.path("absent"), there = scratch_.path("saved");
  const std::string refused = scratch_.path(std::string(300, 'x'));
  run_ranks(2, [&](const Communicator& world) {
    const bool first = world.rank() == 0;
    EXPECT_EQ(error_of([&] { newest_complete_checkpoint(world, first ? absent : there); }),
              concat("checkpoint: ", absent, ": No such file or directory"));
    EXPECT_NE(error_of<std::runtime_error>([&] {
                newest_complete_checkpoint(world, first ? refused : there);
              }).find("File name too long"),
              std::string::npos);
    const CheckpointSaver saver(world, there);
    EXPECT_EQ(world.broadcast(saver.generation(), 0), saver.generation());
    EXPECT_EQ(newest_complete_checkpoint(world, there), path_);
  });
}

TEST_F(Inspect, LoadsStrictlyUnlessAskedForTheSkippedKeys) {
  StateDict into{{{"w", zeros({9, 4})}, {"extra", zeros({1})}, {"whole", zeros({2, 2})}}, {}};
  EXPECT_EQ(error_of([&] { load(path_, into); }),
            concat("load: ", path_, ": it lacks \"extra\" and holds \"v\", which nothing expects"));
  EXPECT_EQ(load_common_keys(path_, into), (SkippedKeys{{"extra"}, {"v"}}));
  EXPECT_EQ(into.tensors.at("w").to_vector<double>(), small_numbers({9, 4}, 1));
  into.tensors["w"] = zeros({9, 5});
  EXPECT_EQ(error_of([&] { (void)load_common_keys(path_, into); }),
            concat("load: ", path_, ": tensor \"w\" is [9, 4] f32, expected [9, 5] f32"));
  into.tensors["w"] = zeros({9, 4}, {.dtype = bf16});
  EXPECT_EQ(error_of([&] { (void)load_common_keys(path_, into); }),
            concat("load: ", path_, ": tensor \"w\" is [9, 4] f32, expected [9, 4] bf16"));
}

}  // namespace
}  // namespace weft
