// SPDX-License-Identifier: Apache-2.0
#include <sentencepiece_processor.h>

#include <memory>

#include "data/tokenizer/text_model.h"
#include "weft/error.h"
#include "weft/extend/file.h"

namespace weft::text {

using Processor = sentencepiece::SentencePieceProcessor;

static constexpr int64_t kLargestModel = int64_t{64} << 20;

/// A text between added tokens, encoded by SentencePiece.
class SentencePieceModel final : public WordModel {
 public:
  explicit SentencePieceModel(std::shared_ptr<const Processor> processor)
      : processor_(std::move(processor)) {}

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> found;
    const auto status = processor_->Encode({text.data(), text.size()}, &found);
    if (!status.ok()) fail_call("SentencePieceProcessor::Encode", status.ToString());
    ids.insert(ids.end(), found.begin(), found.end());
  }

 private:
  std::shared_ptr<const Processor> processor_;
};

/// The text of a piece: its spaces are written as U+2581.
static std::string text_of_piece(std::string piece) {
  static const std::string space = "\xE2\x96\x81";
  for (size_t at = 0; (at = piece.find(space, at)) != piece.npos; ++at) {
    piece.replace(at, space.size(), " ");
  }
  return piece;
}

static void add_piece(const Processor& processor, int id, TextModel& model) {
  const auto index = static_cast<size_t>(id);
  const std::string& piece = processor.IdToPiece(id);
  if (processor.IsByte(id)) {
    model.texts.is_byte[index] = true;
    const auto byte = static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16));
    model.texts.following[index] = std::string(1, byte);
  } else if (processor.IsControl(id)) {
    model.special[index] = true;
    model.texts.following[index] = piece;
    model.added.add({.id = id, .content = piece, .special = true});
  } else if (processor.IsUnknown(id)) {
    model.special[index] = true;
    model.texts.following[index] = " \xE2\x81\x87 ";  // U+2047, as SentencePiece writes it
  } else {
    model.texts.following[index] = text_of_piece(piece);
  }
}

TextModel read_sentencepiece(const std::string& what, const std::string& path,
                             const std::vector<AddedToken>& added) {
  const File file(what, path);
  if (file.size() == 0 || file.size() > kLargestModel) {
    fail(what, ": ", path, " has ", file.size(), " bytes, expected 1 to ", kLargestModel);
  }
  std::string bytes(static_cast<size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  const auto processor = std::make_shared<Processor>();
  const auto status = processor->LoadFromSerializedProto(bytes);
  if (!status.ok()) fail(what, ": ", path, " is not a model of SentencePiece: ", status.message());
  TextModel model;
  model.caches = false;
  for (int id = 0; id < processor->GetPieceSize(); ++id) {
    set_token(what, model, processor->IdToPiece(id), id);
  }
  for (const AddedToken& token : added) {
    set_token(what, model, token.content, token.id);
    model.special[static_cast<size_t>(token.id)] = token.special;
    model.added.add(token);
  }
  model.texts.following = model.tokens;
  model.texts.is_byte.resize(model.tokens.size());
  model.texts.broken = PieceTexts::Broken::byte;
  model.texts.spaces_removed = 1;
  for (int id = 0; id < processor->GetPieceSize(); ++id) add_piece(*processor, id, model);
  model.words = std::make_unique<SentencePieceModel>(processor);
  return model;
}

}  // namespace weft::text
