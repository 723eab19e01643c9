// SPDX-License-Identifier: Apache-2.0
#include "src/base/store/credentials.h"

#include <charconv>
#include <cstdlib>
#include <map>

#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::s3 {

using Profile = std::map<std::string, std::string>;

static std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

static std::string first_of(std::initializer_list<std::string> values) {
  for (const std::string& value : values) {
    if (!value.empty()) return value;
  }
  return {};
}

static std::string_view stripped(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// The values of a section of an INI file. Indented lines are nested settings: they are skipped.
static Profile section_of(const std::string& text, std::string_view section) {
  Profile values;
  bool is_inside = false;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    at = end + 1;
    const std::string_view plain = stripped(line);
    if (plain.empty() || plain[0] == '#' || plain[0] == ';') continue;
    if (plain[0] == '[') {
      is_inside = stripped(plain.substr(1, plain.find(']') - 1)) == section;
      continue;
    }
    const size_t equals = plain.find('=');
    if (!is_inside || line[0] == ' ' || line[0] == '\t' || equals == plain.npos) continue;
    values[std::string(stripped(plain.substr(0, equals)))] = stripped(plain.substr(equals + 1));
  }
  return values;
}

static std::string home_file(const char* name, const char* given) {
  const std::string path = variable(given);
  return path.empty() ? variable("HOME") + "/.aws/" + name : path;
}

/// "" when the file does not exist.
static std::string text_of_file(const std::string& path) {
  try {
    return read_file("s3", path, int64_t{1} << 20);
  } catch (const std::invalid_argument&) {
    return {};
  }
}

static double deadline() {
  const std::string text = variable("WEFT_S3_DEADLINE");
  double seconds = 300;
  const char* const end = text.data() + text.size();
  const bool is_number = text.empty() || std::from_chars(text.data(), end, seconds).ptr == end;
  if (is_number && seconds >= 1 && seconds <= 86400) return seconds;
  fail_call("s3", "WEFT_S3_DEADLINE is ", in_quotes(text), ", expected 1 to 86400 seconds");
}

Settings settings_from_environment() {
  const std::string profile = first_of({variable("AWS_PROFILE"), "default"});
  const std::string config_file = home_file("config", "AWS_CONFIG_FILE");
  const std::string secret_file = home_file("credentials", "AWS_SHARED_CREDENTIALS_FILE");
  const Profile config =
      section_of(text_of_file(config_file), profile == "default" ? profile : "profile " + profile);
  Profile secret = section_of(text_of_file(secret_file), profile);
  Settings settings;
  const auto of = [](const Profile& from, const char* key) {
    const auto found = from.find(key);
    return found == from.end() ? std::string() : found->second;
  };
  settings.region = first_of(
      {variable("AWS_REGION"), variable("AWS_DEFAULT_REGION"), of(config, "region"), "us-east-1"});
  settings.endpoint = first_of(
      {variable("AWS_ENDPOINT_URL_S3"), variable("AWS_ENDPOINT_URL"), of(config, "endpoint_url")});
  while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  const bool is_url =
      settings.endpoint.starts_with("http://") || settings.endpoint.starts_with("https://");
  if (settings.endpoint.find('@') != std::string::npos) {
    fail_call("s3",
              "the endpoint has a user name, expected http:// or https:// and a host; set "
              "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
  }
  if (!settings.endpoint.empty() && !is_url) {
    fail_call("s3", "the endpoint is ", in_quotes(settings.endpoint),
              ", expected http:// or https:// and a host; correct AWS_ENDPOINT_URL");
  }
  settings.ca_bundle = first_of({variable("AWS_CA_BUNDLE"), of(config, "ca_bundle")});
  settings.deadline = deadline();
  Credentials& own = settings.credentials;
  // A named profile goes before nothing but the variables, as in the AWS command line.
  own = {variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY"),
         variable("AWS_SESSION_TOKEN")};
  if (!own.id.empty() && !own.secret.empty()) return settings;
  if (!secret.contains("aws_access_key_id")) secret = config;
  own = {of(secret, "aws_access_key_id"), of(secret, "aws_secret_access_key"),
         of(secret, "aws_session_token")};
  if (!own.id.empty() && !own.secret.empty()) return settings;
  fail_call("s3",
            "no credentials found, expected AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
            "profile ",
            in_quotes(profile), " in ", secret_file,
            "; roles of instances and containers, SSO and credential_process are not supported");
}

}  // namespace weft::s3
