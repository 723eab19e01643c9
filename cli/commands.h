// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <csignal>
#include <cstdio>
#include <iterator>
#include <string>

#include "weft/communicator.h"
#include "weft/device.h"
#include "weft/error.h"

namespace CLI {
class App;
}

namespace weft::cli {

// Each function adds a subcommand with its flags. Parsing a command line that names it runs it and
// throws what went wrong; `code` becomes the exit code, which is 0 of commands without it.

void add_train(CLI::App& program, int& code);
void add_estimate(CLI::App& program);
void add_ckpt(CLI::App& program, int& code);
void add_report(CLI::App& program);
void add_check_step(CLI::App& program, int& code);
void add_sample(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_trace(CLI::App& program);
/// Cuts "-- program arguments" off the command line `weft run ... -- program arguments`.
void add_run(CLI::App& program, int& argc, char** argv, int& code);
void add_resize(CLI::App& program);

/// Writes all parts to stdout.
template <class... Parts> void print(const Parts&... parts) {
  const std::string text = concat(parts...);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

/// "12 B", "3.40 GB", "56.7 TFLOP".
inline std::string readable(double amount, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P", "E", "Z"};
  size_t prefix = 0;
  for (; amount >= 999.95 && prefix + 1 < std::size(kPrefixes); ++prefix) amount /= 1000;
  const int digits = prefix == 0 ? 0 : amount < 10 ? 2 : 1;
  return formatted("%.*f %s%s", digits, amount, kPrefixes[prefix], unit);
}
inline std::string readable_bytes(int64_t bytes) {
  return readable(static_cast<double>(bytes), "B");
}

/// Makes a stdout or stderr whose reader is gone an error at the end, instead of SIGPIPE
/// at once: for commands that save something.
inline void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

/// Ranks that a command runs on: those of the job that started this process, else `asked`, threads
/// of this process. std::invalid_argument when more than one are asked for by `flag` and the job
/// has another number.
int job_ranks(int asked, const char* flag);

/// The flags of this process, for `check_same_flags`.
void note_flags(int argc, char** argv);
/// Throws when a rank's process was started with other flags than rank 0's. Collective.
void check_same_flags(const Communicator& world);
/// True in the process that speaks for all ranks.
bool is_first_process();

/// The device of a rank. "cuda" assigns the GPUs of a host to its ranks in turn, in a job of
/// processes by their rank on the host; any other name is the device of all ranks.
Device device_of_rank(const std::string& name, int rank);

/// Devices that so many ranks compute on; on the CPU each rank counts as one. Every host of a job
/// is taken to be like this one.
int devices_of_ranks(const std::string& name, int ranks);

}  // namespace weft::cli
