// SPDX-License-Identifier: Apache-2.0
#include "fsdp/quantized_scatter.h"

#include <algorithm>
#include <functional>
#include <range/v3/numeric/accumulate.hpp>
#include <utility>

namespace weft::fsdp {

QuantizedScatter::QuantizedScatter(const Roles& roles, size_t first, size_t last,
                                   const Quantization& quantization)
    : ranks_(roles.group(first, last)) {
  const int stream = roles.mesh.root().rank();
  if (const std::optional<Stages> stages = stages_of(roles, first, last, quantization)) {
    messages_.emplace_back(quantization, stages->within, stages->rank_within, stream);
    messages_.emplace_back(quantization, stages->across, numbers_of(stages->across), stream);
  } else {
    messages_.emplace_back(quantization, ranks_, numbers_of(ranks_), stream);
  }
}

void QuantizedScatter::add(const Region& region) {
  regions_.push_back(region);
  messages_[0].add(region);
}

void QuantizedScatter::lay_out(size_t& end) {
  for (size_t i = 0; i < regions_.size() && stages() > 1; ++i) {
    std::vector<int64_t> counts;
    for (const size_t part : messages_[0].own_parts()) counts.push_back(regions_[i].counts[part]);
    const int64_t elements = ranges::accumulate(counts, int64_t{0});
    sums_.push_back(region_of({elements}, 0, DType::f32, DType::f32, ranks(1), end, counts, false));
    messages_[1].add(sums_.back());
  }
  // The messages of the second stage lie where those of the first did.
  const size_t start = end;
  for (GradientMessages& messages : messages_) {
    size_t after = start;
    messages.lay_out(after);
    end = std::max(end, after);
  }
}

int64_t QuantizedScatter::copied(size_t stage) const {
  return ranges::accumulate(stage == 0 ? regions_ : sums_, int64_t{0}, std::plus(), &Region::bytes);
}

size_t QuantizedScatter::residual_bytes() const {
  return ranges::accumulate(messages_, size_t{0}, std::plus(), &GradientMessages::residual_bytes);
}

Work QuantizedScatter::exchange(size_t stage, const Ref<Storage>& buffer,
                                const Ref<Storage>& residual) {
  arriving_ = stage + 1 < stages();
  return messages_[stage].exchange(buffer, buffer, residual,
                                   stage == 0 ? 0 : messages_[0].residual_bytes());
}

void QuantizedScatter::receive(const Ref<Storage>& buffer) {
  if (!std::exchange(arriving_, false)) return;
  const std::vector<size_t> parts = messages_[0].own_parts();
  for (size_t i = 0; i < sums_.size(); ++i) {
    for (size_t k = 0; k < parts.size(); ++k) {
      messages_[0].add_up(i, parts[k], buffer, part_block(sums_[i], buffer, static_cast<int>(k)),
                          false);
    }
  }
}

void QuantizedScatter::add_up(size_t i, const Ref<Storage>& buffer, const MemoryBlock& out,
                              bool accumulate) const {
  const GradientMessages& last = messages_.back();
  last.add_up(i, last.own_parts()[0], buffer, out, accumulate);
}

}  // namespace weft::fsdp
