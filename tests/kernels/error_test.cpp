// SPDX-License-Identifier: Apache-2.0
#include "weft/error.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/scratch.h"

namespace weft {

TEST(Error, QuotesNamesSoThatDifferentOnesStayDifferent) {
  const std::pair<std::string, std::string> cases[] = {
      {"plain name.bin", "\"plain name.bin\""},
      {"gr\xc3\xb6\xc3\x9f"
       "e \xf0\x9f\x98\x80",
       "\"gr\xc3\xb6\xc3\x9f"
       "e \xf0\x9f\x98\x80\""},
      {"a\"b\\c", "\"a\\\"b\\\\c\""},
      {std::string("\0\n\x1b\x7f", 4), "\"\\x00\\x0a\\x1b\\x7f\""},
      {"\xc2\x9b"
       "31m",
       "\"\\u{9b}31m\""},
      {"\xe2\x80\xae"
       "gpj.exe",
       "\"\\u{202e}gpj.exe\""},
      {"\xe2\x80\x8e\xe2\x80\x8f\xe2\x81\xa6\xd8\x9c", "\"\\u{200e}\\u{200f}\\u{2066}\\u{61c}\""},
      {"\xe2\x80\xa8\xe2\x80\x8b\xef\xbb\xbf", "\"\\u{2028}\\u{200b}\\u{feff}\""},
      {"\\u{202e}", "\"\\\\u{202e}\""},
      {"cut \xe2\x80", "\"cut \\xe2\\x80\""},
      {"\xc0\xaf\xed\xa0\x80\xff", "\"\\xc0\\xaf\\xed\\xa0\\x80\\xff\""},
  };
  std::set<std::string> texts;
  for (const auto& [name, text] : cases) {
    EXPECT_EQ(in_quotes(name), text);
    EXPECT_EQ(in_quotes(name), concat('"', escaped(in_quotes(name).substr(1)))) << "stays as it is";
    texts.insert(in_quotes(name));
  }
  EXPECT_EQ(texts.size(), std::size(cases));
}

TEST(Error, ClipsNamesBetweenCharacters) {
  for (int before = 115; before < 121; ++before) {
    const std::string name = std::string(before, 'a') + "\xf0\x9f\x98\x80 and more of it";
    const std::string text = in_quotes(name);
    EXPECT_EQ(text, escaped(text)) << before;
    EXPECT_EQ(text.find("..."), text.size() - 4);
  }
}

TEST(Error, LeavesHarmlessPathsAsTheyAre) {
  EXPECT_EQ(printable("/tmp/a \"b\"\\c"), "/tmp/a \"b\"\\c");
  EXPECT_EQ(printable("a\nb\\"), "\"a\\x0ab\\\\\"");
  EXPECT_EQ(printable(""), "\"\"");
  EXPECT_EQ(error_of([] { fail("load: ", "a\x1b[2J\nb"); }), "load: a\\x1b[2J\\x0ab");
  EXPECT_EQ(error_of<std::runtime_error>([] { fail_call("open", "a\xff"); }), "open: a\\xff");
}

}  // namespace weft
