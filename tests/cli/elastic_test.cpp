// SPDX-License-Identifier: Apache-2.0

// Jobs that go on with other ranks, from copies in the memory of the host.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/command.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft::tests {
namespace {

Outcome run(const std::string& command) {
  return run_command(concat("exec 2>&1; ", WEFT_PROGRAM, ' ', command));
}

class Elastic : public testing::Test {
 protected:
  Scratch scratch_;
};

TEST_F(Elastic, GoesOnFromTheNewestCopy) {
  const std::string text = scratch_.write("text", std::string(4000, 'a') + "bcd");
  const auto train = [&](const std::string& save) {
    return concat(WEFT_PROGRAM, " train --data ", text,
                  " --model tiny --seq 16 --batch 4 --threads 1 --steps 16 --save ", save);
  };
  const std::string whole = scratch_.path("whole"), killed = scratch_.path("killed");
  expect(run(concat("run -n 2 -- ", train(whole))), 0, "saved");
  // Rank 1 is killed when there is a copy of step 3 or a later one.
  const Outcome outcome = run(
      concat("run -n 2 --restarts 1 --redundancy host -- sh -c 'if test $WEFT_RANK = 1 && test -z "
             "\"$WEFT_RESTART\"; then (while ! ls $WEFT_COPIES/*/step-*[3-7]-*/* >/dev/null 2>&1; "
             "do sleep 0.01;"
             " done; kill -KILL $$) & fi; exec \"$0\" \"$@\"' ",
             train(killed), " --resume ", killed));
  expect(outcome, 0, "weft run: rank 1 was killed by SIGKILL");
  expect(outcome, 0, "restart 1 of 1 at once");
  expect(run(concat("ckpt diff ", whole, "/step-*16-* ", killed, "/step-*16-*")), 0,
         " 0 differences");
  const size_t from = outcome.text.find("resumed from /dev/shm/weft-job-");
  ASSERT_NE(from, std::string::npos) << outcome.text;
  const std::string folder = outcome.text.substr(from + 13);
  EXPECT_FALSE(std::filesystem::exists(folder.substr(0, folder.find('/', 10))));
}

/// Two ranks become three, of which one is killed, then one leaves.
TEST_F(Elastic, ChangesItsNumberOfRanks) {
  const std::string program = scratch_.write("program", concat(R"(
echo "start ${WEFT_RESTART:-0} with $WEFT_WORLD_SIZE"
trap 'exit 143' TERM
case ${WEFT_RESTART:-0}-$WEFT_RANK in
  0-0) )",
                                                               WEFT_PROGRAM, R"( resize $PPID 4
    )",
                                                               WEFT_PROGRAM, R"( resize $PPID 3 ;;
  1-2) kill -KILL $$ ;;
  2-1) kill -TERM $$ ;;
  3-0) exit 0 ;;
esac
while :; do sleep 0.1; done
)"));
  const Outcome outcome = run(concat("run -n 2 --elastic 1:3 --no-prefix -- sh ", program));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  for (const char* line :
       {"start 0 with 2", "resize: number of ranks is 4, expected 1 to 3, as --elastic says",
        "restart 1 of 100 at once with -n 3", "start 1 with 3", "rank 2 was killed by SIGKILL",
        "restart 2 of 100 in 1 s with -n 2", "start 2 with 2", "rank 1 exited with code 143",
        "restart 3 of 100 at once with -n 1", "start 3 with 1"}) {
    EXPECT_NE(outcome.text.find(line), std::string::npos) << line << '\n' << outcome.text;
  }
  // A job of the fewest ranks ends when one of them leaves.
  expect(run("run -n 1 --elastic 1:2 -- sh -c 'exit 143'"), 143, "rank 0 exited with code 143");
}

/// Ranks that ignore SIGTERM are killed; the job goes on with the other number.
TEST_F(Elastic, EndsRanksThatIgnoreAResize) {
  const std::string program = scratch_.write("program", concat(R"(
test -z "$WEFT_RESTART" || exit 0
trap '' TERM
test $WEFT_RANK = 1 || )",
                                                               WEFT_PROGRAM, R"( resize $PPID 1
while :; do sleep 0.1; done
)"));
  const Outcome outcome =
      run(concat("run -n 2 --elastic 1:2 --grace 0.3 --no-prefix -- sh ", program));
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  for (const char* line : {"did not end within 0.3 s of SIGTERM and is killed",
                           "restart 1 of 100 at once with -n 1"}) {
    EXPECT_NE(outcome.text.find(line), std::string::npos) << line << '\n' << outcome.text;
  }
}

/// A launcher that waits to start its ranks again has ended, and removed its folder, when it is
/// told to.
TEST_F(Elastic, EndsBetweenTwoStarts) {
  const std::string said = scratch_.path("said");
  const Outcome outcome = run_command(
      concat("exec 2>&1; ", WEFT_PROGRAM, " run -n 1 --redundancy host -- sh -c 'exit 3' >", said,
             " 2>&1 & launcher=$!; while ! grep -qs 'in 1 s' ", said, "; do sleep 0.05; done; ",
             "kill -TERM $launcher; wait $launcher; echo code $?; ",
             "ls -d /dev/shm/weft-job-*-$launcher-* 2>/dev/null | wc -l"));
  EXPECT_EQ(outcome.text, "code 143\n0\n");
}

TEST_F(Elastic, RefusesWrongFlags) {
  const std::pair<const char*, const char*> cases[] = {
      {"run -n 2 --elastic 3 -- true", "--elastic is \"3\", expected MIN:MAX ranks"},
      {"run -n 2 --elastic 3:2 -- true", "--elastic is \"3:2\", expected MIN:MAX ranks"},
      {"run -n 2 --elastic 3:4 -- true", "run: -n is 2, expected 3 to 4, as --elastic says"},
      {"run -n 2 --redundancy moon -- true", "--redundancy"},
      {"run -n 2 --hosts 2 --host-rank 0 --rendezvous a:1 --elastic 1:2 -- true",
       "run: --elastic is given with --hosts 2, expected one host"},
      {"run -n 2 --hosts 2 --host-rank 0 --rendezvous a:1 --redundancy host -- true",
       "run: --redundancy is host with --hosts 2, expected mirror, which survives the loss of a "
       "host"},
      {"run -n 2 --redundancy parity -- true",
       "run: --redundancy is parity, expected none, host or mirror"},
      {"run -n 2 --rejoin -- true",
       "run: --rejoin is given without --hosts, expected a job of several hosts"},
      {"resize 1 2", "resize: process 1 has no elastic job, expected that of a weft run --elastic"},
      {"resize 1", "ranks"},
  };
  for (const auto& [arguments, words] : cases) expect(run(arguments), 2, words);
}

}  // namespace
}  // namespace weft::tests
