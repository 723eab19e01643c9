// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/scratch.h"
#include "weft/extend/token_files.h"

namespace weft {
namespace {

using Paths = std::vector<std::string>;

TEST(Digest, DependsOnSizesAndBytes) {
  const Scratch scratch;
  // More than a block of 1 MiB, and an end within one.
  const std::string text((size_t{5} << 19) + 3, 'x');
  const Paths two = {scratch.write("a/1", text), scratch.write("a/2", "tail")};
  const uint64_t digest = digest_of(two);
  EXPECT_EQ(digest_of(Paths{scratch.write("b/1", text), scratch.write("b/2", "tail")}), digest);
  // The same bytes, cut elsewhere.
  EXPECT_NE(digest_of(Paths{scratch.write("c/1", text + "t"), scratch.write("c/2", "ail")}),
            digest);
  for (const size_t at : {size_t{0}, text.size() / 2, text.size() - 1}) {
    std::string other = text;
    other[at] = 'y';
    EXPECT_NE(digest_of(Paths{scratch.write("d/1", other), two[1]}), digest) << at;
  }
  EXPECT_NE(digest_of(Paths{two[1], two[0]}), digest);
  EXPECT_EQ(digest_of(Paths{}), digest_of(Paths{}));
  EXPECT_NE(error_of([&] { digest_of(Paths{scratch.path("none")}); }).find("none"),
            std::string::npos);
}

TEST(Digest, ReadsLargeDataInBlocks) {
  const Scratch scratch;
  const auto digest_with = [&](int64_t size, int64_t at) {
    const std::string path = scratch.write("large", "");
    std::filesystem::resize_file(path, static_cast<uintmax_t>(size));
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(at).put('x');
    return digest_of(Paths{path});
  };
  constexpr int64_t mib = int64_t{1} << 20, whole = 256 * mib, large = 300 * mib;
  EXPECT_NE(digest_with(whole, whole / 2 + 7), digest_with(whole, 2 * mib + 5));
  // The first and the last block count, what lies between two blocks does not.
  const uint64_t between = digest_with(large, 2 * mib + 5);
  EXPECT_EQ(digest_with(large, 3 * mib), between);
  EXPECT_NE(digest_with(large, mib - 1), between);
  EXPECT_NE(digest_with(large, large - mib), between);
  EXPECT_NE(digest_with(large, large - 1), digest_with(large, large - mib));
}

TEST(Digest, NamesAreRelativeToWhatWasGiven) {
  const auto names = [](const Paths& files, const Paths& given) {
    return digest_of_names(files, given);
  };
  const uint64_t digest = names({"/x/data/a/1", "/x/data/b"}, {"/x/data"});
  EXPECT_EQ(names({"/y/data/a/1", "/y/data/b"}, {"/y/data/"}), digest);
  EXPECT_EQ(names({"./a/1", "./b"}, {"."}), digest);
  EXPECT_NE(names({"/x/data/a/2", "/x/data/b"}, {"/x/data"}), digest);
  EXPECT_EQ(names({"/x/b"}, {"/x/b"}), names({"/y/z/b"}, {"/y/z/b"}));
  // A name that begins like a directory does not lie in it.
  EXPECT_EQ(names({"/x/data2/b"}, {"/x/data", "/x/data2"}), names({"b"}, {"b"}));
}

}  // namespace
}  // namespace weft
