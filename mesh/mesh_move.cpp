// SPDX-License-Identifier: Apache-2.0
#include "mesh/mesh_move.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "mesh/steps.h"
#include "weft/error.h"
#include "weft/extend/hash.h"

namespace weft {

int MeshRanks::index_of(int rank) const {
  const auto found = std::ranges::find(ranks, rank);
  return found == ranks.end() ? -1 : static_cast<int>(found - ranks.begin());
}

static Box part_over(const MovedTensor& tensor, const Pattern& pattern, const MeshRanks& mesh,
                     int rank) {
  const int index = mesh.index_of(rank);
  if (index >= 0) return box_of(pattern, mesh.sizes, tensor.shape, index);
  return {Dims::filled(tensor.shape.ndim(), 0), Dims::filled(tensor.shape.ndim(), 0)};
}

static bool is_empty(const Box& box) { return box.shape.product() == 0; }

/// A part of a tensor, and the ranks of the group that hold it.
struct HeldPart {
  Box box;
  std::vector<int> holders;
};

/// The parts of a tensor over a mesh: they are disjoint and cover it.
static std::vector<HeldPart> held_parts(const MovedTensor& tensor, const MeshRanks& mesh) {
  std::map<std::vector<int64_t>, size_t> known;
  std::vector<HeldPart> parts;
  for (size_t index = 0; index < mesh.ranks.size(); ++index) {
    const Box box = box_of(tensor.from, mesh.sizes, tensor.shape, static_cast<int>(index));
    if (is_empty(box)) continue;
    const std::vector<int64_t> offset(box.offset.begin(), box.offset.end());
    const auto [at, is_new] = known.emplace(offset, parts.size());
    if (is_new) parts.push_back({box, {}});
    parts[at->second].holders.push_back(mesh.ranks[index]);
  }
  return parts;
}

/// Chooses who sends a part.
struct MeshMovePlan::Chooser {
  const std::vector<int>& hosts;
  std::vector<int64_t> sent;

  explicit Chooser(const std::vector<int>& of) : hosts(of), sent(of.size()) {}

  int sender(const std::vector<int>& holders, int receiver, int64_t bytes) {
    const auto cost = [&](int rank) {
      const auto at = static_cast<size_t>(rank);
      return std::tuple(hosts[at] != hosts[static_cast<size_t>(receiver)], sent[at], rank);
    };
    const int best = *std::ranges::min_element(holders, {}, cost);
    sent[static_cast<size_t>(best)] += bytes;
    return best;
  }
};

MeshMovePlan::MeshMovePlan(std::vector<MovedTensor> tensors, MeshRanks from, MeshRanks to,
                           std::vector<int> hosts, int64_t round_bytes)
    : tensors_(std::move(tensors)),
      from_(std::move(from)),
      to_(std::move(to)),
      hosts_(std::move(hosts)),
      round_bytes_(round_bytes),
      crosses_(tensors_.size()) {
  Chooser chooser(hosts_);
  for (size_t tensor = 0; tensor < tensors_.size(); ++tensor) add_parts(tensor, chooser);
  if (round_bytes_ > 0) split_parts();
  assign_rounds();
  for (const MovedPart& part : parts_) {
    hash_ = mixed(mixed(hash_, part.tensor), static_cast<uint64_t>(bytes_of(part)));
    hash_ = mixed(mixed(hash_, static_cast<uint64_t>(part.from)), static_cast<uint64_t>(part.to));
  }
}

void MeshMovePlan::add_parts(size_t tensor, Chooser& chooser) {
  const std::vector<HeldPart> held = held_parts(tensors_[tensor], from_);
  for (const int to : to_.ranks) {
    const Box wants = wanted(tensor, to);
    for (const HeldPart& part : held) {
      MovedPart moved{tensor, -1, to, overlap(part.box, wants)};
      if (is_empty(moved.box) || std::ranges::find(part.holders, to) != part.holders.end()) {
        continue;
      }
      moved.from = chooser.sender(part.holders, to, bytes_of(moved));
      parts_.push_back(moved);
      crosses_[tensor] = true;
    }
  }
}

/// Cuts parts in two along their longest dim until each fits into a round.
void MeshMovePlan::split_parts() {
  std::vector<MovedPart> left(parts_.rbegin(), parts_.rend()), fitting;
  while (!left.empty()) {
    MovedPart part = left.back();
    left.pop_back();
    const auto longest = static_cast<int>(std::ranges::max_element(part.box.shape) -
                                          std::as_const(part.box.shape).begin());
    if (bytes_of(part) <= round_bytes_ || part.box.shape.product() == 1) {
      fitting.push_back(part);
      continue;
    }
    MovedPart rest = part;
    part.box.shape[longest] /= 2;
    rest.box.offset[longest] += part.box.shape[longest];
    rest.box.shape[longest] -= part.box.shape[longest];
    left.push_back(rest);
    left.push_back(part);
  }
  parts_ = std::move(fitting);
}

/// Puts each part into the first round in which neither its sender nor its receiver exceeds the
/// cap.
void MeshMovePlan::assign_rounds() {
  const auto dtype = [&](const MovedPart& part) { return tensors_[part.tensor].dtype; };
  std::ranges::stable_sort(parts_, {}, dtype);
  using Load = std::pair<int64_t, int64_t>;  // sent, received
  std::vector<std::vector<Load>> loads;
  size_t first = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    MovedPart& part = parts_[i];
    if (i > 0 && dtype(part) != dtype(parts_[i - 1])) first = loads.size();
    const int64_t bytes = bytes_of(part);
    const auto fits = [&](size_t round) {
      const int64_t sent = loads[round][static_cast<size_t>(part.from)].first,
                    received = loads[round][static_cast<size_t>(part.to)].second;
      const bool is_first = sent == 0 && received == 0;
      return round_bytes_ == 0 || is_first || std::max(sent, received) + bytes <= round_bytes_;
    };
    size_t round = first;
    while (round < loads.size() && !fits(round)) ++round;
    if (round == loads.size()) loads.emplace_back(hosts_.size());
    loads[round][static_cast<size_t>(part.from)].first += bytes;
    loads[round][static_cast<size_t>(part.to)].second += bytes;
    part.round = static_cast<int>(round);
  }
  std::ranges::stable_sort(parts_, {}, &MovedPart::round);
  rounds_ = static_cast<int>(loads.size());
}

int64_t MeshMovePlan::bytes_of(const MovedPart& part) const {
  return part.box.shape.product() * static_cast<int64_t>(size_of(tensors_[part.tensor].dtype));
}

Box MeshMovePlan::held(size_t tensor, int rank) const {
  return part_over(tensors_[tensor], tensors_[tensor].from, from_, rank);
}

Box MeshMovePlan::wanted(size_t tensor, int rank) const {
  return part_over(tensors_[tensor], tensors_[tensor].to, to_, rank);
}

int64_t MeshMovePlan::received_bytes(int rank) const {
  int64_t bytes = 0;
  for (const MovedPart& part : parts_) bytes += part.to == rank ? bytes_of(part) : 0;
  return bytes;
}

int64_t MeshMovePlan::sent_bytes(int rank) const {
  int64_t bytes = 0;
  for (const MovedPart& part : parts_) bytes += part.from == rank ? bytes_of(part) : 0;
  return bytes;
}

int64_t MeshMovePlan::kept_bytes(int rank) const {
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const int64_t elements = overlap(held(i, rank), wanted(i, rank)).shape.product();
    bytes += elements * static_cast<int64_t>(size_of(tensors_[i].dtype));
  }
  return bytes;
}

MeshMovePlan MeshMovePlan::reversed(std::span<const size_t> which) const {
  std::vector<MovedTensor> tensors;
  for (const size_t i : which) {
    tensors.push_back(tensors_[i]);
    std::swap(tensors.back().from, tensors.back().to);
  }
  return {std::move(tensors), to_, from_, hosts_, round_bytes_};
}

/// "mesh(dp=2) of ranks 0, 1".
static std::string mesh_in_words(const MeshRanks& mesh) {
  return concat(mesh.words, mesh.ranks.size() == 1 ? " of rank " : " of ranks ",
                listed(mesh.ranks));
}

/// Returns a line about what a rank receives from each other one.
static std::string receipt_in_words(const MeshMovePlan& plan, int rank) {
  std::map<int, int64_t> senders;
  for (const MovedPart& part : plan.parts()) {
    if (part.to == rank) senders[part.from] += plan.bytes_of(part);
  }
  std::vector<std::string> words;
  for (const auto& [from, bytes] : senders) {
    words.push_back(concat(bytes_in_words(bytes), " from rank ", from));
  }
  return concat("rank ", rank, ": receives ", words.empty() ? "nothing" : listed(words), ", keeps ",
                bytes_in_words(plan.kept_bytes(rank)), '\n');
}

std::string MeshMovePlan::in_words() const {
  constexpr size_t kLines = 32;
  const auto more = [](size_t count, const char* what) {
    return count > kLines ? concat("and ", count - kLines, " more ", what, '\n') : std::string();
  };
  std::string text = concat(mesh_in_words(from_), " -> ", mesh_in_words(to_), '\n');
  for (size_t i = 0; i < std::min(kLines, tensors_.size()); ++i) {
    const MovedTensor& tensor = tensors_[i];
    if (!tensor.name.empty()) text += concat(tensor.name, ": ");
    text += concat(tensor.shape, ' ', tensor.dtype, " [", listed(tensor.from.placements()),
                   "] -> [", listed(tensor.to.placements()), "]\n");
  }
  text += more(tensors_.size(), "tensors");
  for (size_t i = 0; i < std::min(kLines, to_.ranks.size()); ++i) {
    text += receipt_in_words(*this, to_.ranks[i]);
  }
  text += more(to_.ranks.size(), "ranks");
  int64_t total = 0, sent = 0, received = 0;
  for (size_t rank = 0; rank < hosts_.size(); ++rank) {
    total += received_bytes(static_cast<int>(rank));
    sent = std::max(sent, sent_bytes(static_cast<int>(rank)));
    received = std::max(received, received_bytes(static_cast<int>(rank)));
  }
  return text + concat("moved ", bytes_in_words(total), " in ", rounds_,
                       rounds_ == 1 ? " round" : " rounds", "; a rank sends at most ",
                       bytes_in_words(sent), " and receives at most ", bytes_in_words(received),
                       '\n');
}

}  // namespace weft
