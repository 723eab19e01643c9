// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "weft/error.h"
#include "weft/pipeline_program.h"

namespace weft {

using Act = PipelineAct;
using StepTable = std::vector<std::vector<PipelineStep>>;

static void check_sizes(const char* name, int ranks, int microbatches, int chunks = 1) {
  const std::pair<const char*, int> sizes[] = {
      {"ranks", ranks}, {"microbatches", microbatches}, {"chunks", chunks}};
  for (const auto& [what, size] : sizes) {
    if (size < 1) fail(name, ": number of ", what, " is ", size, ", expected at least 1");
  }
}

/// Stage s on rank s % ranks.
static std::vector<int> in_turns(int ranks, int stages) {
  std::vector<int> rank_of_stage;
  for (int s = 0; s < stages; ++s) rank_of_stage.push_back(s % ranks);
  return rank_of_stage;
}

PipelineProgram gpipe(int ranks, int microbatches) {
  check_sizes("gpipe", ranks, microbatches);
  StepTable table(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& steps = table[static_cast<size_t>(r)];
    for (int m = 0; m < microbatches; ++m) steps.push_back({Act::forward, r, m});
    for (int m = 0; m < microbatches; ++m) steps.push_back({Act::backward, r, m});
  }
  return with_messages("gpipe", microbatches, in_turns(ranks, ranks), table);
}

PipelineProgram one_forward_one_backward(int ranks, int microbatches) {
  check_sizes("one_forward_one_backward", ranks, microbatches);
  StepTable table(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& steps = table[static_cast<size_t>(r)];
    const int ahead = std::min(ranks - 1 - r, microbatches);
    for (int m = 0; m < microbatches + ahead; ++m) {
      if (m < microbatches) steps.push_back({Act::forward, r, m});
      if (m >= ahead) steps.push_back({Act::backward, r, m - ahead});
    }
  }
  return with_messages("1f1b", microbatches, in_turns(ranks, ranks), table);
}

PipelineProgram interleaved(int ranks, int microbatches, int chunks) {
  check_sizes("interleaved", ranks, microbatches, chunks);
  // Groups of as many microbatches as ranks go through the chunks one after the other. The last
  // group is completed by microbatches whose steps are left out: what is left runs in that order.
  std::vector<std::pair<int, int>> forwards, backwards;
  for (int group = 0; group < microbatches; group += ranks) {
    for (int i = 0; i < chunks * ranks; ++i) {
      forwards.emplace_back(i / ranks, group + i % ranks);
      backwards.emplace_back(chunks - 1 - i / ranks, group + i % ranks);
    }
  }
  const size_t all = forwards.size();
  StepTable table(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    const auto ahead =
        std::min(static_cast<size_t>(2 * (ranks - 1 - r) + (chunks - 1) * ranks), all);
    const auto add = [&](Act act, const std::pair<int, int>& one) {
      const auto [chunk, microbatch] = one;
      if (microbatch >= microbatches) return;
      table[static_cast<size_t>(r)].push_back({act, chunk * ranks + r, microbatch});
    };
    for (size_t i = 0; i < all + ahead; ++i) {
      if (i < all) add(Act::forward, forwards[i]);
      if (i >= ahead) add(Act::backward, backwards[i - ahead]);
    }
  }
  return with_messages("interleaved", microbatches, in_turns(ranks, ranks * chunks), table);
}

PipelineProgram zero_bubble(int ranks, int microbatches) {
  check_sizes("zero_bubble", ranks, microbatches);
  StepTable table(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    auto& steps = table[static_cast<size_t>(r)];
    const int ahead = std::min(ranks - 1 - r, microbatches);
    // Gradients of weights follow `late` microbatches later, so that no rank holds more than the
    // first one does.
    const int late = std::min(r, microbatches);
    for (int m = 0; m < microbatches + ahead; ++m) {
      if (m < microbatches) steps.push_back({Act::forward, r, m});
      if (m < ahead) continue;
      steps.push_back({Act::backward_input, r, m - ahead});
      if (m - ahead >= late) steps.push_back({Act::backward_weight, r, m - ahead - late});
    }
    for (int m = microbatches - late; m < microbatches; ++m) {
      steps.push_back({Act::backward_weight, r, m});
    }
  }
  return with_messages("zb", microbatches, in_turns(ranks, ranks), table);
}

PipelineProgram pipeline_program(std::string_view name, int ranks, int microbatches, int chunks) {
  if (name == "gpipe") return gpipe(ranks, microbatches);
  if (name == "1f1b") return one_forward_one_backward(ranks, microbatches);
  if (name == "interleaved") return interleaved(ranks, microbatches, chunks);
  if (name == "zb") return zero_bubble(ranks, microbatches);
  fail("pipeline_program: name is \"", name, "\", expected gpipe, 1f1b, interleaved or zb");
}

}  // namespace weft
