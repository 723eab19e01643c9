// SPDX-License-Identifier: Apache-2.0
#include "weft/extend/json.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft {

static constexpr size_t kMaxJsonDepth = 32;

/// Checks each token once and builds no document, so that hostile input costs only its own size.
class JsonCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonCheck(const std::string& what, const std::string& source) : what_(what), source_(source) {}

  bool null() override { return scalar(); }
  bool boolean(bool) override { return scalar(); }
  bool number_integer(number_integer_t) override { return scalar(); }
  bool number_unsigned(number_unsigned_t) override { return scalar(); }
  bool number_float(number_float_t, const string_t&) override { return scalar(); }
  bool string(string_t&) override { return scalar(); }
  bool binary(binary_t&) override { return scalar(); }

  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return scalar() && enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }

  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second) {
      fail(what_, ": ", source_, ": the key ", in_quotes(name), " stands twice in one object");
    }
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    std::string_view reason = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ...; last read: '...'":
    // the part after "last read" repeats the text, which may be long.
    if (const size_t start = reason.find("] "); start != reason.npos)
      reason.remove_prefix(start + 2);
    reason = reason.substr(0, std::min(reason.find("; last read"), size_t{200}));
    fail(what_, ": ", source_, ": not valid JSON: ", reason);
  }

 private:
  bool scalar() const {
    if (keys_.empty()) fail(what_, ": ", source_, ": the JSON value is not an object");
    return true;
  }
  bool enter() {
    if (keys_.size() == kMaxJsonDepth) {
      fail(what_, ": ", source_, ": the JSON is more than ", kMaxJsonDepth, " levels deep");
    }
    keys_.emplace_back();
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  const std::string& what_;
  const std::string& source_;
  std::vector<std::unordered_set<std::string>> keys_;
};

void check_json(const std::string& what, const std::string& source, std::string_view text) {
  // The parser treats a zero byte as the end of the text and skips a byte order mark.
  if (const size_t zero = text.find('\0'); zero != text.npos) {
    fail(what, ": ", source, ": not valid JSON: a zero byte at byte ", zero);
  }
  if (text.starts_with("\xEF\xBB\xBF")) {
    fail(what, ": ", source, ": not valid JSON: it starts with a byte order mark");
  }
  JsonCheck check(what, source);
  nlohmann::json::sax_parse(text, &check);
}

std::string read_json(const std::string& what, const std::string& path, int64_t max_bytes) {
  std::string text = read_file(what, path, max_bytes);
  if (text.empty()) fail(what, ": ", path, " is empty, expected a JSON object");
  check_json(what, path, text);
  return text;
}

}  // namespace weft
