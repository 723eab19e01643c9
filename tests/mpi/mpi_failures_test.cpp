// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>

#include "tests/support/command.h"
#include "tests/support/short_calls.h"

namespace weft {

/// The end of a job under mpirun, and its output.
struct JobEnd {
  int code = 0;
  double seconds = 0;
  std::string text;
};

static std::string value_of(const char* name, const char* usual) {
  const char* value = std::getenv(name);
  return value ? value : usual;
}
/// Starts jobs by Open MPI, or by another MPI, for which the program was then built.
static std::string mpirun() {
  return value_of("WEFT_MPIRUN", WEFT_MPIRUN " --oversubscribe --bind-to none");
}
/// MPICH's mpiexec kills all processes when one ends without MPI_Finalize, and returns the code of
/// that one: the others may not report, and the code may be 0.
static bool kills_at_once() { return std::getenv("WEFT_MPIRUN") != nullptr; }
static std::string program() { return value_of("WEFT_MISBEHAVE", WEFT_MISBEHAVE); }

static JobEnd end_of_job(int ranks, const std::string& misdeed) {
  const auto begin = std::chrono::steady_clock::now();
  // Without /sys, hwloc would print errors into the output.
  const std::string command = concat("HWLOC_HIDE_ERRORS=2 ", mpirun(), " -n ", ranks, " ",
                                     program(), " ", misdeed, " 2>&1");
  const tests::Outcome outcome = tests::run_command(command);
  const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - begin;
  return {outcome.code, lasted.count(), outcome.text};
}

/// Rank 1's failure (see misbehave.cpp), and the expected text. "ALL" stands for the ranks that
/// arrived.
struct MpiMisdeed {
  const char* name;
  std::string says;
  /// The ranks that print the text: all others, all, at least one.
  enum Who { others, all, one } who = others;
  bool is_found_by_mpirun = false;
};

static std::vector<MpiMisdeed> mpi_misdeeds() {
  const std::string late = others_say("rank 1 did not call it within 800 ms; arrived: rank 0");
  const std::string told_to_end = "; rank 1 did not call it; arrived: rank 0";
  return {
      {"Throws", others_say("given up: rank 1 threw: boom")},
      {"ReturnsEarly", others_say("rank 1 ended and did not call it")},
      {"Stops", late},
      {"LoopsForEver", late},
      {"CallsAnotherOperation", diverged("barrier()"), MpiMisdeed::all},
      {"CallsWithAnotherDType", diverged("all_reduce(sum, i32, [4])"), MpiMisdeed::all},
      {"CallsWithAnotherCount", diverged("all_reduce(sum, f32, [5])"), MpiMisdeed::all},
      {"CallsInAnotherOrder", diverged("broadcast(root 0, f32, [1])"), MpiMisdeed::all},
      {"CallsWithAnotherReduction", diverged("all_reduce(max, f32, [4])"), MpiMisdeed::all},
      {"CallsLargeOperation", diverged("all_gather(f32, [100000, 100000"), MpiMisdeed::all},
      {"GivesUp", others_say("given up: rank 1 gave up: no data left")},
      {"ThrowsPastWork",
       others_say("given up: world: message 1: recv(f32, [1], from rank 0, tag 0): given up by "
                  "rank 1, which threw")},
      {"RootsDiffer",
       "world: collective 3: rank 0 called broadcast(root 0, f32, [1]) but rank 1 called "
       "broadcast(root 1, f32, [1])",
       MpiMisdeed::all},
      {"SubjectsDiffer",
       "world: collective 3: rank 0 called broadcast(root 0, f32, [1]) of a but rank 1 called "
       "broadcast(root 0, f32, [1]) of b; call modules in the same order on all ranks",
       MpiMisdeed::all},
      {"CountsOfPairsDiffer",
       "world: collective 3: all_to_all(f32): rank 1 sends 1 elements to rank 0, which expects 4",
       MpiMisdeed::one},
      {"MessageSizesDiffer",
       "world: message 1: recv(f32, [4], from rank 1, tag 3): rank 1 sent (f32, [5])",
       MpiMisdeed::one},
      {"MessageDTypesDiffer",
       "world: message 1: recv(f32, [4], from rank 1, tag 3): rank 1 sent (i32, [4])",
       MpiMisdeed::one},
      {"LargeMessagesDiffer",
       "world: message 1: recv(f32, [4], from rank 1, tag 3): rank 1 sent (f64, [100000])",
       MpiMisdeed::one},
      {"NobodySends",
       "world: message 1: recv(f32, [1], from rank 1, tag 0): rank 1 ended and did not send it",
       MpiMisdeed::one},
      {"NobodyReceives",
       "world: message 1: send(f32, [1], to rank 1, tag 0): rank 1 ended and did not receive it",
       MpiMisdeed::one},
      {"AMemberOfAPairEnds",
       "world/pair: collective 1: barrier(): rank 0 (rank 1 of the world) ended and did not call "
       "it",
       MpiMisdeed::one},
      {"DiesInTransfer", "rank 1 is gone and did not finish it"},
      {"GoesOnAfterAFailure",
       "world: collective 4: all_reduce(sum, f32, [4]): given up: rank 1 threw: boom"},
      // mpirun notices these first, reports the process, and ends the others.
      {"Exits0", told_to_end, MpiMisdeed::others, true},
      {"Exits3", told_to_end, MpiMisdeed::others, true},
      {"IsKilled", told_to_end, MpiMisdeed::others, true},
      {"Crashes", told_to_end, MpiMisdeed::others, true},
  };
}

static int times_in(const std::string& text, const std::string& part) {
  int times = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++times;
  return times;
}

/// The longest time in lines such as "rank 0 after 0.8 s: ...".
static double latest_in(const std::string& text) {
  static const std::string mark = " after ";
  double latest = 0;
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    latest = std::max(latest, std::strtod(text.c_str() + at + mark.size(), nullptr));
  }
  return latest;
}

static void check_end(const MpiMisdeed& misdeed, int ranks, const JobEnd& end) {
  SCOPED_TRACE(concat(misdeed.name, " on ", ranks, " ranks: ", end.text));
  EXPECT_TRUE(end.code != 0 || kills_at_once());
  int expected =
      misdeed.who == MpiMisdeed::one ? 1 : ranks - (misdeed.who == MpiMisdeed::others ? 1 : 0);
  if (kills_at_once()) expected = misdeed.is_found_by_mpirun ? 0 : 1;
  EXPECT_GE(times_in(end.text, misdeed.says), expected) << misdeed.says;
  // The deadline plus two seconds; mpirun takes long to start and end many jobs together.
  EXPECT_LT(latest_in(end.text), 0.8 + 2);
  EXPECT_LT(end.seconds, 15);
}

TEST(MpiFailures, AllRanksEndAndSayWhy) {
  for (const int ranks : {2, 4}) {
    const auto misdeeds = mpi_misdeeds();
    // The jobs wait most of the time, so that a few run together.
    constexpr size_t together = 12;
    for (size_t begin = 0; begin < misdeeds.size(); begin += together) {
      const size_t end = std::min(misdeeds.size(), begin + together);
      std::vector<std::future<JobEnd>> ends;
      for (size_t i = begin; i < end; ++i) {
        ends.push_back(std::async(std::launch::async, end_of_job, ranks, misdeeds[i].name));
      }
      for (size_t i = begin; i < end; ++i) check_end(misdeeds[i], ranks, ends[i - begin].get());
    }
  }
}

TEST(MpiFailures, AJobThatGoesWellSaysNothing) {
  for (const int ranks : {1, 2, 3}) {
    const JobEnd end = end_of_job(ranks, "GoesWell");
    EXPECT_EQ(end.code, 0);
    EXPECT_EQ(end.text, "");
  }
}

TEST(MpiFailures, ARankThatWaitsForNobodyObeysASignalToEnd) {
  // 124: the job ended within the five seconds between the signals TERM and KILL.
  const int status = std::system(concat("timeout -k 5 1 ", program(), " LoopsAlone").c_str());
  EXPECT_EQ(WEXITSTATUS(status), 124);
}

TEST(MpiFailures, ARankThatDoesNotBeginIsWaitedForUntilTheDeadline) {
  const JobEnd end = end_of_job(2, "StopsBeforeTheStart");
  EXPECT_NE(end.code, 0);
  EXPECT_EQ(times_in(end.text, "connect: MPI did not begin within 3000 ms on rank 0"), 1)
      << end.text;
  EXPECT_LT(end.seconds, 15);
}

TEST(MpiFailures, AProgramMayBeginMpiItself) {
  for (const char* job : {"HasMpi", "HasFunneledMpi"}) {
    const JobEnd end = end_of_job(2, job);
    EXPECT_EQ(end.code, 0);
    EXPECT_EQ(end.text, "");
  }
}

}  // namespace weft
