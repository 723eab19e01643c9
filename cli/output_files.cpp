// SPDX-License-Identifier: Apache-2.0
#include "cli/output_files.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <vector>

#include "cli/weights.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::cli {

namespace fs = std::filesystem;

namespace {

/// A file or folder that a flag names.
struct Named {
  const char* flag;
  std::string path;
};

}  // namespace

/// Where it is, or will be: of a relative path whose first folder is not there the system's
/// function gives a relative one.
static fs::path located(const std::string& path) {
  std::error_code ignored;
  return fs::weakly_canonical(fs::absolute(path, ignored), ignored);
}

static void check_outside(const Named& output, const std::string& data) {
  std::error_code ignored;
  if (output.path.empty() || !is_directory(data)) return;
  const fs::path inner = located(output.path);
  const fs::path outer = fs::canonical(data, ignored);
  const auto [end, stop] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (end == outer.end()) {
    fail(output.flag, ' ', output.path, " is within --data ", data,
         ", expected a place where it is not read as text");
  }
}

static void check_other_file(const Named& output, const Named& other) {
  if (output.path.empty() || other.path.empty()) return;
  if (located(output.path) != located(other.path)) return;
  fail(output.flag, ' ', output.path, " is also the file of ", other.flag,
       ", expected another file");
}

void check_output_files(const TrainOptions& options) {
  const Named metrics{"--metrics", options.metrics}, trace{"--trace", options.trace};
  // Without --model it is that of --init.
  std::vector<Named> inputs{{"--init", options.init}, {"--model", options.parallel.model}};
  for (const std::string& data : options.data) {
    inputs.push_back({"--data", data});
    check_outside({"--save", options.checkpoints.save}, data);
    for (const Named& output : {metrics, trace}) check_outside(output, data);
  }
  for (const Named& output : {metrics, trace}) {
    for (const Named& input : inputs) check_other_file(output, input);
  }
  check_other_file(trace, metrics);
}

void check_writable(const char* flag, const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  const bool is_new = !fs::exists(path, ignored);
  (void)OutputFile(flag, path, OutputFile::Mode::append);
  if (is_new) fs::remove(path, ignored);
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace weft::cli
