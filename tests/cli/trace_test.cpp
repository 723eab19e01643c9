// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/command.h"
#include "tests/support/scratch.h"
#include "weft/error.h"

namespace weft::tests {
namespace {

using nlohmann::json;

/// Runs a shell command in which $WEFT is the program, errors and output together.
Outcome shell(const std::string& command) {
  return run_command(concat("exec 2>&1; WEFT=", WEFT_PROGRAM, "; ", command));
}

/// An event of a trace, in nanoseconds.
struct Event {
  int rank, lane;
  int64_t begin, end;
  std::string category, name;
  json arguments;
  bool contains(const Event& other) const { return begin <= other.begin && other.end <= end; }
};

/// The timed events of a file.
std::vector<Event> events_in(const json& trace) {
  std::vector<Event> events;
  const auto nanoseconds = [](const json& time) {
    return static_cast<int64_t>(std::llround(time.get<double>() * 1000));
  };
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int64_t begin = nanoseconds(event.at("ts"));
    events.push_back({event.at("pid"), event.at("tid"), begin, begin + nanoseconds(event.at("dur")),
                      event.at("cat"), event.at("name"), event.at("args")});
  }
  return events;
}

/// Checks that events of one lane are nested or disjoint.
void expect_nested(std::vector<Event> events) {
  std::map<std::pair<int, int>, std::vector<Event>> lanes;
  for (Event& event : events) lanes[{event.rank, event.lane}].push_back(event);
  for (auto& [where, lane] : lanes) {
    std::sort(lane.begin(), lane.end(), [](const Event& a, const Event& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<Event> open;
    for (const Event& event : lane) {
      EXPECT_LE(event.begin, event.end);
      while (!open.empty() && open.back().end <= event.begin) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(event.end, open.back().end) << event.name << " leaves " << open.back().name;
      }
      open.push_back(event);
    }
  }
}

class Trace : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i) + " of a repeating text\n";
    text_ = scratch_.write("text.txt", text);
  }
  std::string train(const std::string& more) const {
    return "$WEFT train --data " + text_ + " --steps 2 --batch 4 --seq 16 " + more;
  }
  json parsed(const std::string& name) const {
    std::ifstream file(scratch_.path(name));
    return json::parse(file);
  }
  void expect_wrong(const std::string& arguments, const std::string& sentence) const {
    expect(shell("$WEFT trace " + arguments), 2, sentence);
  }
  /// A two-rank training's trace, against what else is known of it.
  void check_training(const json& trace, const std::string& metrics) const;

  Scratch scratch_;
  std::string text_;
};

void Trace::check_training(const json& trace, const std::string& metrics) const {
  const std::vector<Event> events = events_in(trace);
  expect_nested(events);
  std::ifstream file(metrics);
  for (int step = 1; step <= 2; ++step) {
    std::string line;
    ASSERT_TRUE(std::getline(file, line));
    for (int rank = 0; rank < 2; ++rank) {
      const auto is_step = [&](const Event& event) {
        return event.rank == rank && event.name == "step " + std::to_string(step);
      };
      ASSERT_EQ(std::count_if(events.begin(), events.end(), is_step), 1);
      const Event span = *std::find_if(events.begin(), events.end(), is_step);
      std::map<std::string, int> counts;
      int64_t bytes = 0, gathered = 0;
      for (const Event& event : events) {
        if (event.rank != rank || !span.contains(event)) continue;
        ++counts[event.category + ' ' + event.name];
        if (event.category != "collective") continue;
        EXPECT_EQ(event.arguments.at("state"), "done");
        EXPECT_FALSE(event.arguments.at("communicator").get<std::string>().empty());
        // Votes on wrong labels do not count as moved bytes.
        const bool is_vote =
            event.arguments.at("call").get<std::string>().starts_with("all_reduce(min, i64, [1])");
        if (!is_vote) bytes += event.arguments.at("bytes").get<int64_t>();
        if (event.name == "all_gather") gathered += event.arguments.at("bytes").get<int64_t>();
      }
      // tiny has 4 layers of 7 products, and the head; each has two more for gradients.
      EXPECT_EQ(counts["op linear"], 4 * 7 + 1) << json(counts).dump(1);
      EXPECT_EQ(counts["op,backward matmul"] + counts["op,backward linear_weight_gradient"],
                2 * (4 * 7 + 1))
          << json(counts).dump(1);
      EXPECT_GT(counts["collective all_gather"], 4);
      // Half of the parameters, in f32, twice: for the forward and for the backward pass.
      EXPECT_EQ(gathered % 4, 0);
      EXPECT_GE(gathered, 3082496 / 2 * 4);
      if (rank == 0) {
        EXPECT_EQ(bytes, json::parse(line).at("bytes_moved"));
      }
    }
  }
  EXPECT_EQ(trace.at("otherData").at("dropped_events"), (json{{"rank 0", 0}, {"rank 1", 0}}));
}

TEST_F(Trace, ShowsATrainingOfThreads) {
  const std::string metrics = scratch_.path("metrics.jsonl");
  const Outcome outcome =
      shell(train("--ranks 2 --metrics " + metrics + " --trace " + scratch_.path("trace.json")));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  check_training(parsed("trace.json"), metrics);
}

TEST_F(Trace, ShowsATrainingOfProcesses) {
  const std::string metrics = scratch_.path("metrics.jsonl");
  const Outcome outcome = shell("$WEFT run -n 2 -- " + train("--metrics " + metrics + " --trace " +
                                                             scratch_.path("trace.json")));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  check_training(parsed("trace.json"), metrics);
}

TEST_F(Trace, RefusesAFileThatCannotBeWritten) {
  expect(shell(train("--trace /no/such/folder/trace.json")), 2,
         "--trace: \"/no/such/folder/trace.json\" cannot be written");
}

/// A record of one operation a list entry: posted, started, ended (-1: null).
std::string record(int rank, int64_t steady, int64_t wall,
                   const std::vector<std::array<int64_t, 3>>& times) {
  json record{{"weft_flight", 1},
              {"rank", rank},
              {"ranks", 3},
              {"host", "host" + std::to_string(rank)},
              {"process", 1},
              {"reason", "a \"test\""},
              {"clock", {{"steady", steady}, {"wall", wall}}},
              {"forgotten", 0},
              {"operations", json::array()}};
  for (const auto& [posted, started, ended] : times) {
    const auto time = [](int64_t t) { return t < 0 ? json(nullptr) : json(t); };
    record["operations"].push_back({{"number", 1},
                                    {"communicator", "world"},
                                    {"sequence", record["operations"].size() + 1},
                                    {"kind", "barrier"},
                                    {"words", "barrier()"},
                                    {"state", ended < 0 ? "posted" : "done"},
                                    {"bytes", 8},
                                    {"posted", posted},
                                    {"started", time(started)},
                                    {"ended", time(ended)}});
  }
  return record.dump();
}

TEST_F(Trace, MergesHostsByWallTime) {
  // Clocks that are 1000 s apart; rank 0's second operation overlaps its first and does not end.
  scratch_.write("r/rank-0.json",
                 record(0, 5'200, 900'000'000'005'200, {{1'000, 1'500, 2'000}, {1'800, -1, -1}}));
  scratch_.write("r/rank-2.json",
                 record(2, 1'000'000'005'000, 900'000'000'005'000,
                        {{1'000'000'000'500, 1'000'000'001'500, 1'000'000'002'001}}));
  scratch_.write("r/notes.txt", "not a record");
  const Outcome outcome =
      shell("$WEFT trace " + scratch_.path("r") + " -o " + scratch_.path("trace.json"));
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "2 ranks, 3 operations, 1 of them unfinished, over 0.000005 s: " +
                              scratch_.path("trace.json") + "\nno record of rank 1\n");
  const json trace = parsed("trace.json");
  const std::vector<Event> events = events_in(trace);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].rank, 0);
  EXPECT_EQ(events[0].begin, 500);
  EXPECT_EQ(events[0].end, 1'500);
  EXPECT_EQ(events[0].name, "barrier");
  EXPECT_EQ(events[0].arguments.at("waited_ns"), 500);
  EXPECT_EQ(events[1].begin, 1'300);
  EXPECT_EQ(events[1].end, 4'700);
  EXPECT_EQ(events[1].name, "barrier (posted)");
  EXPECT_NE(events[1].lane, events[0].lane);
  EXPECT_EQ(events[2].rank, 2);
  EXPECT_EQ(events[2].begin, 0);
  EXPECT_EQ(events[2].end, 1'501);
  expect_nested(events);
  std::set<std::string> names;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("name") == "process_name") names.insert(event.at("args").at("name"));
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0", "rank 2"}));
}

TEST_F(Trace, RefusesWhatIsNoRecord) {
  const std::string out = " -o " + scratch_.path("trace.json");
  const std::string good = record(0, 10, 20, {{1, 2, 3}});
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return scratch_.write("changed.json", text) + out;
  };
  expect_wrong("", "records");
  expect_wrong(scratch_.write("good.json", good), "--out");
  expect_wrong("/no/such/file" + out, "cannot open /no/such/file");
  expect_wrong(scratch_.root() + out, "holds no flight record");
  expect_wrong(scratch_.write("empty.json", "") + out, "empty.json is empty");
  expect_wrong(scratch_.write("cut.json", good.substr(0, good.size() / 2)) + out, "not valid JSON");
  expect_wrong(scratch_.write("other.json", "{}") + out, "\"weft_flight\" is missing");
  expect_wrong(with("\"weft_flight\":1", "\"weft_flight\":2"), "version 2");
  expect_wrong(with("\"rank\":0", "\"rank\":3"), "\"rank\" is 3; from 0 to 2");
  expect_wrong(with("\"posted\":1", "\"posted\":\"now\""),
               "operation 0: \"posted\" is not a whole number");
  expect_wrong(with("\"posted\":1", "\"posted\":-1"), "\"posted\" is -1");
  expect_wrong(with("\"bytes\":8", "\"bytes\":18446744073709551615"), "\"bytes\" is 1844674407");
  expect_wrong(with("\"steady\":10", "\"unsteady\":10"), "clock: \"steady\" is missing");
  expect_wrong(scratch_.path("good.json") + ' ' + scratch_.path("good.json") + out,
               "are both of rank 0");
  expect_wrong(scratch_.path("good.json") + " -o /no/such/folder/x.json", "cannot be written");
  expect_wrong(scratch_.path("good.json") + " -o " + scratch_.root(), "cannot be written");
}

TEST_F(Trace, ShowsWhatRanksDidWhenAJobFailed) {
  const std::string metrics = scratch_.path("metrics.jsonl");
  const std::string flight = scratch_.path("flight");
  // Rank 1 is killed in the midst of it.
  const Outcome failed =
      shell("export WEFT_FLIGHT=" + flight + "; $WEFT run -n 2 -- sh -c '" +
            "if test $WEFT_RANK = 1; then (while ! test -s " + metrics +
            "; do sleep 0.02; done; sleep 0.1; kill -KILL $$) & fi; exec \"$0\" \"$@\"' " +
            train("--steps 100000 --metrics " + metrics));
  expect(failed, 128 + 9, "weft run: rank 1 was killed by SIGKILL after");
  const Outcome merged = shell("$WEFT trace " + flight + " -o " + scratch_.path("trace.json"));
  ASSERT_EQ(merged.code, 0) << merged.text;
  EXPECT_NE(merged.text.find("no record of rank 1"), std::string::npos) << merged.text;
  const std::vector<Event> events = events_in(parsed("trace.json"));
  EXPECT_GT(events.size(), 20u);
  EXPECT_LE(events.size(), 1024u);
  expect_nested(events);
  const auto has_failed = [](const Event& event) { return event.name.ends_with(" (failed)"); };
  EXPECT_EQ(std::count_if(events.begin(), events.end(), has_failed), 1);
}

TEST_F(Trace, ShowsWhatRanksDoAtASignal) {
  const std::string metrics = scratch_.path("metrics.jsonl");
  const std::string flight = scratch_.path("flight");
  expect(shell("export WEFT_FLIGHT=" + flight + "; " +
               train("--ranks 2 --steps 100000 --metrics " + metrics) +
               ">/dev/null & while ! test -s " + metrics +
               "; do sleep 0.02; done; kill -USR1 $!; while ! test -e " + flight +
               "/rank-1.json; do sleep 0.02; done; kill -KILL $!; $WEFT trace " + flight + " -o " +
               scratch_.path("trace.json")),
         0, "2 ranks, ");
  std::set<int> ranks;
  for (const Event& event : events_in(parsed("trace.json"))) ranks.insert(event.rank);
  EXPECT_EQ(ranks, (std::set<int>{0, 1}));
}

}  // namespace
}  // namespace weft::tests
