// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/parts.h"

#include <numeric>

namespace weft {

Parcels::Parcels(std::vector<int64_t> bytes) : bytes_(std::move(bytes)), offsets_(bytes_.size()) {
  std::exclusive_scan(bytes_.begin(), bytes_.end(), offsets_.begin(), int64_t{0});
  const int64_t total = std::accumulate(bytes_.begin(), bytes_.end(), int64_t{0});
  memory_ = Storage::allocate(static_cast<size_t>(total));
}

Parts::Parts(Communicator group, std::vector<Chunk> chunks)
    : group_(std::move(group)),
      chunks_(std::move(chunks)),
      received_before_(group_.traffic().bytes) {}

int64_t Parts::received() const { return group_.traffic().bytes - received_before_; }

void Parts::sum(std::span<int64_t> numbers) const {
  if (!numbers.empty()) group_.all_reduce_numbers(numbers, ReduceOp::sum);
}

std::vector<int64_t> Parts::gather(std::span<const int64_t> numbers) const {
  return numbers.empty() ? std::vector<int64_t>() : group_.all_gather_numbers(numbers);
}

Parcels Parts::gather(const Parcels& own) const {
  const std::vector<int64_t> sizes = gather(own.all_bytes());
  Parcels all(sizes);
  const Piece piece{
      .send = own.data(), .recv = all.data(), .dtype = DType::u8, .counts = all.all_bytes()};
  group_.all_gather({&piece, 1}).wait();
  return all;
}

Parcels Parts::exchange(const Parcels& sent) const {
  const std::vector<int64_t> sizes = group_.all_to_all_numbers(sent.all_bytes());
  Parcels received(sizes);
  const Piece piece{
      .send = sent.data(), .recv = received.data(), .dtype = DType::u8, .counts = sent.all_bytes()};
  group_.all_to_all(piece, sizes).wait();
  return received;
}

}  // namespace weft
