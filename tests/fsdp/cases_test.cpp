// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch.h"

namespace weft {
namespace {

/// The cells of a row of a Markdown table.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream parts(line.substr(1));
  for (std::string cell; std::getline(parts, cell, '|');) {
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.push_back(first == cell.npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

/// Every case of PyTorch's tests has a test here, or a reason.
TEST(Cases, NameTestsThatExist) {
  const std::filesystem::path folder = std::filesystem::path(WEFT_SOURCE_DIR) / "tests" / "fsdp";
  std::istringstream lines(bytes_in(folder / "fsdp2_cases.md"));
  int held = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|' || line.starts_with("| file") || line[1] == '-') continue;
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), 4u) << line;
    EXPECT_FALSE(cells[3].empty()) << line;
    if (cells[2] != "holds") {
      EXPECT_TRUE(cells[2] == "differs" || cells[2] == "none") << line;
      continue;
    }
    ++held;
    std::istringstream words(cells[3]);
    std::string file, name;
    words >> file >> name;
    const std::string text = bytes_in(folder / file);
    const size_t dot = name.find('.');
    const std::string in_text =
        dot == name.npos ? name : "(" + name.substr(0, dot) + ", " + name.substr(dot + 1) + ")";
    EXPECT_NE(text.find(in_text), text.npos) << line;
  }
  EXPECT_GT(held, 70);
}

}  // namespace
}  // namespace weft
