// SPDX-License-Identifier: Apache-2.0
#include "fsdp/quantized.h"

#include <functional>
#include <range/v3/algorithm/find.hpp>
#include <range/v3/numeric/accumulate.hpp>
#include <range/v3/view/drop.hpp>
#include <range/v3/view/take.hpp>
#include <utility>

#include "weft/error.h"

namespace weft::fsdp {

namespace views = ranges::views;

static void check_codes(const char* what, const std::optional<DType>& codes, DType other) {
  if (!codes || codes == DType::i8 || codes == other) return;
  fail("fully_shard: quantization of ", what, " is ", *codes, ", expected i8 or ", other);
}

void check_quantization(const Quantization& quantization, const MixedPrecision& precision) {
  check_codes("the gather", quantization.gather, DType::f8_e4m3);
  check_codes("the gradients", quantization.reduce, DType::bf16);
  if (quantization.block < 4 || quantization.block % 4 != 0) {
    fail("fully_shard: block of the quantization is ", quantization.block,
         ", expected a positive multiple of 4");
  }
  if (quantization.gather && precision.gather) {
    fail("fully_shard: gather dtypes are ", *precision.gather, " and, quantized, ",
         *quantization.gather, ", expected one of both");
  }
  if (quantization.within && !quantization.gather && !quantization.reduce) {
    fail("fully_shard: quantization within axis ", in_quotes(*quantization.within),
         " has no dtypes, expected one of gathers or of gradients");
  }
  if (quantization.error_feedback && !quantization.reduce) {
    fail("fully_shard: gradients with error feedback are not quantized, expected a dtype");
  }
}

/// The elements that a rank shares of a region's array, as a matrix whose rows are dense.
static MemoryBlock part_block(const Region& region, const Ref<Storage>& memory, int rank) {
  const auto product = [](auto&& dims) {
    return ranges::accumulate(dims, int64_t{1}, std::multiplies());
  };
  const int64_t rows = product(region.shape | views::take(region.dim));
  const int64_t each = product(region.shape | views::drop(region.dim + 1));
  const int64_t whole = product(region.shape | views::drop(region.dim));
  const int64_t from = sum_before(region.lengths, rank) * each;
  const int64_t columns = region.lengths[static_cast<size_t>(rank)] * each;
  auto* data = static_cast<char*>(memory->data()) + region.offset +
               static_cast<size_t>(from) * size_of(region.dtype);
  MemoryBlock part = dense_block(data, region.dtype, {rows, columns}, memory->device());
  part.strides[0] = whole;
  return part;
}

/// An array [rows, n] in memory, whose rows start so many bytes apart.
static MemoryBlock array_at(const Ref<Storage>& memory, size_t offset, DType dtype, int64_t rows,
                            int64_t n, size_t apart = 0) {
  auto* data = static_cast<char*>(memory->data()) + offset;
  MemoryBlock block = dense_block(data, dtype, {rows, n}, memory->device());
  if (apart > 0) block.strides[0] = static_cast<int64_t>(apart / size_of(dtype));
  return block;
}

Extended quantized_of(const Region& region, DType codes, int64_t block, std::vector<int> order,
                      int rank, size_t& end) {
  Extended extended;
  extended.block = block;
  extended.order = std::move(order);
  extended.own = static_cast<int>(ranges::find(extended.order, rank) - extended.order.begin());
  extended.wires = {{.dtype = codes}, {.dtype = DType::f32}};
  for (const int of : extended.order) {
    const int64_t count = region.counts[static_cast<size_t>(of)];
    extended.wires[0].counts.push_back(count);
    extended.wires[1].counts.push_back(scales_of(codes, count, block));
  }
  extended.lay_out(end);
  return extended;
}

/// The part of a wire at a place, [1, n].
static MemoryBlock part_of_wire(const Extended::Wire& wire, const Ref<Storage>& memory, int place) {
  return array_at(memory, wire.at(place), wire.dtype, 1, wire.counts[static_cast<size_t>(place)]);
}

void quantize_part(const Extended& extended, const Ref<Storage>& memory, const MemoryBlock& part,
                   const CodeRounding& rounding) {
  quantize(part_of_wire(extended.wires[0], memory, extended.own),
           part_of_wire(extended.wires[1], memory, extended.own), part, {}, extended.block,
           rounding);
}

void add_pieces(const Extended& extended, const Ref<Storage>& memory, int size, int joined,
                std::vector<Piece>& pieces, std::deque<std::vector<int64_t>>& counts) {
  auto* base = static_cast<char*>(memory->data());
  const int first = extended.own / size * size;
  for (const Extended::Wire& wire : extended.wires) {
    counts.emplace_back();
    for (int rank = first; rank < first + size; rank += joined) {
      const auto from = std::span(wire.counts).subspan(static_cast<size_t>(rank));
      counts.back().push_back(sum_before(from, joined));
    }
    pieces.push_back({.send = base + wire.at(extended.own / joined * joined),
                      .recv = base + wire.at(first),
                      .dtype = wire.dtype,
                      .counts = counts.back(),
                      .device = memory->device()});
  }
}

void dequantize_parts(const Extended& extended, const Ref<Storage>& memory, const Region& region,
                      const Ref<Storage>& to) {
  for (int place = 0; place < static_cast<int>(extended.order.size()); ++place) {
    const int rank = extended.order[static_cast<size_t>(place)];
    dequantize(part_block(region, to, rank), part_of_wire(extended.wires[0], memory, place),
               part_of_wire(extended.wires[1], memory, place), extended.block, false);
  }
}

std::vector<size_t> GradientMessages::own_parts() const {
  std::vector<size_t> parts;
  for (size_t part = 0; part < to_.size(); ++part) {
    if (to_[part] == ranks_.rank) parts.push_back(part);
  }
  return parts;
}

int64_t GradientMessages::scales(const Region& region, size_t part) const {
  return scales_of(*quantization_.reduce, region.counts[part], quantization_.block);
}

/// Rounds up to a multiple of 4: where scales may lie, and where random words begin.
template <class Integer> static Integer in_fours(Integer n) { return (n + 3) / 4 * 4; }

void GradientMessages::lay_out(size_t& end) {
  bytes_.assign(static_cast<size_t>(ranks_.size), 0);
  for (const Region& region : regions_) {
    auto& places = places_.emplace_back();
    for (size_t part = 0; part < to_.size(); ++part) {
      int64_t& bytes = bytes_[static_cast<size_t>(to_[part])];
      const int64_t count = region.counts[part];
      const auto codes = static_cast<size_t>(bytes);
      bytes += in_fours(count * static_cast<int64_t>(size_of(*quantization_.reduce)));
      places.push_back({codes, static_cast<size_t>(bytes), elements_});
      bytes += scales(region, part) * static_cast<int64_t>(sizeof(float));
      elements_ += in_fours(count);
    }
  }
  received_.assign(bytes_.size(), bytes_[static_cast<size_t>(ranks_.rank)]);
  const auto total = [](const std::vector<int64_t>& bytes) {
    return padded(static_cast<size_t>(ranges::accumulate(bytes, int64_t{0})));
  };
  send_ = end;
  recv_ = send_ + total(bytes_);
  end = recv_ + total(received_);
}

size_t GradientMessages::residual_bytes() const {
  return quantization_.error_feedback ? static_cast<size_t>(elements_) * sizeof(float) : 0;
}

/// The next stream of the rank's random numbers.
static RandomState next_stream() {
  RandomState& random = Context::current().random;
  return {random.seed, random.stream++};
}

Work GradientMessages::exchange(const Ref<Storage>& from, const Ref<Storage>& buffer,
                                const Ref<Storage>& residual, size_t missed) {
  const RandomState state = next_stream();
  const auto first = static_cast<uint64_t>(number_) * static_cast<uint64_t>(elements_);
  for (size_t part = 0; part < to_.size(); ++part) {
    const size_t message = send_ + static_cast<size_t>(sum_before(bytes_, to_[part]));
    for (size_t i = 0; i < regions_.size(); ++i) {
      const Region& region = regions_[i];
      const Place& place = places_[i][part];
      const int64_t count = region.counts[part];
      MemoryBlock lost;
      if (residual) {
        lost =
            array_at(residual, missed + static_cast<size_t>(place.elements_before) * sizeof(float),
                     DType::f32, 1, count);
      }
      const CodeRounding rounding{true, state,
                                  first + static_cast<uint64_t>(place.elements_before)};
      quantize(array_at(buffer, message + place.codes, *quantization_.reduce, 1, count),
               array_at(buffer, message + place.scales, DType::f32, 1, scales(region, part)),
               part_block(region, from, static_cast<int>(part)), lost, quantization_.block,
               rounding);
    }
  }
  auto* base = static_cast<char*>(buffer->data());
  const Piece piece{.send = base + send_,
                    .recv = base + recv_,
                    .dtype = DType::u8,
                    .counts = bytes_,
                    .device = buffer->device()};
  return ranks_.communicator.all_to_all(piece, received_);
}

void GradientMessages::add_up(const Arriving& arriving, const Ref<Storage>& buffer) const {
  const auto& [gradient, part, out, accumulate] = arriving;
  const Region& region = regions_[gradient];
  const Place& place = places_[gradient][part];
  const auto apart = static_cast<size_t>(received_[0]);
  dequantize(
      out,
      array_at(buffer, recv_ + place.codes, *quantization_.reduce, ranks_.size, region.counts[part],
               apart),
      array_at(buffer, recv_ + place.scales, DType::f32, ranks_.size, scales(region, part), apart),
      quantization_.block, accumulate);
}

void ReplicaSums::add(size_t offset, int64_t elements, DType dtype) {
  size_t unused = 0;
  Region region = region_of({elements}, 0, dtype, dtype, ranks_, unused, {}, false);
  region.offset = offset;
  messages_.add(region);
  regions_.push_back(std::move(region));
}

void ReplicaSums::lay_out() {
  messages_.lay_out(bytes_);
  for (const Region& region : regions_) {
    gathered_.push_back(quantized_of(region, *quantization_.reduce, quantization_.block,
                                     numbers_of(ranks_), ranks_.rank, bytes_));
  }
}

int64_t ReplicaSums::traffic() const {
  int64_t bytes = messages_.traffic();
  for (const Extended& extended : gathered_) {
    for (const Extended::Wire& wire : extended.wires) bytes += wire.received(ranks_.rank);
  }
  return bytes;
}

Work ReplicaSums::start(const Ref<Storage>& sums, const Ref<Storage>& codes) {
  return messages_.exchange(sums, codes, {});
}

void ReplicaSums::finish(const Ref<Storage>& sums, const Ref<Storage>& codes) const {
  CodeRounding rounding{true, next_stream(), 0};
  std::vector<Piece> pieces;
  std::deque<std::vector<int64_t>> counts;
  for (size_t i = 0; i < regions_.size(); ++i) {
    const MemoryBlock own = part_block(regions_[i], sums, ranks_.rank);
    messages_.add_up({i, static_cast<size_t>(ranks_.rank), own, false}, codes);
    quantize_part(gathered_[i], codes, own, rounding);
    add_pieces(gathered_[i], codes, ranks_.size, 1, pieces, counts);
    rounding.first += static_cast<uint64_t>(in_fours(regions_[i].elements()));
  }
  ranks_.communicator.all_gather(pieces).wait();
  for (size_t i = 0; i < regions_.size(); ++i) {
    dequantize_parts(gathered_[i], codes, regions_[i], sums);
  }
}

std::vector<GradientMessages> messages_of(const Roles& roles, size_t first, size_t last,
                                          const Quantization& quantization) {
  const AxisGroup ranks = roles.group(first, last);
  const int stream = roles.mesh.root().rank();
  const std::optional<Stages> stages = stages_of(roles, first, last, quantization);
  if (!stages) return {{quantization, ranks, numbers_of(ranks), stream}};
  return {{quantization, stages->within, stages->rank_within, stream},
          {quantization, stages->across, numbers_of(stages->across), stream}};
}

}  // namespace weft::fsdp
