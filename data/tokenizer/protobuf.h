// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft::text {

/// A field of a message of protocol buffers.
struct ProtobufField {
  uint32_t number;
  /// The value of a number, or the bits of a float or double.
  uint64_t value;
  /// The bytes of a text or a message.
  std::string_view bytes;
  bool is_bytes;
};

/// Reads the fields of a message in the order of its bytes.
class Protobuf {
 public:
  /// Errors begin with `what`. `message` and `what` outlive the reader.
  Protobuf(const std::string& what, std::string_view message) : what_(what), rest_(message) {}
  /// The next field, or nothing at the end; std::invalid_argument when the message is damaged.
  std::optional<ProtobufField> next();

 private:
  [[noreturn]] void fail_damaged() const;
  uint64_t varint();
  std::string_view take(size_t bytes);

  const std::string& what_;
  std::string_view rest_;
};

}  // namespace weft::text
