#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "ingot/formats/byte_chars.h"
#include "ingot/formats/tokenizer_json.h"

namespace ingot {
namespace {

// Quotes UTF-8 text as a JSON string.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out.push_back(c);
    }
  }
  return out + '"';
}

std::string spelling(const TokenizerSpec& spec, uint32_t id) {
  const std::string& token = spec.tokens[id];
  const bool is_bytes = spec.kind == TokenizerSpec::Kind::kByteBpe || spec.pipeline.is_byte_level;
  return is_bytes ? bytes_to_chars(token) : token;
}

// All tokens as {"spelling":id,...} in order of id. Added tokens are included, so that a reader finds
// their ids there even if ids are skipped.
std::string vocab_object(const TokenizerSpec& spec) {
  std::vector<std::pair<uint32_t, std::string>> entries;
  for (uint32_t id = 0; id < spec.tokens.size(); ++id)
    if (!spec.tokens[id].empty()) entries.emplace_back(id, spelling(spec, id));
  for (const AddedToken& token : spec.added)
    if (token.id >= spec.tokens.size() || spec.tokens[token.id].empty())
      entries.emplace_back(token.id, token.content);
  std::sort(entries.begin(), entries.end());
  std::string out = "{";
  for (const auto& [id, text] : entries)
    out += fmt::format("{}{}:{}", out.size() > 1 ? "," : "", json_string(text), id);
  return out + "}";
}

constexpr const char* bool_name(bool value) { return value ? "true" : "false"; }

std::string byte_level(bool use_regex) {
  return fmt::format(R"({{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":{}}})",
                     bool_name(use_regex));
}

std::string pre_tokenizer(const TokenizerSpec& spec, bool is_gpt2_pattern) {
  if (spec.kind == TokenizerSpec::Kind::kCharacters) return "null";
  if (is_gpt2_pattern || spec.pattern.empty()) return byte_level(is_gpt2_pattern);
  return fmt::format(R"({{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":{}}},)"
                     R"("behavior":"Isolated","invert":false}},{}]}})",
                     json_string(spec.pattern), byte_level(false));
}

// The members of an added token, as tokenizer.json and tokenizer_config.json have them.
std::string added_members(const AddedToken& token) {
  return fmt::format(
      R"("content":{},"single_word":{},"lstrip":{},"rstrip":{},"normalized":{},"special":{}}})",
      json_string(token.content), bool_name(token.is_single_word), bool_name(token.strips_left),
      bool_name(token.strips_right), bool_name(token.is_normalized), bool_name(token.is_special));
}

std::string added_token(const AddedToken& token) {
  return fmt::format(R"({{"id":{},)", token.id) + added_members(token);
}

}  // namespace

std::string write_tokenizer_json(const TokenizerSpec& spec, bool is_gpt2_pattern) {
  if (spec.kind == TokenizerSpec::Kind::kPipeline) return spec.pipeline.json;
  const bool is_bytes = spec.kind == TokenizerSpec::Kind::kByteBpe;
  std::string out = R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)";
  for (size_t i = 0; i < spec.added.size(); ++i)
    out += fmt::format("{}{}", i ? "," : "", added_token(spec.added[i]));
  out += R"(],"normalizer":null,"pre_tokenizer":)" + pre_tokenizer(spec, is_gpt2_pattern);
  out += R"(,"post_processor":null,"decoder":)" + (is_bytes ? byte_level(true) : R"({"type":"Fuse"})");
  out += R"(,"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
         R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":)";
  out += bool_name(spec.takes_whole_pieces);
  out += R"(,"vocab":)" + vocab_object(spec) + R"(,"merges":[)";
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const TokenizerMerge& merge = spec.merges[i];
    const std::string pair = spelling(spec, merge.left) + ' ' + spelling(spec, merge.right);
    out += fmt::format("{}{}", i ? "," : "", json_string(pair));
  }
  return out + "]}}\n";
}

std::string write_vocab_json(const TokenizerSpec& spec) { return vocab_object(spec) + "\n"; }

std::string write_merges_txt(const TokenizerSpec& spec) {
  std::string out = "#version: 0.2\n";
  for (const TokenizerMerge& merge : spec.merges)
    out += spelling(spec, merge.left) + ' ' + spelling(spec, merge.right) + '\n';
  return out;
}

namespace {

// The members of the tokens that are not empty, each with a comma after it.
std::string token_members(const std::map<std::string, std::string>& tokens) {
  std::string out;
  for (const auto& [name, token] : tokens)
    if (!token.empty()) out += fmt::format("{}:{},", json_string(name), json_string(token));
  return out;
}

}  // namespace

std::string write_tokenizer_config_json(const TokenizerSpec& spec,
                                        const std::map<std::string, std::string>& tokens,
                                        const std::string& chat_template) {
  std::string added;
  for (const AddedToken& token : spec.added)
    added += fmt::format(R"({}"{}":{{)", added.empty() ? "" : ",", token.id) + added_members(token);
  return fmt::format(R"({{"tokenizer_class":"PreTrainedTokenizerFast","added_tokens_decoder":{{{}}},{})"
                     R"("clean_up_tokenization_spaces":false,"add_prefix_space":false{}}})"
                     "\n",
                     added, token_members(tokens),
                     chat_template.empty() ? "" : ",\"chat_template\":" + chat_template);
}

std::string write_special_tokens_map_json(const std::map<std::string, std::string>& tokens) {
  std::string members = token_members(tokens);
  if (!members.empty()) members.pop_back();
  return "{" + members + "}\n";
}

}  // namespace ingot
