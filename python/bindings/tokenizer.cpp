// SPDX-License-Identifier: Apache-2.0
#include "weft/tokenizer.h"

#include <variant>

#include "python/bindings/bindings.h"
#include "python/bindings/fields.h"
#include "weft/error.h"
#include "weft/generate.h"

namespace weft::python {

/// Messages as Python has them: dicts with role and content, or pairs.
static std::vector<ChatMessage> messages_in(const std::vector<py::object>& given) {
  std::vector<ChatMessage> messages;
  for (const py::object& message : given) {
    if (py::isinstance<py::dict>(message)) {
      const auto fields = message.cast<py::dict>();
      if (!fields.contains("role") || !fields.contains("content")) {
        throw py::value_error("chat: a message has no role or content, expected both");
      }
      messages.push_back(
          {py::cast<std::string>(fields["role"]), py::cast<std::string>(fields["content"])});
    } else {
      const auto pair = message.cast<std::pair<std::string, std::string>>();
      messages.push_back({pair.first, pair.second});
    }
  }
  return messages;
}

/// Refuses a value that json.dumps did not take.
[[noreturn]] static void refuse_json(const std::string& name, const py::object& given,
                                     const py::object& refused, py::error_already_set& error) {
  const auto type = [](const py::handle& value) {
    return py::cast<std::string>(py::type::handle_of(value).attr("__name__"));
  };
  if (refused) {
    const bool is_call = PyCallable_Check(refused.ptr()) != 0;
    throw py::type_error(
        concat("apply_chat_template: ", name, " is a ",
               refused.is(given) ? "" : concat(type(given), " with a "), type(refused),
               ", expected JSON values; pass ",
               is_call ? "the schema as a dict" : "dicts, lists, texts, numbers, bools or None"));
  }
  if (error.matches(PyExc_RecursionError)) {
    throw py::value_error(
        concat("apply_chat_template: ", name, " is too deep, expected at most 200 levels"));
  }
  const auto problem = py::cast<std::string>(py::str(error.value()));
  if (error.matches(PyExc_TypeError) && problem.starts_with("keys must be")) {
    throw py::type_error(concat("apply_chat_template: ", name,
                                " has a dict with a key of the type ",
                                problem.substr(problem.rfind(' ') + 1), ", expected str"));
  }
  if (!error.matches(PyExc_ValueError)) throw;
  if (problem.starts_with("Circular")) {
    throw py::value_error(
        concat("apply_chat_template: ", name, " holds itself, expected values that do not"));
  }
  throw py::value_error(
      concat("apply_chat_template: ", name, " has NaN or infinity, expected finite numbers"));
}

/// An argument as JSON: values of Python's json and scalars of NumPy.
static std::string json_of(const std::string& name, const py::object& given) {
  py::object refused;
  const py::cpp_function plain([&](const py::object& value) -> py::object {
    const bool is_scalar = py::hasattr(value, "dtype") && py::hasattr(value, "item") &&
                           py::len(py::getattr(value, "shape", py::make_tuple(0))) == 0;
    const py::object item = is_scalar ? py::object(value.attr("item")()) : py::object(value);
    // A longdouble's item is a longdouble.
    if (!py::type::handle_of(item).is(py::type::handle_of(value))) return item;
    refused = value;
    throw py::type_error("json: a value has no form, expected one that has");
  });
  py::str text;
  try {
    text = py::module_::import("json").attr("dumps")(
        given, "default"_a = plain, "ensure_ascii"_a = false, "allow_nan"_a = false);
  } catch (py::error_already_set& error) {
    refuse_json(name, given, refused, error);
  }
  Py_ssize_t size = 0;
  if (const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size)) {
    return {bytes, static_cast<size_t>(size)};
  }
  PyErr_Clear();
  throw py::value_error(concat("apply_chat_template: ", name,
                               " has a text with a lone surrogate, expected Unicode text"));
}

static std::string json_of(const py::dict& variables) {
  std::string made;
  for (const auto& [key, value] : variables) {
    const auto name = py::cast<std::string>(key);
    made += concat(made.empty() ? "{" : ",", json_of("a keyword", py::str(key)), ':',
                   json_of(name, py::reinterpret_borrow<py::object>(value)));
  }
  return made + '}';
}

static void refuse_batch(const py::object& conversation) {
  const auto is_list = [](const py::handle& value) {
    return py::isinstance<py::list>(value) || py::isinstance<py::tuple>(value);
  };
  if (!is_list(conversation) || py::len(conversation) == 0) return;
  if (!is_list(conversation[py::int_(0)])) return;
  throw py::type_error(concat("apply_chat_template: conversation is a list of ",
                              py::len(conversation),
                              " conversations, expected a list of dicts; call it for each"));
}

/// `apply_chat_template` of transformers; what it has beyond that goes to the template.
static py::object applied(const Tokenizer& self, const py::object& conversation,
                          const py::object& tools, const py::object& documents,
                          const std::optional<std::string>& chat_template,
                          bool add_generation_prompt, bool tokenize, const py::kwargs& more) {
  for (const char* name : {"continue_final_message", "padding", "truncation", "max_length",
                           "return_tensors", "return_dict", "return_assistant_tokens_mask",
                           "tokenizer_kwargs", "sanitize_control_tokens"}) {
    const bool is_set = more.contains(name) && py::cast<bool>(py::bool_(more[name]));
    if (is_set) {
      throw py::value_error(concat("chat: the argument ", name,
                                   " is given, expected none or False; ",
                                   "weft returns ids or a text only"));
    }
  }
  refuse_batch(conversation);
  py::dict variables(more);
  variables["tools"] = tools;
  variables["documents"] = documents;
  variables["add_generation_prompt"] = add_generation_prompt;
  const Tokenizer chosen = chat_template ? self.with_chat_template(*chat_template) : self;
  const std::string text =
      chosen.apply_chat_template(json_of("conversation", conversation), json_of(variables));
  return tokenize ? py::cast(self.encode(text, false)) : py::cast(text);
}

/// True when it is a list of prompts, not one.
static bool is_batch(const py::object& prompt) {
  if (!py::isinstance<py::list>(prompt) || py::len(prompt) == 0) return false;
  // An id is a whole number, of Python or NumPy. Arrays have the protocol of sequences, too.
  const py::object first = prompt[py::int_(0)];
  return PyIndex_Check(first.ptr()) == 0 || PySequence_Check(first.ptr()) != 0;
}

/// The ids of a prompt, a str or a sequence of ids.
static std::vector<int64_t> ids_of_prompt(const std::optional<Tokenizer>& tokenizer,
                                          const py::handle& prompt, bool add_special) {
  if (!py::isinstance<py::str>(prompt)) return prompt.cast<std::vector<int64_t>>();
  if (!tokenizer) throw py::value_error("generate: the tokenizer is None, expected one for texts");
  return tokenizer->encode(prompt.cast<std::string>(), add_special);
}

/// A seed, or one for each prompt.
using Seeds = std::variant<uint64_t, std::vector<uint64_t>>;

static py::object generated(TransformerModel& model, const py::object& prompt,
                            const DeviceMesh& mesh, const std::optional<Tokenizer>& tokenizer,
                            const std::vector<std::string>& stops, const py::object& use,
                            bool add_special, const GenerateOptions& options) {
  if (!tokenizer && (!stops.empty() || !use.is_none())) {
    throw py::value_error("generate: the tokenizer is None, expected one for texts");
  }
  const bool is_several = is_batch(prompt);
  std::vector<std::vector<int64_t>> prompts;
  for (const py::handle one : is_several ? prompt : py::make_tuple(prompt)) {
    prompts.push_back(ids_of_prompt(tokenizer, one, add_special));
  }
  const auto pass_on = [&](size_t number, const std::string& part, bool) {
    if (part.empty()) return;
    const Locked locked;
    if (!use.is_none()) is_several ? use(number, part) : use(part);
  };
  const py::list results =
      tokenizer ? py::cast(released([&] {
        return generate_text(model, mesh, *tokenizer, prompts, options, stops, pass_on);
      }))
                : py::cast(released([&] { return generate(model, mesh, prompts, options); }));
  return is_several ? py::object(results) : results[0];
}

static void bind_generation(py::module_& m) {
  using G = GenerateOptions;
  using S = SamplingOptions;
  const auto temperature = option("temperature", &S::temperature);
  const auto top_k = option("top_k", &S::top_k);
  const auto top_p = option("top_p", &S::top_p), min_p = option("min_p", &S::min_p);
  const auto penalty = option("repetition_penalty", &S::repetition_penalty);
  bind_with_fields<S, std::vector<double>, std::vector<int64_t>>(
      m, "next_probabilities", next_probabilities, "logits"_a, "seen"_a = std::vector<int64_t>(),
      py::kw_only(), temperature, top_k, top_p, min_p, penalty,
      "The probability of each token after the options are applied, in transformers' order: "
      "repetition penalty, temperature, top-k, top-p, min-p");
  const auto drawn = [](const auto& field) { return within(&G::sampling, field); };
  const auto seed = field<Seeds>("seed"_a = Seeds(uint64_t{0}), [](G& options, const Seeds& given) {
    if (const auto* one = std::get_if<uint64_t>(&given)) options.sampling.seed = *one;
    if (const auto* each = std::get_if<std::vector<uint64_t>>(&given)) options.seeds = *each;
  });
  bind_with_fields<G, TransformerModel&, py::object, DeviceMesh, std::optional<Tokenizer>,
                   std::vector<std::string>, py::object, bool>(
      m, "generate", generated, "model"_a, "prompt"_a, py::kw_only(), "mesh"_a,
      "tokenizer"_a = py::none(), "stops"_a = std::vector<std::string>(), "use"_a = py::none(),
      "add_special"_a = true, option("tokens", &G::tokens), drawn(temperature), drawn(top_k),
      drawn(top_p), drawn(min_p), drawn(penalty), seed, option("end_ids", &G::end_ids),
      option("batch", &G::batch),
      "Continues a prompt, a str with a tokenizer or a list of ids, or a list of prompts "
      "together, at most `batch` at once. Returns the text that a tokenizer makes of the tokens, "
      "or the ids; for a list of prompts a list. seed: a number, or a list of one for each "
      "prompt; prompt i draws with seed + i. use: a function that gets each part of the text as "
      "it is complete, for a list of prompts (number of the prompt, part). add_special: as in "
      "encode, False for a text of chat. Collective over the mesh");
}

void bind_tokenizer(py::module_& m) {
  py::class_<Tokenizer> tokenizer(
      m, "Tokenizer",
      "Turns text into token ids and back, as a model's tokenizer.json or tokenizer.model "
      "describes it; ids and texts equal those of the packages tokenizers and sentencepiece");
  tokenizer
      .def(py::init([](const py::args&, const py::kwargs&) -> std::unique_ptr<Tokenizer> {
             fail_type("tokenizer: a Tokenizer is not made by its class, expected ",
                       "Tokenizer.from_directory(path) or Tokenizer.from_file(path)");
           }),
           "TypeError: see from_directory and from_file")
      .def_static("from_directory", &Tokenizer::from_directory, Released(), "path"_a,
                  "Reads a model's directory: tokenizer.json or tokenizer.model, and the files "
                  "next to it. ValueError names the file and what is wrong")
      .def_static("from_file", &Tokenizer::from_file, Released(), "path"_a,
                  "Reads a tokenizer.json or a model of SentencePiece");
  def(tokenizer, "encode(text, *, add_special=True)",
      "The ids of a text (str or bytes; what is not UTF-8 is read as U+FFFD). add_special: with "
      "the tokens that the model expects around a text",
      Released(), [](const Tokenizer& self, const std::string& text, bool add_special) {
        return self.encode(text, add_special);
      });
  def(tokenizer, "decode(ids, *, skip_special=True)",
      "The text of tokens. skip_special: without special tokens", Released(),
      [](const Tokenizer& self, const std::vector<int64_t>& ids, bool skip_special) {
        return self.decode(ids, skip_special);
      });
  const auto chat = [](const Tokenizer& self, const std::vector<py::object>& messages,
                       const ChatOptions& options) {
    return self.chat(messages_in(messages), options);
  };
  bind_with_fields<ChatOptions, Tokenizer, std::vector<py::object>>(
      tokenizer, "chat", chat, "messages"_a, py::kw_only(),
      option("generation_prompt", &ChatOptions::generation_prompt),
      option("date", &ChatOptions::date), option("thinking", &ChatOptions::thinking),
      "A conversation as the text that the model was trained on. messages: dicts with role and "
      "content, or pairs. Encode it with add_special=False");
  tokenizer.def(
      "apply_chat_template", applied, "conversation"_a, "tools"_a = py::none(),
      "documents"_a = py::none(), "chat_template"_a = py::none(), "add_generation_prompt"_a = false,
      "tokenize"_a = true,
      "Returns, as transformers, the ids of a conversation, a list of dicts of any fields, in "
      "the form of the chat template, or its text without `tokenize`. chat_template: a name "
      "or Jinja text. Further keywords are variables of the template");
  tokenizer.def("__len__", &Tokenizer::size)
      .def("token", &Tokenizer::token, "id"_a, "The token of an id as the file has it")
      .def("id", &Tokenizer::id, "token"_a, "The id of a token, or None")
      .def("is_special", &Tokenizer::is_special, "id"_a, "True when decode leaves the token out")
      .def_property_readonly("bos", &Tokenizer::bos, "The id of the token that begins a text")
      .def_property_readonly("eos", &Tokenizer::eos, "The id of the token that ends a text")
      .def_property_readonly("end_ids", &Tokenizer::end_ids, "The ids that end a generated text")
      .def_property_readonly(
          "chat_template", &Tokenizer::chat_template,
          "The name of the chat template, `default` for the model's; empty when there is none")
      .def("with_chat_template", &Tokenizer::with_chat_template, "name"_a,
           "The same tokenizer with another chat template: one of chat_templates(), one of the "
           "model's, "
           "or a Jinja text")
      .def_static("chat_templates", &Tokenizer::chat_templates, "The names of all chat templates");
  py::class_<TextStream>(m, "TextStream", "Makes text from a stream of tokens; no character is cut")
      .def(py::init<const Tokenizer&, bool>(), "tokenizer"_a, py::kw_only(),
           "skip_special"_a = true)
      .def("push", &TextStream::push, "id"_a, "The text that the token completes")
      .def("finish", &TextStream::finish, "The text of an incomplete character at the end");
  bind_generation(m);
}

}  // namespace weft::python
