// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/copy/copy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace weft {

/// Bytes that differ from position to position.
static std::vector<uint8_t> made_bytes(size_t count) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}

static void check_copy(size_t bytes, size_t to_offset, size_t from_offset) {
  SCOPED_TRACE(testing::Message() << bytes << " bytes from " << from_offset << " to " << to_offset);
  const std::vector<uint8_t> from = made_bytes(from_offset + bytes);
  std::vector<uint8_t> to(to_offset + bytes + 1, 0xab);
  copy_bytes(to.data() + to_offset, from.data() + from_offset, bytes);
  const std::vector<uint8_t> expected(from.begin() + static_cast<int64_t>(from_offset), from.end());
  EXPECT_TRUE(
      std::equal(expected.begin(), expected.end(), to.begin() + static_cast<int64_t>(to_offset)));
  EXPECT_EQ(to.back(), 0xab);
  for (size_t i = 0; i < to_offset; ++i) EXPECT_EQ(to[i], 0xab);
}

TEST(BulkCopy, CopiesAllBytesFromAndToAnywhere) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{63}, kBulkBytes - 1, kBulkBytes,
                             kBulkBytes + 1, kBulkBytes + 127}) {
    check_copy(bytes, 0, 0);
    check_copy(bytes, 3, 0);
    check_copy(bytes, 61, 7);
  }
}

TEST(BulkCopy, FewBytesAroundTheCaches) {
  for (const size_t bytes : {0, 1, 5, 64, 65, 200}) {
    const std::vector<uint8_t> from = made_bytes(bytes + 1);
    std::vector<uint8_t> to(bytes + 2, 0xab);
    copy_around_caches(to.data() + 1, from.data(), bytes);
    finish_bulk_writes();
    EXPECT_TRUE(std::equal(to.begin() + 1, to.end() - 1, from.begin()));
    EXPECT_EQ(to.front(), 0xab);
    EXPECT_EQ(to.back(), 0xab);
  }
}

}  // namespace weft
