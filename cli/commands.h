// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace weft::cli {

// Each function adds a subcommand with its flags. Parsing a command line that names it runs it and
// throws what went wrong; `code` becomes the exit code, which is 0 of commands without it.

void add_train(CLI::App& program, int& code);
void add_estimate(CLI::App& program);
void add_ckpt(CLI::App& program, int& code);
void add_sample(CLI::App& program);
void add_tokenize(CLI::App& program);
void add_trace(CLI::App& program);
/// Cuts "-- program arguments" off the command line `weft run ... -- program arguments`.
void add_run(CLI::App& program, int& argc, char** argv, int& code);

}  // namespace weft::cli
