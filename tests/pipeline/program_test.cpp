// SPDX-License-Identifier: Apache-2.0
#include "weft/pipeline_program.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <tuple>

#include "weft/error.h"

namespace weft {
namespace {

using Act = PipelineAct;
using Fault = PipelineFault;

template <class F> std::string error_of(const F& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

/// Time of a rank that is not spent on its microbatches, each of three units a chunk.
double idle(const PipelineProgram& program, const PipelineTimes& times = {}) {
  const double each = times.forward + times.backward_input + times.backward_weight;
  const double chunks = program.stages() / program.ranks();
  return predict(program, times).seconds - each * chunks * program.microbatches;
}

TEST(Program, EveryGeneratedOneIsSound) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int microbatches = 1; microbatches <= 9; ++microbatches) {
      for (const char* name : {"gpipe", "1f1b", "zb", "interleaved"}) {
        for (int chunks = 1; chunks <= (name[0] == 'i' ? 3 : 1); ++chunks) {
          const PipelineProgram program = pipeline_program(name, ranks, microbatches, chunks);
          EXPECT_TRUE(defects_of(program).empty()) << program << defects_of(program).front().text;
        }
      }
    }
  }
}

/// The formulas of Narayanan et al. (2021) and of table 1 of Qi et al. (2023).
TEST(Program, BubblesAreThoseOfThePapers) {
  for (int p = 1; p <= 6; ++p) {
    for (const int m : {p, 2 * p, 5 * p}) {
      for (const PipelineTimes& times : {PipelineTimes(), PipelineTimes{1, 1.25, 0.75}}) {
        const double whole = times.forward + times.backward_input + times.backward_weight;
        EXPECT_NEAR(idle(gpipe(p, m), times), (p - 1) * whole, 1e-9);
        EXPECT_NEAR(idle(one_forward_one_backward(p, m), times), (p - 1) * whole, 1e-9);
        EXPECT_NEAR(idle(interleaved(p, m, 2), times), (p - 1) * whole, 1e-9);
      }
      EXPECT_NEAR(idle(zero_bubble(p, m)), p - 1, 1e-9);
    }
  }
}

TEST(Program, MemoryIsThatOfThePapers) {
  for (int p = 1; p <= 5; ++p) {
    const std::vector<int> all = predict(gpipe(p, 8)).held;
    const std::vector<int> some = predict(one_forward_one_backward(p, 8)).held;
    const std::vector<int> zero = predict(zero_bubble(p, 8)).held;
    for (int r = 0; r < p; ++r) {
      EXPECT_EQ(all[static_cast<size_t>(r)], 8);
      EXPECT_EQ(some[static_cast<size_t>(r)], p - r);
      EXPECT_LE(zero[static_cast<size_t>(r)], p);
    }
  }
}

TEST(Program, Prints) {
  std::ostringstream out;
  out << one_forward_one_backward(2, 2) << interleaved(1, 1, 2);
  EXPECT_EQ(out.str(),
            "1f1b: 2 stages on 2 ranks, 2 microbatches\n"
            "rank 0: F0 >F0 F1 >F1 <B0 B0 <B1 B1 R\n"
            "rank 1: <F0 F0 <F1 B0 >B0 F1 B1 >B1 R\n"
            "interleaved: 2 stages on 1 ranks, 1 microbatches\n"
            "rank 0: F0.0 F0.1 B0.1 R.1 B0.0 R.0\n");
  const Picture picture = visualize(zero_bubble(2, 2));
  EXPECT_EQ(picture.text,
            "zb: 2 stages on 2 ranks, 2 microbatches, 14.3 % bubble\n"
            "rank 0: F0 F1    I0 W0 I1 W1\n"
            "rank 1:    F0 I0 F1 I1 W0 W1");
  EXPECT_EQ(picture.svg.find("<svg "), 0U);
  EXPECT_NE(picture.svg.find(">W1</text>"), std::string::npos);
}

/// A program with one step removed, repeated, or exchanged with a later one of its rank.
PipelineProgram broken(const PipelineProgram& program, int way, std::mt19937& random) {
  PipelineProgram changed = program;
  auto& steps = changed.steps[random() % changed.steps.size()];
  const size_t i = random() % steps.size();
  if (way == 0) steps.erase(steps.begin() + static_cast<long>(i));
  if (way == 1) steps.insert(steps.begin() + static_cast<long>(random() % steps.size()), steps[i]);
  if (way == 2) std::swap(steps[i], steps[random() % steps.size()]);
  if (way == 3) steps[i].microbatch = static_cast<int>(random() % 5);
  return changed;
}

/// The steps that have run, on paper.
class Paper {
 public:
  explicit Paper(const PipelineProgram& program) : program_(program) {}
  bool has(Act act, int stage, int m) const { return done_.contains({act, stage, m}); }
  bool add(const PipelineStep& step) {
    return done_.insert({step.act, step.stage, step.microbatch}).second;
  }
  bool is_ready(const PipelineStep& step) const {
    const auto [act, s, m] = step;
    switch (act) {
      case Act::forward: return s == 0 || has(Act::receive_activation, s, m);
      case Act::backward:
      case Act::backward_input:
        return has(Act::forward, s, m) &&
               (s + 1 == program_.stages() || has(Act::receive_gradient, s, m));
      case Act::backward_weight: return has(Act::backward_input, s, m);
      case Act::send_activation: return has(Act::forward, s, m);
      case Act::send_gradient: return has(Act::backward, s, m) || has(Act::backward_input, s, m);
      case Act::reduce:
        for (int i = 0; i < program_.microbatches; ++i) {
          if (!has(Act::backward, s, i) && !has(Act::backward_weight, s, i)) return false;
        }
        return m == -1;
      default: return true;
    }
  }

 private:
  const PipelineProgram& program_;
  std::set<std::tuple<Act, int, int>> done_;
};

size_t steps_in(const PipelineProgram& program) {
  size_t count = 0;
  for (const auto& steps : program.steps) count += steps.size();
  return count;
}

/// Whether the program runs by other means than those of the check: every step in some order of the
/// ranks, each operand made once before it is read.
bool may_run(const PipelineProgram& program) {
  size_t left = steps_in(program);
  if (left != steps_in(pipeline_program(program.name, program.ranks(), program.microbatches))) {
    return false;
  }
  Paper paper(program);
  std::vector<size_t> at(program.steps.size(), 0);
  const auto take = [&](size_t rank) { return --left, paper.add(program.steps[rank][at[rank]++]); };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (size_t r = 0; r < at.size(); ++r) {
      if (at[r] == program.steps[r].size()) continue;
      const PipelineStep& step = program.steps[r][at[r]];
      if (step.microbatch >= program.microbatches || !paper.is_ready(step)) continue;
      if (step.act == Act::receive_activation || step.act == Act::receive_gradient) continue;
      if (step.act == Act::send_activation || step.act == Act::send_gradient) {
        const bool activation = step.act == Act::send_activation;
        const size_t other = activation ? r + 1 : r - 1;
        const PipelineStep end{activation ? Act::receive_activation : Act::receive_gradient,
                               static_cast<int>(other), step.microbatch};
        if (at[other] == program.steps[other].size()) continue;
        if (!(program.steps[other][at[other]] == end)) continue;
        if (!take(other)) return false;
      }
      if (!take(r)) return false;
      goes_on = true;
    }
  }
  return left == 0;
}

TEST(Program, BrokenOnesAreRefusedByTheNameOfTheDefect) {
  std::mt19937 random(7);
  std::map<std::string, int> faults;
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const char* names[] = {"gpipe", "1f1b", "zb"};
    const auto ranks = static_cast<int>(2 + random() % 3);
    const PipelineProgram changed =
        broken(pipeline_program(names[round % 3], ranks, 4), round / 3 % 4, random);
    const std::vector<PipelineDefect> defects = defects_of(changed);
    // What is refused cannot run, and what cannot run is refused.
    ASSERT_EQ(defects.empty(), may_run(changed)) << changed;
    if (defects.empty()) continue;
    ++refused;
    ++faults[std::string(name_of(defects[0].fault))];
    const std::string error = error_of([&] { check(changed); });
    EXPECT_EQ(error, concat("pipeline: ", name_of(defects[0].fault), ": ", defects[0].text));
  }
  EXPECT_GE(refused, 1000);
  for (const char* name :
       {"misplaced", "missing", "repeated", "out of order", "gradient scale", "deadlock"}) {
    EXPECT_GT(faults[name], 0) << name;
  }
}

/// The defect that changing one program gives.
std::string defect_after(const std::function<void(PipelineProgram&)>& change,
                         const PipelineMemory& memory = {}) {
  PipelineProgram program = one_forward_one_backward(2, 2);
  change(program);
  return error_of([&] { check(program, memory); });
}

TEST(Program, NamesTheDefect) {
  // rank 0: F0 >F0 F1 >F1 <B0 B0 <B1 B1 R; rank 1: <F0 F0 <F1 B0 >B0 F1 B1 >B1 R
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0].erase(p.steps[0].begin() + 5); }),
            "pipeline: gradient scale: microbatch 0 counts 0 times in the gradients of stage 0, "
            "expected once; a backward is missing");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0].insert(p.steps[0].begin() + 5, p.steps[0][5]); }),
            "pipeline: gradient scale: microbatch 0 counts 2 times in the gradients of stage 0, "
            "expected once; a backward is repeated");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0][5].act = Act::backward_weight; }),
            "pipeline: missing: backward of the inputs of microbatch 0 by stage 0 runs 0 times on "
            "rank 0, expected once");
  EXPECT_EQ(defect_after([](auto& p) {
              p.steps[0].insert(p.steps[0].begin() + 5, {Act::backward_input, 0, 0});
            }),
            "pipeline: repeated: backward of the inputs of microbatch 0 by stage 0 follows a whole "
            "backward, expected one of both");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0].pop_back(); }),
            "pipeline: missing: reduction by stage 0 runs 0 times on rank 0, expected once");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[1].erase(p.steps[1].begin()); }),
            "pipeline: missing: receive of the activation of microbatch 0 by stage 1 runs 0 times "
            "on rank 1, expected once");
  EXPECT_EQ(defect_after([](auto& p) { std::swap(p.steps[1][0], p.steps[1][1]); }),
            "pipeline: out of order: forward of microbatch 0 by stage 1 comes before the receive "
            "of the activation of microbatch 0 by stage 1 on rank 1, expected it after");
  EXPECT_EQ(defect_after([](auto& p) { std::swap(p.steps[0][7], p.steps[0][8]); }),
            "pipeline: out of order: reduction by stage 0 comes after 1 of 2 backwards on rank 0, "
            "expected it after all");
  // Both send first, as in PyTorch's issue 172668.
  EXPECT_EQ(defect_after([](auto& p) {
              std::swap(p.steps[1][2], p.steps[1][3]);
              std::swap(p.steps[1][3], p.steps[1][4]);
            }),
            "pipeline: deadlock: rank 0 waits at the send of the activation of microbatch 1 by "
            "stage 0 for rank 1, which waits at the send of the gradient of microbatch 0 by stage "
            "1, expected both at one message");
  EXPECT_EQ(defect_after([](auto&) {}, {.activation_bytes = {100, 50}, .budget = 150}),
            "pipeline: memory: activations of rank 0 take 200 bytes, expected at most 150");
  EXPECT_EQ(defect_after([](auto&) {}, {.activation_bytes = {75, 150}, .budget = 150}), "");
  EXPECT_EQ(defect_after([](auto&) {}, {.activation_bytes = {75}, .budget = 150}),
            "pipeline: number of activation_bytes is 1, expected 2, one a stage");
  // Rank 0 also receives a gradient while it holds both activations.
  const PipelineMemory memory{.activation_bytes = {100, 50}, .budget = 207, .output_bytes = {8, 8}};
  EXPECT_EQ(defect_after([](auto&) {}, memory),
            "pipeline: memory: activations of rank 0 take 208 bytes, expected at most 207");
  EXPECT_EQ(held_bytes(one_forward_one_backward(2, 2), memory), (std::vector<int64_t>{208, 66}));
  EXPECT_EQ(defect_after([](auto&) {}, {.output_bytes = {8}}),
            "pipeline: number of output_bytes is 1, expected 2, one a stage");
}

TEST(Program, NamesWhatIsMisplaced) {
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0][0].stage = 2; }),
            "pipeline: misplaced: stage of the forward of microbatch 0 by stage 2 is 2, expected 0 "
            "to 1");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0][0].microbatch = 2; }),
            "pipeline: misplaced: microbatch of the forward of microbatch 2 by stage 0 is 2, "
            "expected 0 to 1");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[0][0].stage = 1; }),
            "pipeline: misplaced: rank of the forward of microbatch 0 by stage 1 is 0, expected 1, "
            "which holds the stage");
  EXPECT_EQ(defect_after([](auto& p) { p.steps[1][7].act = Act::send_activation; }),
            "pipeline: misplaced: other end of the send of the activation of microbatch 1 by stage "
            "1 is no stage, expected a stage of another rank");
  EXPECT_EQ(defect_after([](auto& p) { p.rank_of_stage[0] = 2; }).substr(0, 60),
            "pipeline: misplaced: rank of stage 0 is 2, expected 0 to 1");
  EXPECT_EQ(defect_after([](auto& p) { p.microbatches = 0; }).substr(0, 79),
            "pipeline: misplaced: number of microbatches is 0, expected at least 1");
  EXPECT_EQ(error_of([] {
              check({"none", 1, {}, {{}, {}}});
            }),
            "pipeline: misplaced: number of stages is 0, expected at least 1");
  EXPECT_EQ(error_of([] {
              with_messages("idle", 1, {0}, {{{Act::forward, 0, 0}, {Act::backward, 0, 0}}, {}});
            }),
            "pipeline: misplaced: number of stages of rank 1 is 0, expected at least 1");
}

TEST(Program, ATableOfTheUserGetsItsMessages) {
  // Both ranks work depth first.
  const std::vector<std::vector<PipelineStep>> table{
      {{Act::forward, 0, 0}, {Act::backward, 0, 0}, {Act::forward, 0, 1}, {Act::backward, 0, 1}},
      {{Act::forward, 1, 0}, {Act::backward, 1, 0}, {Act::forward, 1, 1}, {Act::backward, 1, 1}}};
  const PipelineProgram program = with_messages("mine", 2, {0, 1}, table);
  check(program);
  EXPECT_NEAR(predict(program).bubble, 0.5, 1e-9);
  auto wrong = table;
  std::swap(wrong[0][0], wrong[0][1]);
  EXPECT_EQ(error_of([&] {
              with_messages("mine", 2, {0, 1}, wrong);
            }),
            "pipeline: deadlock: rank 0 waits at the backward of microbatch 0 by stage 0 for a "
            "step that never runs");
  wrong = table;
  wrong[0][0].stage = 1;
  EXPECT_EQ(error_of([&] {
              with_messages("mine", 2, {0, 1}, wrong);
            }),
            "pipeline: misplaced: rank of the forward of microbatch 0 by stage 1 is 0, expected 1, "
            "which holds the stage");
  wrong = table;
  wrong[0].push_back({Act::reduce, 0, -1});
  EXPECT_EQ(error_of([&] {
              with_messages("mine", 2, {0, 1}, wrong);
            }),
            "with_messages: step is reduction by stage 0, expected computing steps alone");
}

TEST(Program, RefusesWhatItCannotMake) {
  EXPECT_EQ(error_of([] { gpipe(0, 1); }), "gpipe: number of ranks is 0, expected at least 1");
  EXPECT_EQ(error_of([] { zero_bubble(2, 0); }),
            "zero_bubble: number of microbatches is 0, expected at least 1");
  EXPECT_EQ(error_of([] { pipeline_program("dualpipe", 2, 2); }),
            "pipeline_program: name is \"dualpipe\", expected gpipe, 1f1b, interleaved or zb");
  EXPECT_EQ(error_of([] { predict(gpipe(2, 2), {.stages = {1}}); }),
            "predict: number of times of stages is 1, expected 2, or none");
}

}  // namespace
}  // namespace weft
