// SPDX-License-Identifier: Apache-2.0
// A program that has no stdin, stdout and stderr uses the library.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/support/processes.h"
#include "tests/support/ranks.h"
#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/hugging_face.h"
#include "weft/ranks.h"

namespace weft {
namespace {

/// The exit code of a child that runs `body`, which returns one.
int code_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception&) {
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Writes to descriptors 0 to 2 without end, as other threads of a program print.
class Printer {
 public:
  Printer() : thread_([this] { print(); }) {}
  ~Printer() {
    ends_ = true;
    thread_.join();
  }

 private:
  void print() {
    while (!ends_) {
      for (int descriptor = 0; descriptor < 3; ++descriptor) {
        [[maybe_unused]] const ssize_t done = ::write(descriptor, "printed text\n", 13);
      }
    }
  }

  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

void close_standard() {
  for (int descriptor = 0; descriptor < 3; ++descriptor) ::close(descriptor);
}

TEST(Descriptors, AreOpenedWhereTheyAreClosed) {
  const int code = code_of_child([] {
    for (const int closed : {1, 0, 2}) {
      ::close(closed);
      open_standard_descriptors();
      struct stat null {
      }, is{};
      ::stat("/dev/null", &null);
      if (::fstat(closed, &is) != 0 || is.st_rdev != null.st_rdev) return 1;
    }
    close_standard();
    const int moved = above_standard(::open("/dev/null", O_RDONLY));
    const bool is_cloexec = (::fcntl(moved, F_GETFD) & FD_CLOEXEC) != 0;
    if (moved < 3 || !is_cloexec || ::fcntl(0, F_GETFD) != -1) return 2;
    if (above_standard(moved) != moved || above_standard(-1) != -1) return 3;
    return 0;
  });
  EXPECT_EQ(code, 0);
}

/// Saves, exports and writes a text, ten times each.
void write_files(const Scratch& scratch, const Communicator& world, bool closes) {
  const DeviceMesh mesh(world, {{"dp", world.size()}});
  StateDict state;
  state.tensors.emplace("model/w", numbers({64, 33}, 1, Sharding(mesh, Placements{Shard(0)})));
  CheckpointSaver saver(world, scratch.path("saved"));
  for (int step = 1; step <= 10; ++step) {
    if (closes) {
      world.barrier();
      if (world.rank() == 0) close_standard();
      world.barrier();
    }
    const std::string saved = saver.save(step, state);
    world.barrier();
    export_hugging_face(saved, scratch.path(concat("model-", step)), world);
    if (world.rank() != 0) continue;
    OutputFile file("test", scratch.path("text"), OutputFile::Mode::append);
    file.write("line\n");
    file.close();
  }
}

/// 0 when all files are as they were written.
int code_of_files(const Scratch& scratch) {
  const auto saved = list_checkpoints(scratch.path("saved"));
  if (saved.size() != 10) return 1;
  for (const std::string& path : saved) {
    if (inspect_checkpoint(path).verdict != Verdict::complete) return 2;
  }
  std::string lines, bytes;
  for (int step = 1; step <= 10; ++step) {
    lines += "line\n";
    const std::string name = concat("model-", step, "/model.safetensors");
    const std::string model = bytes_in(scratch.path(name));
    if (model.find("printed") != std::string::npos || model.size() < 8448) return 3;
    if (!bytes.empty() && bytes != model) return 4;
    bytes = model;
  }
  return bytes_in(scratch.path("text")) == lines ? 0 : 5;
}

TEST(Descriptors, OfFilesAreNotThoseThatTextIsPrintedTo) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer does not follow forks";
  for (const int ranks : {1, 3}) {
    for (const bool closes_later : {false, true}) {
      const Scratch scratch;
      const int code = code_of_child([&] {
        close_standard();
        const Printer printer;
        run_ranks(ranks, [&](Communicator world) { write_files(scratch, world, closes_later); });
        return code_of_files(scratch);
      });
      EXPECT_EQ(code, 0) << ranks << " ranks" << (closes_later ? ", closed later" : "");
    }
  }
}

TEST(Descriptors, OfProcessesAreNotThoseThatTextIsPrintedTo) {
  if (!kForks) GTEST_SKIP() << "the thread sanitizer does not follow forks";
  const Scratch scratch;
  const std::vector<pid_t> children = fork_ranks(3, [&] {
    close_standard();
    const Printer printer;
    run_world(3, [&](Communicator world) { write_files(scratch, world, false); });
    return 0;
  });
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(code_of_files(scratch), 0);
}

TEST(Descriptors, OfAnOutputFileReportWhatIsNotWritten) {
  const Scratch scratch;
  EXPECT_EQ(error_of([&] { OutputFile("--metrics", scratch.root(), OutputFile::Mode::append); }),
            concat("--metrics: \"", scratch.root(), "\" cannot be written: Is a directory"));
  OutputFile full("--metrics", "/dev/full", OutputFile::Mode::append);
  EXPECT_EQ(error_of<std::runtime_error>([&] { full.write("x"); }),
            "write: --metrics: \"/dev/full\": No space left on device");
}

}  // namespace
}  // namespace weft
