// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <span>
#include <string>
#include <utility>

#include "pipeline/ties.h"
#include "weft/context.h"
#include "weft/error.h"
#include "weft/extend/hash.h"
#include "weft/pipeline.h"

// The values that ranks along the pipeline's axis compare before they run: a difference would be a
// wait for messages that never come, or wrong gradients.

namespace weft {

static uint64_t hash_of(const std::string& text) { return xxh3_of(std::as_bytes(std::span(text))); }

/// Shape, dtype and layout; the meshes of all stages have the same axes.
static std::string layout_in_words(const Tensor& tensor) {
  const std::string local = concat(tensor.shape(), ' ', tensor.dtype());
  return tensor.is_sharded() ? concat(local, ' ', tensor.sharding()) : local;
}

void Pipeline::check_program() const {
  const int64_t own = std::bit_cast<int64_t>(
      hash_of(concat(program_, program_.microbatches, listed(program_.rank_of_stage))));
  const std::vector<int64_t> all = line_.all_gather_numbers({&own, 1});
  const auto other = std::ranges::find_if(all, [&](int64_t hash) { return hash != all[0]; });
  if (other == all.end()) return;
  const auto rank = static_cast<int>(other - all.begin());
  const std::string there = line_.broadcast(program_.name, rank);
  const std::string first = line_.broadcast(program_.name, 0);
  fail("pipeline: program of rank ", rank, " along ", axis_, " is ", there,
       ", expected the steps of ", first, " on rank 0; give all ranks one program");
}

ParameterPtr Pipeline::tied(size_t tie) const {
  if (!pairs_[tie]) return nullptr;
  const auto& [first_stage, last_stage, first, last] = ties_[tie];
  const bool is_first = holds(first_stage);
  const std::string& name = is_first ? first : last;
  for (const NamedParameter& named :
       stage_of(is_first ? first_stage : last_stage).module->named_parameters()) {
    if (std::ranges::find(named.names, name) != named.names.end()) return named.parameter;
  }
  fail("pipeline: parameter ", name, " of a tie is missing in its stage, expected it");
}

void Pipeline::check_layouts(size_t tie, const std::vector<int64_t>& hashes,
                             const std::string& own) const {
  const auto& [first_stage, last_stage, first, last] = ties_[tie];
  const int from = rank_of(first_stage), to = rank_of(last_stage);
  if (hashes[static_cast<size_t>(from)] == hashes[static_cast<size_t>(to)]) return;
  const std::string there = line_.broadcast(own, to), here = line_.broadcast(own, from);
  fail("pipeline: layout of ", last, " in stage ", last_stage, " is ", there, ", expected ", here,
       ", that of ", first, " in stage ", first_stage, ", to which it is tied; cut both alike");
}

void Pipeline::check_ties() const {
  std::vector<std::string> words(ties_.size());
  std::vector<int64_t> own(2 * ties_.size(), 0);
  for (size_t i = 0; i < ties_.size(); ++i) {
    const ParameterPtr parameter = tied(i);
    if (!parameter) continue;
    words[i] = layout_in_words(parameter->value());
    own[2 * i] = std::bit_cast<int64_t>(hash_of(words[i]));
    own[2 * i + 1] = parameter->is_trainable();
  }
  const std::vector<int64_t> all = line_.all_gather_numbers(own);
  const auto ranks = static_cast<size_t>(line_.size());
  const auto of = [&](int rank, size_t number) {
    return all[static_cast<size_t>(rank) * own.size() + number];
  };
  for (size_t i = 0; i < ties_.size(); ++i) {
    std::vector<int64_t> hashes(ranks);
    for (size_t r = 0; r < ranks; ++r) hashes[r] = of(static_cast<int>(r), 2 * i);
    check_layouts(i, hashes, words[i]);
    const PipelineTie& tie = ties_[i];
    const bool first = of(rank_of(tie.first_stage), 2 * i + 1) != 0;
    if (first == (of(rank_of(tie.last_stage), 2 * i + 1) != 0)) continue;
    fail("pipeline: ", first ? tie.last : tie.first, " is frozen, expected it trained as ",
         first ? tie.first : tie.last, " is, to which it is tied; freeze both or none");
  }
}

void Pipeline::check_ties_of(const State& own) const {
  std::vector<std::string> lines(ties_.size());
  std::vector<int64_t> hashes(ties_.size(), 0);
  for (size_t i = 0; i < ties_.size(); ++i) {
    if (!pairs_[i]) continue;
    const std::string& name = holds(ties_[i].first_stage) ? ties_[i].first : ties_[i].last;
    for (const auto& [key, tensor] : own.tensors) {
      if (belongs_to(key, name)) {
        lines[i] += concat(key.substr(name.size()), ' ', layout_in_words(tensor), ' ');
      }
    }
    hashes[i] = std::bit_cast<int64_t>(hash_of(lines[i]));
  }
  const std::vector<int64_t> all = line_.all_gather_numbers(hashes);
  for (size_t i = 0; i < ties_.size(); ++i) {
    std::vector<int64_t> one;
    for (size_t at = i; at < all.size(); at += ties_.size()) one.push_back(all[at]);
    check_layouts(i, one, lines[i]);
  }
}

void Pipeline::agree(int microbatches, bool with_gradients) {
  RandomState& random = Context::current().random;
  const Inputs inputs = std::exchange(inputs_, {});
  struct Shared {
    const char* what;
    uint64_t own;
  };
  const Shared shared[] = {{"number of microbatches", static_cast<uint64_t>(microbatches)},
                           {"number of runs with gradients", with_gradients},
                           {"seed of random numbers", random.seed},
                           {"hash of ids", inputs.ids},
                           {"hash of targets", inputs.targets},
                           {"hash of segments", inputs.segments},
                           {"hash of weights", inputs.weights}};
  // Those before it are compared also where they are 0.
  constexpr size_t kFirstHash = 3, kCount = std::size(shared);
  std::vector<int64_t> own;
  for (const Shared& one : shared) own.push_back(std::bit_cast<int64_t>(one.own));
  own.push_back(std::bit_cast<int64_t>(random.stream));
  const std::vector<int64_t> all = line_.all_gather_numbers(own);
  const auto ranks = static_cast<size_t>(line_.size());
  const auto of = [&](size_t rank, size_t number) {
    return std::bit_cast<uint64_t>(all[rank * own.size() + number]);
  };
  for (size_t i = 0; i < kCount; ++i) {
    size_t first = 0;
    while (i >= kFirstHash && first + 1 < ranks && of(first, i) == 0) ++first;
    for (size_t r = first + 1; r < ranks; ++r) {
      if (of(r, i) == of(first, i) || (i >= kFirstHash && of(r, i) == 0)) continue;
      fail("pipeline: ", shared[i].what, " on rank ", r, " along ", axis_, " is ", of(r, i),
           ", expected ", of(first, i), ", that of rank ", first,
           "; give all ranks along the axis the same");
    }
  }
  // Stages may have drawn unequal numbers of values since.
  for (size_t r = 0; r < ranks; ++r) random.stream = std::max(random.stream, of(r, kCount));
  if (!ties_.empty()) check_ties();
}

}  // namespace weft
