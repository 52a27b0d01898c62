#include "ingot/data/tokenizer/chat_template.h"

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/tokenizer/json_node.h"

namespace ingot {
namespace {

constexpr uint64_t kMaxTemplateBytes = uint64_t{16} << 20;

std::string read_side_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (file.size_bytes() > kMaxTemplateBytes)
    fail(ErrorKind::kData, "{}: {} bytes is too large for a file beside a tokenizer (at most {})",
         path.string(), file.size_bytes(), kMaxTemplateBytes);
  return std::string(file.text());
}

}  // namespace

ChatTemplate read_chat_template(const std::filesystem::path& folder) {
  ChatTemplate chat;
  const std::filesystem::path jinja = folder / kChatTemplateFile, config = folder / "tokenizer_config.json";
  if (path_exists(jinja)) chat.jinja = read_side_file(jinja);
  if (path_exists(config)) {
    const JsonDocument document(read_side_file(config), config.string());
    const JsonNode value = document.root()[kChatTemplateKey];
    if (value.is_set()) chat.json = value.dump();
  }
  return chat;
}

void write_chat_template(const ChatTemplate& chat, const std::filesystem::path& folder) {
  if (!chat.jinja.empty()) write_file(folder / kChatTemplateFile, chat.jinja);
  if (!chat.json.empty())
    write_file(folder / "tokenizer_config.json", fmt::format("{{\"{}\":{}}}\n", kChatTemplateKey, chat.json));
}

}  // namespace ingot
