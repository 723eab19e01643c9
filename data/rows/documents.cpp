// SPDX-License-Identifier: Apache-2.0
#include "data/rows/documents.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::rows {

using Json = nlohmann::ordered_json;
using Spans = std::vector<std::pair<size_t, size_t>>;

DocumentReader::DocumentReader(const TokenFileOptions& options) : options_(options) {
  if (!options_.adds_special) return;
  const std::vector<int64_t> plain = tokenizer().encode("a", false);
  const std::vector<int64_t> all = tokenizer().encode("a", true);
  const auto at = std::search(all.begin(), all.end(), plain.begin(), plain.end());
  before_.assign(all.begin(), at);
  if (at != all.end()) after_.assign(at + std::ssize(plain), all.end());
}

void DocumentReader::begin(std::vector<int64_t>& ids) const {
  ids.insert(ids.begin(), before_.begin(), before_.end());
}

void DocumentReader::end(std::vector<int64_t>& ids) const {
  ids.insert(ids.end(), after_.begin(), after_.end());
  const auto eos = tokenizer().eos();
  if (options_.adds_special && eos && (ids.empty() || ids.back() != *eos)) ids.push_back(*eos);
}

Document DocumentReader::text(std::string_view text) const {
  Document made{tokenizer().encode(text, false), {}};
  begin(made.ids);
  end(made.ids);
  return made;
}

namespace {

/// The tokens of one line.
class Line {
 public:
  Line(const DocumentReader& reader, LossOn loss, const Json& fields, const std::string& where)
      : reader_(reader),
        tokenizer_(reader.tokenizer()),
        loss_(loss),
        fields_(fields),
        where_(where) {}

  Document read(const std::string& field) const {
    if (!field.empty()) {
      const Json& value = at(field);
      if (value.is_string()) return text(value.get<std::string>());
      if (value.is_array()) return conversation(value);
      fail("data: ", where_, ": the field ", in_quotes(field), " is a ", value.type_name(),
           ", expected a text or a list of messages");
    }
    for (const char* name : {"messages", "conversations"}) {
      if (fields_.contains(name)) return conversation(list(name));
    }
    if (fields_.contains("prompt") && fields_.contains("completion")) return completion();
    if (fields_.contains("text")) return text(at("text").get<std::string>());
    fail("data: ", where_, ": the fields are ", field_names(),
         ", expected messages, conversations, prompt and completion, or text; name another field ",
         "by --field");
  }

 private:
  std::string field_names() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : fields_.items()) names.push_back(in_quotes(name));
    return names.empty() ? "none" : listed(names);
  }
  const Json& at(const std::string& name) const {
    if (!fields_.contains(name)) {
      fail("data: ", where_, ": the field ", in_quotes(name), " is missing, expected it among ",
           field_names());
    }
    const Json& value = fields_.at(name);
    if (name == "text" && !value.is_string()) {
      fail("data: ", where_, ": the field \"text\" is a ", value.type_name(), ", expected a text");
    }
    return value;
  }
  const Json& list(const std::string& name) const {
    const Json& value = at(name);
    if (value.is_array()) return value;
    fail("data: ", where_, ": the field ", in_quotes(name), " is a ", value.type_name(),
         ", expected a list of messages");
  }

  Document text(const std::string& text) const {
    if (loss_ == LossOn::assistant) {
      fail("data: ", where_,
           ": it is a text, expected messages, or a prompt and a completion; the loss is on the "
           "assistant's tokens");
    }
    return reader_.text(text);
  }

  std::string render(const Json& messages, bool prompts, Spans& generated) const {
    Json variables = {{"add_generation_prompt", prompts}};
    if (fields_.contains("tools")) variables["tools"] = fields_.at("tools");
    return tokenizer_.apply_chat_template(messages.dump(), variables.dump(), generated);
  }
  std::string render(const Json& messages, bool prompts = false) const {
    Spans ignored;
    return render(messages, prompts, ignored);
  }

  /// Bytes of the answer that is messages [first, last) of `messages`, whose text is `all`.
  std::pair<size_t, size_t> answer(const Json& messages, size_t first, size_t last,
                                   const std::string& all) const {
    const auto start = [&](size_t count) {
      return Json(std::vector<Json>(messages.begin(), messages.begin() + std::ptrdiff_t(count)));
    };
    const std::string before = first == 0 ? "" : render(start(first), true);
    const std::string after = last == messages.size() ? all : render(start(last));
    // A text may end with a token that a longer one has at its end.
    const auto same = static_cast<size_t>(
        std::mismatch(after.begin(), after.end(), all.begin(), all.end()).first - after.begin());
    const std::string_view rest = std::string_view(after).substr(same);
    if (!after.starts_with(before) || same < before.size() || !all.ends_with(rest)) {
      fail("data: ", where_, ": the chat template changes the text of earlier messages at message ",
           first,
           ", expected one that does not; mark answers by {% generation %} in the template, or "
           "train on all tokens (--loss-on all)");
    }
    return {before.size(), same};
  }

  Document rendered(const std::string& all, const Spans& answers) const {
    Document made{tokenizer_.encode(all, false), {}};
    if (loss_ != LossOn::all) made.counts = marked(tokenizer_, all, made.ids, answers);
    return made;
  }

  /// Messages of ShareGPT, {"from": "human", "value": ...}, with the keys and roles of others.
  static Json with_roles(Json messages) {
    static constexpr std::pair<const char*, const char*> kRoles[] = {{"human", "user"},
                                                                     {"gpt", "assistant"}};
    for (Json& message : messages) {
      if (!message.is_object() || !message.contains("from") || !message.contains("value")) continue;
      message["role"] = message["from"];
      message["content"] = message["value"];
      for (const char* old : {"from", "value"}) message.erase(old);
      for (const auto& [from, role] : kRoles) {
        if (message["role"] == from) message["role"] = role;
      }
    }
    return messages;
  }

  /// A conversation without answers has no loss, but one whose answers have another role than the
  /// assistant's is a mistake.
  void check_roles(const Json& messages) const {
    static constexpr std::array<std::string_view, 5> kOthers = {"system", "developer", "user",
                                                                "tool", "function"};
    std::vector<std::string> roles;
    bool are_known = true;
    for (const Json& message : messages) {
      const std::string role = message.value("role", "");
      are_known = are_known && std::ranges::count(kOthers, role) > 0;
      if (std::ranges::count(roles, in_quotes(role)) == 0) roles.push_back(in_quotes(role));
    }
    if (are_known) return;
    fail(
        "data: ", where_, ": the roles are ", listed(roles),
        ", expected \"assistant\" among them, for the loss is on the assistant's tokens; train on ",
        "all tokens by --loss-on all");
  }

  Document conversation(const Json& given) const {
    const Json messages = with_roles(given);
    Spans answers;
    const std::string all = render(messages, false, answers);
    if (answers.empty() && loss_ != LossOn::all) {
      for (size_t i = 0; i < messages.size(); ++i) {
        if (messages[i].value("role", "") != "assistant") continue;
        answers.push_back(answer(messages, i, i + 1, all));
      }
      if (answers.empty()) check_roles(messages);
    }
    return rendered(all, answers);
  }

  Document completion() const {
    const Json &prompt = at("prompt"), &completion = at("completion");
    const bool is_text = prompt.is_string();
    if (is_text != completion.is_string() ||
        (!is_text && !(prompt.is_array() && completion.is_array()))) {
      fail("data: ", where_, ": prompt is a ", prompt.type_name(), " and completion a ",
           completion.type_name(), ", expected two texts or two lists of messages");
    }
    if (is_text && tokenizer_.chat_template().empty()) {
      return continuation(prompt.get<std::string>(), completion.get<std::string>());
    }
    Json messages = prompt;
    const auto message = [](const char* role, const Json& content) {
      return Json{{"role", role}, {"content", content}};
    };
    if (is_text) messages = Json::array({message("user", prompt)});
    const size_t first = messages.size();
    if (is_text) messages.push_back(message("assistant", completion));
    if (!is_text) messages.insert(messages.end(), completion.begin(), completion.end());
    const std::string all = render(messages);
    Spans answers;
    if (loss_ != LossOn::all) answers.push_back(answer(messages, first, messages.size(), all));
    return rendered(all, answers);
  }

  /// A model without a chat template reads the completion after the prompt.
  Document continuation(const std::string& prompt, const std::string& completion) const {
    const std::string all = prompt + completion;
    Document made = rendered(all, {{prompt.size(), all.size()}});
    const size_t plain = made.ids.size();
    reader_.begin(made.ids);
    if (loss_ != LossOn::all) {
      made.counts.insert(made.counts.begin(), made.ids.size() - plain, uint8_t{0});
    }
    reader_.end(made.ids);
    if (loss_ != LossOn::all) made.counts.resize(made.ids.size(), uint8_t{1});
    return made;
  }

  const DocumentReader& reader_;
  const Tokenizer& tokenizer_;
  LossOn loss_;
  const Json& fields_;
  /// The file and the line.
  const std::string& where_;
};

}  // namespace

Document DocumentReader::line(const std::string& line, const std::string& where) const {
  check_json("data", where, line);
  const Json fields = Json::parse(line);
  try {
    return Line(*this, options_.loss, fields, where).read(options_.field);
  } catch (const std::invalid_argument& problem) {
    const std::string text = problem.what();
    if (text.starts_with("data: ")) throw;
    fail("data: ", where, ": ", text);
  } catch (const Json::exception& problem) {
    fail("data: ", where, ": ", problem.what());
  }
}

}  // namespace weft::rows
