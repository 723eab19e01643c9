// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace weft::fuzz {

/// Each reads bytes that may come from anyone. It returns, or throws std::invalid_argument; all
/// else is a finding.
void checkpoint(const std::string& input);
void safetensors(const std::string& input);
void config(const std::string& input);
void tokenizer(const std::string& input);
void chat_template(const std::string& input);
void dcp(const std::string& input);
void flight(const std::string& input);
void job_messages(const std::string& input);

/// Writes a file of a folder in memory that only this process uses, and returns its path.
std::string scratch_file(const std::string& name, const std::string& content);
/// Splits at lines of "====", as inputs of several files have them.
std::vector<std::string> parts_of(const std::string& input);

}  // namespace weft::fuzz
