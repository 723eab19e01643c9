// SPDX-License-Identifier: Apache-2.0
// One training as threads, as processes and under MPI.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch.h"
#include "weft/checkpoint.h"
#include "weft/error.h"

namespace weft {

static const std::string kProgram = WEFT_PROGRAM;
static const std::string kText = WEFT_SOURCE_DIR "/include/weft";

/// The way in which four ranks are started.
struct Way {
  const char* name;
  std::string command;
};

static bool has_mpirun() { return std::system("command -v mpirun >/dev/null 2>&1") == 0; }

static std::vector<Way> ways() {
  std::vector<Way> all = {{"threads", concat(kProgram, " train --ranks 4")},
                          {"processes", concat(kProgram, " run -n 4 -- ", kProgram, " train")}};
  if (has_mpirun()) {
    all.push_back({"mpi", concat("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun "
                                 "--oversubscribe -n 4 ",
                                 kProgram, " train")});
  }
  return all;
}

static std::vector<double> losses_in(const std::string& path) {
  std::vector<double> losses;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    losses.push_back(nlohmann::json::parse(line).at("loss").get<double>());
  }
  return losses;
}

/// Trains six steps and saves the third; losses of all steps made.
static std::vector<double> trained(const Scratch& scratch, const Way& way, const std::string& name,
                                   const std::string& more) {
  const std::string metrics = scratch.path(concat(name, ".jsonl"));
  const std::string command =
      concat(way.command, " --data ", kText, " --mesh dp=2,tp=2 --steps 6 --batch 4 --seq 64",
             " --seed 5 --metrics ", metrics, ' ', more, " >", scratch.path(concat(name, ".log")),
             " 2>&1");
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return losses_in(metrics);
}

TEST(Jobs, ThreadsProcessesAndMpiGiveTheSameBits) {
  if (!has_mpirun()) std::printf("skipped: Jobs under mpirun, which is not installed\n");
  const Scratch scratch;
  const std::vector<Way> all = ways();
  std::vector<std::vector<double>> losses;
  for (const Way& way : all) {
    const std::string saves = concat("--save ", scratch.path(way.name), " --save-every 3");
    losses.push_back(trained(scratch, way, concat(way.name, "-whole"), saves));
    ASSERT_EQ(losses.back().size(), 6u) << way.name;
    EXPECT_EQ(losses.back(), losses.front()) << way.name;
  }
  for (size_t i = 0; i < all.size(); ++i) {
    // Checkpoints of the previous job.
    const auto saved = list_checkpoints(scratch.path(all[(i + 1) % all.size()].name));
    ASSERT_EQ(saved.size(), 2u);
    const std::string& from = saved.back();
    const std::vector<double> rest =
        trained(scratch, all[i], concat(all[i].name, "-rest"), concat("--resume ", from));
    EXPECT_EQ(rest, std::vector<double>(losses[0].begin() + 3, losses[0].end())) << all[i].name;
  }
}

TEST(Jobs, AnotherNumberOfRanksIsRefused) {
  const Scratch scratch;
  const std::string said = scratch.path("said");
  const std::string command =
      concat(kProgram, " run -n 2 -- ", kProgram, " train --data ", kText, " --ranks 4 2>", said);
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 2);
  std::string text;
  std::getline(std::ifstream(said), text);
  EXPECT_NE(
      text.find("--ranks is 4, expected 2, that of the job of this process; leave --ranks out"),
      std::string::npos)
      << text;
}

/// Exit code and stderr of a command.
static std::pair<int, std::string> said_by(const Scratch& scratch, const std::string& command) {
  const std::string said = scratch.path("said");
  const int status = std::system(concat(command, " >/dev/null 2>", said).c_str());
  return {WEXITSTATUS(status), bytes_in(said)};
}

TEST(Jobs, RanksWithOtherFlagsAreRefused) {
  const Scratch scratch;
  for (const char* flag :
       {"--seed 1$WEFT_RANK", "--mesh dp=$((2 - WEFT_RANK)),tp=$((1 + WEFT_RANK))"}) {
    const auto [code, text] =
        said_by(scratch, concat(kProgram, " run -n 2 -- sh -c '", kProgram, " train --data ", kText,
                                " --steps 1 --batch 4 --seq 32 ", flag, "'"));
    EXPECT_EQ(code, 2) << text;
    EXPECT_NE(text.find("rank 1 was started as weft train --data"), std::string::npos) << text;
    EXPECT_NE(text.find("but rank 0 as weft train --data"), std::string::npos) << text;
    EXPECT_NE(text.find(" exited with code 2"), std::string::npos) << text;
  }
}

TEST(Jobs, HalfASetOfVariablesIsRefused) {
  const Scratch scratch;
  const auto [code, text] = said_by(
      scratch, concat("RANK=0 WORLD_SIZE=2 ", kProgram, " train --data ", kText, " --steps 1"));
  EXPECT_EQ(code, 2);
  EXPECT_EQ(text,
            "weft: connect: the environment variable WORLD_SIZE is set and MASTER_PORT is not, "
            "expected both\n");
}

}  // namespace weft
