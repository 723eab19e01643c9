// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

namespace weft {
namespace tests {

/// A directory for files, removed at the end of the test.
class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    root_ = name;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  std::string path(std::string_view name) const { return (root_ / name).string(); }
  std::string root() const { return root_.string(); }

  std::string write(std::string_view name, std::string_view bytes) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name, std::ios::binary) << bytes;
    return path(name);
  }

  /// Writes a safetensors file of that header and data; its length field is `length` unless that is
  /// -1.
  std::string write_safetensors(std::string_view name, const std::string& header,
                                const std::string& data, int64_t length = -1) const {
    const auto count = static_cast<uint64_t>(length < 0 ? int64_t(header.size()) : length);
    std::string bytes(reinterpret_cast<const char*>(&count), sizeof count);
    return write(name, bytes + header + data);
  }

 private:
  std::filesystem::path root_;
};

}  // namespace tests

using tests::Scratch;

/// Writes into a file of `directory` that this process has open, as a defective
/// disk would.
inline void corrupt_open_file(const std::string& directory, int64_t offset) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry, ignored).string();
    if (target.find(directory) == std::string::npos) continue;
    const int file = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::pwrite(file, "bad", 3, offset), 3);
    ::close(file);
    return;
  }
  FAIL() << "no file";
}

/// Returns all bytes of a file; none when it cannot be read.
inline std::string bytes_in(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// True when the text has these words; a failed check prints both.
inline testing::AssertionResult has(const std::string& text, const std::string& words) {
  if (text.find(words) != text.npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "expected: " << words << "\nin: " << text;
}

/// Returns the text of the exception that `call` throws; "nothing" if it throws none.
template <class Error = std::invalid_argument, class Call> std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace weft
