// SPDX-License-Identifier: Apache-2.0

// This does what libFuzzer does, without its feedback: fuzz [--seconds N] [--seed S] FILE|FOLDER...
// runs all files, then changed copies of them for N seconds, the same ones for the same seed. An
// input that ends the process, or takes more than 20 seconds of a core, is written to the file
// fuzz-<target>.input.

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*)());

static std::string current;

/// Called in a process that ends: uses the system only.
static void write_finding() {
  static char name[100] = "fuzz-";
  std::strncat(name, std::getenv("WEFT_FUZZ"), 60);
  std::strcat(name, ".input");
  const int file = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0644);
  const ssize_t written = write(file, current.data(), current.size());
  const char text[] = "fuzz: the input that failed is in ";
  if (written < 0 || write(2, text, sizeof text - 1) < 0 || write(2, name, std::strlen(name)) < 0) {
    _exit(3);
  }
  if (write(2, "\n", 1) < 0) _exit(3);
}

static void end_by_exception() {
  write_finding();
  try {
    std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz: threw %s\n", error.what());
  } catch (...) {
  }
  std::_Exit(1);
}

static void end_by_signal(int signal) {
  write_finding();
  std::signal(signal, SIG_DFL);
  std::raise(signal == SIGPROF ? SIGKILL : signal);
}

static void run(const std::string& input) {
  current = input;
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = 20, .tv_usec = 0}}, none{};
  setitimer(ITIMER_PROF, &limit, nullptr);
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(current.data()), current.size());
  setitimer(ITIMER_PROF, &none, nullptr);
}

using Random = std::mt19937_64;
static size_t below(Random& random, size_t end) { return end == 0 ? 0 : random() % end; }

/// Words, numbers and marks of the inputs, and a few of each trade.
static std::vector<std::string> words_of(const std::vector<std::string>& inputs) {
  std::vector<std::string> words{"-1",
                                 "0",
                                 "9223372036854775807",
                                 "18446744073709551616",
                                 "1e308",
                                 "null",
                                 "{}",
                                 "[]",
                                 "\"\"",
                                 "\\u0000",
                                 "\xff\xff\xff\xff",
                                 "\xf0\x9f\x98\x80",
                                 "{{",
                                 "}}",
                                 "{%",
                                 "%}",
                                 "NaN",
                                 "true",
                                 "\n====\n",
                                 std::string(8, '\0')};
  for (const std::string& input : inputs) {
    size_t begin = 0;
    for (size_t i = 0; i <= input.size() && words.size() < 20000; ++i) {
      const bool is_word = i < input.size() && (std::isalnum(static_cast<uint8_t>(input[i])) != 0 ||
                                                input[i] == '_' || input[i] == '"');
      if (is_word) continue;
      if (i > begin && i - begin < 40) words.push_back(input.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return words;
}

static void change(std::string& input, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& words, Random& random) {
  const size_t at = below(random, input.size() + 1);
  const size_t length =
      std::min(below(random, 1 + (size_t{1} << below(random, 10))), input.size() - at);
  const std::string& other = inputs[below(random, inputs.size())];
  const size_t there = below(random, other.size() + 1);
  switch (below(random, 9)) {
    case 0: input.insert(at, words[below(random, words.size())]); break;
    case 1: input.replace(at, length, words[below(random, words.size())]); break;
    case 2: input.erase(at, length); break;
    case 3: input.insert(at, input.substr(at, length)); break;
    case 4: input.replace(at, length, other.substr(there, below(random, 200))); break;
    case 5: input = input.substr(0, at) + other.substr(there); break;
    case 6:
      if (at < input.size()) input[at] = static_cast<char>(random());
      break;
    case 7:
      if (at < input.size()) input[at] ^= static_cast<char>(1 << below(random, 8));
      break;
    default: {
      const std::string part = input.substr(at, std::min<size_t>(length, 8));
      for (size_t n = below(random, 200); n > 0; --n) input.insert(at, part);
    }
  }
  if (input.size() > (size_t{1} << 16)) input.resize(size_t{1} << 16);
}

static void add_files(const std::filesystem::path& path, std::vector<std::string>& inputs) {
  if (std::filesystem::is_directory(path)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry);
    std::sort(files.begin(), files.end());
    for (const auto& file : files) add_files(file, inputs);
    return;
  }
  std::ifstream file(path, std::ios::binary);
  inputs.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

int main(int argc, char** argv) {
  std::vector<std::string> inputs;
  double seconds = 0;
  uint64_t seed = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc) {
      seconds = std::atof(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      add_files(argument, inputs);
    }
  }
  if (const char* given = std::getenv("WEFT_FUZZ_SECONDS")) seconds = std::atof(given);
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(write_finding);
  std::set_terminate(end_by_exception);
  for (const int signal : {SIGPROF, SIGABRT}) std::signal(signal, end_by_signal);
  for (const std::string& input : inputs) run(input);
  if (inputs.empty()) inputs.emplace_back();
  const std::vector<std::string> words = words_of(inputs);
  Random random(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int64_t runs = 0;
  for (; std::chrono::steady_clock::now() < end; ++runs) {
    std::string input = inputs[below(random, inputs.size())];
    for (size_t changes = 1 + below(random, 4); changes > 0; --changes) {
      change(input, inputs, words, random);
    }
    run(input);
  }
  std::printf("%s: %zu files and %lld changed ones: nothing found\n", std::getenv("WEFT_FUZZ"),
              inputs.size(), static_cast<long long>(runs));
}
