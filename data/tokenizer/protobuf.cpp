// SPDX-License-Identifier: Apache-2.0
#include "data/tokenizer/protobuf.h"

#include <cstring>

#include "weft/error.h"

namespace weft::text {

void Protobuf::fail_damaged() const {
  fail(what_, ": the file is damaged, expected a model of SentencePiece");
}

uint64_t Protobuf::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(1)[0]);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  fail_damaged();
}

std::string_view Protobuf::take(size_t bytes) {
  if (bytes > rest_.size()) fail_damaged();
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::optional<ProtobufField> Protobuf::next() {
  if (rest_.empty()) return {};
  const uint64_t key = varint();
  ProtobufField field{
      .number = static_cast<uint32_t>(key >> 3), .value = 0, .bytes = {}, .is_bytes = false};
  size_t width = 0;
  switch (key & 7) {
    case 0: field.value = varint(); return field;
    case 1: width = 8; break;
    case 2:
      field.bytes = take(varint());
      field.is_bytes = true;
      return field;
    case 5: width = 4; break;
    default: fail_damaged();
  }
  std::memcpy(&field.value, take(width).data(), width);
  return field;
}

}  // namespace weft::text
