// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/finite.h"

#include <algorithm>
#include <cstring>

namespace weft {

/// Elements whose bits of the exponent are all ones. One pass that only looks for the largest
/// magnitude is as fast as the second-level cache; counting comes where it found something.
template <class Word>
static int64_t non_finite_in(std::span<const std::byte> bytes, Word exponent) {
  constexpr auto kMagnitude = static_cast<Word>(static_cast<Word>(~Word{0}) >> 1);
  const size_t count = bytes.size() / sizeof(Word);
  const auto magnitude = [&](size_t i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof word, sizeof word);
    return static_cast<Word>(word & kMagnitude);
  };
  Word largest = 0;
  for (size_t i = 0; i < count; ++i) largest = std::max(largest, magnitude(i));
  if (largest < exponent) return 0;
  int64_t found = 0;
  for (size_t i = 0; i < count; ++i) found += magnitude(i) >= exponent;
  return found;
}

static int64_t non_finite_in(std::span<const std::byte> bytes, DType dtype) {
  switch (dtype) {
    case DType::f64: return non_finite_in<uint64_t>(bytes, 0x7ff0'0000'0000'0000);
    case DType::f32: return non_finite_in<uint32_t>(bytes, 0x7f80'0000);
    case DType::bf16: return non_finite_in<uint16_t>(bytes, 0x7f80);
    case DType::f16: return non_finite_in<uint16_t>(bytes, 0x7c00);
    case DType::f8_e4m3: return non_finite_in<uint8_t>(bytes, 0x7f);
    case DType::f8_e5m2: return non_finite_in<uint8_t>(bytes, 0x7c);
    default: return 0;
  }
}

FiniteCheck::FiniteCheck(const RankFiles& files, int rank) {
  for (const RankFiles::Entry& entry : files.entries(rank)) {
    tensors_.push_back({entry.offset + entry.bytes, files.manifest().tensors[entry.tensor].dtype,
                        static_cast<int64_t>(entry.tensor)});
  }
}

void FiniteCheck::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    while (tensors_[current_].end == at_) ++current_;
    const TensorData& tensor = tensors_[current_];
    const auto piece = bytes.first(std::min(static_cast<size_t>(tensor.end - at_), bytes.size()));
    const int64_t count = non_finite_in(piece, tensor.dtype);
    if (count > 0) found_.add({count, tensor.tensor});
    at_ += static_cast<int64_t>(piece.size());
    bytes = bytes.subspan(piece.size());
  }
}

}  // namespace weft
