// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "train/metrics.h"
#include "weft/error.h"
#include "weft/extend/crc.h"
#include "weft/extend/file.h"

namespace weft {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "event files are little-endian");

template <class T> static std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// A record of a TFRecord file: its length and its bytes, each with a masked CRC-32C.
static std::string record(const std::string& bytes) {
  const auto masked = [](std::string_view of) {
    return bytes_of(std::rotr(crc32_of<kCastagnoli>(std::as_bytes(std::span(of))), 15) +
                    0xa282ead8u);
  };
  const std::string length = bytes_of(uint64_t{bytes.size()});
  return length + masked(length) + bytes + masked(bytes);
}

/// A message of Protocol Buffers, field by field.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    bytes_ += bytes_of(value);
    return *this;
  }
  Message& single(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    bytes_ += bytes_of(value);
    return *this;
  }
  Message& bytes(int field, const std::string& value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& text() const { return bytes_; }

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

static double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Fields of the messages Event, Summary, Summary.Value and SessionLog of TensorFlow.
static constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
static constexpr int kValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1;
static constexpr uint64_t kStart = 1;

static constexpr std::string_view kPrefix = "events.out.tfevents.";

namespace {

class Events : public MetricsWriter {
 public:
  Events(const std::string& flag, const std::string& directory, int64_t done)
      : file_(flag, new_path(flag, directory, done), OutputFile::Mode::replace) {
    file_.write(record(Message()
                           .real(kWallTime, seconds_since_1970())
                           .bytes(kFileVersion, "brain.Event:2")
                           .text()));
    // A start makes TensorBoard drop events of that step and later ones.
    file_.write(record(Message()
                           .real(kWallTime, seconds_since_1970())
                           .number(kStep, static_cast<uint64_t>(done + 1))
                           .bytes(kSessionLog, Message().number(kStatus, kStart).text())
                           .text()));
  }

  void write(const MetricsLine& line) override {
    Message summary;
    for_each_metric(line, '/', [&](const std::string& name, const MetricsLine& value) {
      if (name == "step" || !value.is_number()) return;
      summary.bytes(
          kValue,
          Message().bytes(kTag, name).single(kSimpleValue, value.template get<float>()).text());
    });
    file_.write(record(Message()
                           .real(kWallTime, seconds_since_1970())
                           .number(kStep, line.at("step").get<uint64_t>())
                           .bytes(kSummary, summary.text())
                           .text()));
  }

 private:
  /// A name after those of the directory's other event files, which TensorBoard reads in order.
  static std::string new_path(const std::string& flag, const std::string& directory, int64_t done) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error)
      fail(flag, ": ", directory, " cannot be made (", error.message(), "), expected a directory");
    auto second = static_cast<int64_t>(seconds_since_1970());
    bool has_events = false;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(kPrefix)) continue;
      int64_t other = 0;
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), other);
      second = std::max(second, other + 1);
      has_events = true;
    }
    if (error)
      fail(flag, ": ", directory, " cannot be listed (", error.message(),
           "), expected a directory");
    if (has_events && done == 0) {
      warn(flag, ' ', printable(directory),
           ": has events of an earlier run, which TensorBoard hides from step 1 on");
    }
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
    const std::string name = concat(kPrefix, formatted("%010lld", static_cast<long long>(second)),
                                    '.', host[0] ? host.data() : "host", '.', ::getpid(), ".weft");
    return (fs::path(directory) / name).string();
  }

  OutputFile file_;
};

}  // namespace

std::unique_ptr<MetricsWriter> event_writer(const std::string& flag, const std::string& directory,
                                            int64_t done) {
  return std::make_unique<Events>(flag, directory, done);
}

}  // namespace weft
