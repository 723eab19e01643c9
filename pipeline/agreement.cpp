// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
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

ParameterPtr Pipeline::tied(size_t tie, bool is_last) const {
  const auto& [first_stage, last_stage, first, last] = ties_[tie];
  const int stage = is_last ? last_stage : first_stage;
  if (!holds(stage)) return nullptr;
  const std::string& name = is_last ? last : first;
  for (const NamedParameter& named : stage_of(stage).module->named_parameters()) {
    if (std::ranges::find(named.names, name) != named.names.end()) return named.parameter;
  }
  fail("pipeline: parameter ", name, " of a tie is missing in its stage, expected it");
}

void Pipeline::check_layouts(size_t tie, const std::vector<int64_t>& hashes,
                             const std::array<std::string, 2>& own) const {
  const auto& [first_stage, last_stage, first, last] = ties_[tie];
  const int from = rank_of(first_stage), to = rank_of(last_stage);
  if (hashes[2 * static_cast<size_t>(from)] == hashes[2 * static_cast<size_t>(to) + 1]) return;
  const std::string there = line_.broadcast(own[1], to), here = line_.broadcast(own[0], from);
  fail("pipeline: layout of ", last, " in stage ", last_stage, " is ", there, ", expected ", here,
       ", that of ", first, " in stage ", first_stage, ", to which it is tied; cut both alike");
}

void Pipeline::check_ties() const {
  // Two of each tie: of its first and of its last stage.
  std::vector<std::array<std::string, 2>> words(ties_.size());
  std::vector<int64_t> own(4 * ties_.size(), 0);
  for (size_t i = 0; i < ties_.size(); ++i) {
    for (const size_t end : {0, 1}) {
      const ParameterPtr parameter = tied(i, end == 1);
      if (!parameter) continue;
      words[i][end] = layout_in_words(parameter->value());
      own[4 * i + end] = std::bit_cast<int64_t>(hash_of(words[i][end]));
      own[4 * i + 2 + end] = parameter->is_trainable();
    }
  }
  const std::vector<int64_t> all = line_.all_gather_numbers(own);
  const auto ranks = static_cast<size_t>(line_.size());
  const auto of = [&](size_t rank, size_t number) { return all[rank * own.size() + number]; };
  for (size_t i = 0; i < ties_.size(); ++i) {
    std::vector<int64_t> hashes;
    for (size_t r = 0; r < ranks; ++r) {
      hashes.insert(hashes.end(), {of(r, 4 * i), of(r, 4 * i + 1)});
    }
    check_layouts(i, hashes, words[i]);
    const PipelineTie& tie = ties_[i];
    const bool first = of(static_cast<size_t>(rank_of(tie.first_stage)), 4 * i + 2) != 0;
    const bool last = of(static_cast<size_t>(rank_of(tie.last_stage)), 4 * i + 3) != 0;
    if (first == last) continue;
    fail("pipeline: ", first ? tie.last : tie.first, " is frozen, expected it trained as ",
         first ? tie.first : tie.last, " is, to which it is tied; freeze both or none");
  }
}

void Pipeline::check_ties_of(const State& own) const {
  std::vector<std::array<std::string, 2>> lines(ties_.size());
  std::vector<int64_t> hashes(2 * ties_.size(), 0);
  for (size_t i = 0; i < ties_.size(); ++i) {
    const auto& [first_stage, last_stage, first, last] = ties_[i];
    for (const size_t end : {0, 1}) {
      if (!holds(end == 1 ? last_stage : first_stage)) continue;
      const std::string& name = end == 1 ? last : first;
      for (const auto& [key, tensor] : own.tensors) {
        if (!belongs_to(key, name)) continue;
        lines[i][end] += concat(key.substr(name.size()), ' ', layout_in_words(tensor), ' ');
      }
      hashes[2 * i + end] = std::bit_cast<int64_t>(hash_of(lines[i][end]));
    }
  }
  const std::vector<int64_t> all = line_.all_gather_numbers(hashes);
  for (size_t i = 0; i < ties_.size(); ++i) {
    std::vector<int64_t> one;
    for (size_t at = 2 * i; at < all.size(); at += hashes.size()) {
      one.insert(one.end(), {all[at], all[at + 1]});
    }
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
