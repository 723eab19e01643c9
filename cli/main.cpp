// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string_view>

#include "cli/commands.h"
#include "weft/error.h"
#include "weft/extend/file.h"
#include "weft/threads.h"

namespace weft::cli {

static constexpr int kFailed = 1, kWrongUsage = 2;

/// Returns "; nearest: --batch" for "--batch-size": the command's flags that contain the name or
/// are contained in it.
static std::string nearest_flags(const CLI::App& command, std::string_view flag) {
  const std::string_view name =
      flag.substr(0, flag.find('=')).substr(flag.starts_with("--") ? 2 : 1);
  std::string found;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& other : option->get_lnames()) {
      const bool is_near =
          name.size() > 2 && (other.find(name) != other.npos || name.find(other) != name.npos);
      if (is_near) found += concat(found.empty() ? "; nearest: --" : ", --", other);
    }
  }
  return found;
}

/// A mistake in the command line as one sentence, which names the command whose help explains it.
static std::string in_words(const CLI::ParseError& error, const CLI::App& program) {
  const CLI::App* command = &program;
  std::string name = "weft";
  while (!command->get_subcommands().empty()) {
    command = command->get_subcommands().front();
    name += ' ' + command->get_name();
  }
  std::string what = error.what();
  if (what.starts_with("A subcommand is required")) what = "a command is required";
  if (what == "--resume is required") what = "DIR or --resume is required";
  const std::vector<std::string> extras = program.remaining(true);
  const auto flag = std::find_if(extras.begin(), extras.end(),
                                 [](const std::string& extra) { return extra.starts_with('-'); });
  if (flag != extras.end()) {
    what = concat("there is no flag ", *flag, nearest_flags(*command, *flag));
  } else if (!extras.empty() && command->get_require_subcommand_min() > 0) {
    what = concat("there is no command ", in_quotes(extras.front()));
  } else if (!extras.empty() && name == "weft run") {
    what = "-n is required, as in weft run -n 4 -- program arguments";
  } else if (!extras.empty()) {
    what = concat("argument ", in_quotes(extras.front()), " is one too many");
  }
  return concat("weft: ", escaped(what), "; see ", name, " --help\n");
}

/// Prints the help of the command whose line asks for it besides holding `mistake`, or `mistake`.
static int refuse(const std::string& mistake, const CLI::App& program, int argc, char** argv) {
  const auto is_help = [](std::string_view given) { return given == "--help" || given == "-h"; };
  if (std::any_of(argv, argv + argc, is_help)) {
    std::cout << program.help();
    return 0;
  }
  std::cerr << mistake;
  return kWrongUsage;
}

static int run(int argc, char** argv) {
  CLI::App program("weft: distributed tensors in C++ - the program");
  program.name("weft");
  program.set_version_flag("--version", "weft " WEFT_VERSION);
  program.require_subcommand(1);
  int code = 0;
  add_train(program, code);
  add_estimate(program);
  add_ckpt(program, code);
  add_check_step(program, code);
  add_sample(program);
  add_tokenize(program);
  add_report(program);
  add_trace(program);
  add_run(program, argc, argv, code);
  add_resize(program);
  const auto is_named = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && program.get_subcommands(is_named).empty()) {
    std::cerr << concat("weft: there is no command ", in_quotes(argv[1]), "; see weft --help\n");
    return kWrongUsage;
  }
  try {
    program.parse(argc, argv);
    return code;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);
    return refuse(in_words(error, program), program, argc, argv);
  } catch (const std::invalid_argument& error) {
    return refuse(concat("weft: ", escaped(error.what()), '\n'), program, argc, argv);
  } catch (const std::exception& error) {
    std::cerr << concat("weft: ", escaped(error.what()), '\n');
    return kFailed;
  }
}

/// The exit code of a program that would exit with `code` if all of its output was written.
static int flushed(int code) {
  const bool is_flushed = std::fflush(stdout) == 0;
  const int reason = errno;
  if (code != 0 || (is_flushed && !std::ferror(stdout))) return code;
  std::cerr << concat("weft: stdout: the output is incomplete",
                      is_flushed ? "" : concat(": ", std::strerror(reason)), '\n');
  return kFailed;
}

/// Ranks that are threads share the descriptors of the process, and models have many files.
static void raise_open_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace weft::cli

int main(int argc, char** argv) {
  weft::let_threads_sleep(argv);
  weft::open_standard_descriptors();
  weft::set_warning_handler([](const std::string& sentence) {
    std::cerr << weft::concat("weft: ", weft::escaped(sentence), '\n');
  });
  weft::cli::note_flags(argc, argv);
  // Asks for flight records; a run that keeps none goes on. `weft run` only passes it on.
  const char* folder = std::getenv("WEFT_FLIGHT");
  const bool is_launcher = argc > 1 && std::string_view(argv[1]) == "run";
  if (!is_launcher) weft::cli::raise_open_files();
  if (!is_launcher && (!folder || !*folder)) std::signal(SIGUSR1, SIG_IGN);
  return weft::cli::flushed(weft::cli::run(argc, argv));
}
