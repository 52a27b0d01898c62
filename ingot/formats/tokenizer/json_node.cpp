#include "ingot/formats/tokenizer/json_node.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/formats/tokenizer_spec.h"

namespace ingot {

using nlohmann::json;

namespace {

constexpr int kMaxJsonDepth = 64;

size_t line_of_byte(std::string_view text, size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return static_cast<size_t>(std::count(text.begin(), end, '\n')) + 1;
}

const json& json_at(const void* value) { return *static_cast<const json*>(value); }

}  // namespace

bool JsonNode::is_set() const { return value_ && !json_at(value_).is_null(); }
bool JsonNode::is_object() const { return value_ && json_at(value_).is_object(); }
bool JsonNode::is_list() const { return value_ && json_at(value_).is_array(); }

JsonNode JsonNode::operator[](const char* key) const {
  const bool has_key = is_object() && json_at(value_).contains(key);
  return {has_key ? &json_at(value_).at(key) : nullptr, path_ + (path_.ends_with(": ") ? "" : ".") + key};
}

JsonNode JsonNode::item(size_t i) const { return {&json_at(value_).at(i), fmt::format("{}[{}]", path_, i)}; }

void JsonNode::for_each(const std::function<void(const std::string&, const JsonNode&)>& visit) const {
  for (const auto& [key, value] : json_at(value_).items())
    visit(key, {&value, fmt::format("{}['{}']", path_, printable_token(key))});
}

size_t JsonNode::members() const { return is_object() || is_list() ? json_at(value_).size() : 0; }

void JsonNode::refuse(std::string_view wanted) const {
  const std::string shown =
      value_ ? printable_token(json_at(value_).dump(-1, ' ', true, json::error_handler_t::replace))
             : "nothing";
  fail(ErrorKind::kData, "{}: expected {}, got {}", path_, wanted, shown);
}

size_t JsonNode::size() const {
  if (!is_list()) refuse("a list");
  return json_at(value_).size();
}

const std::string& JsonNode::text() const {
  if (!value_ || !json_at(value_).is_string()) refuse("a string");
  return json_at(value_).get_ref<const std::string&>();
}

bool JsonNode::flag(bool fallback) const {
  if (!is_set()) return fallback;
  if (!json_at(value_).is_boolean()) refuse("true or false");
  return json_at(value_).get<bool>();
}

uint32_t JsonNode::id(uint64_t limit) const {
  if (!value_ || !json_at(value_).is_number_unsigned() || json_at(value_).get<uint64_t>() >= limit)
    refuse(fmt::format("a token id below {}", limit));
  return json_at(value_).get<uint32_t>();
}

bool JsonNode::is_text(std::string_view wanted) const {
  return value_ && json_at(value_).is_string() && text() == wanted;
}

std::string JsonNode::dump() const { return json_at(value_).dump(); }

struct JsonDocument::Content {
  json value;
  std::string name;
};

JsonDocument::JsonDocument(std::string_view text, const std::string& name)
    : content_(std::make_unique<Content>()) {
  content_->name = name;
  if (text.size() > kMaxTokenizerFileBytes)
    fail(ErrorKind::kData, "{}: {} bytes is too large for a tokenizer (at most {})", name, text.size(),
         kMaxTokenizerFileBytes);
  std::vector<std::unordered_set<std::string>> keys;  // keys seen in the open objects
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxJsonDepth)
      fail(ErrorKind::kData, "{}: nested deeper than {} levels", name, kMaxJsonDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second)
        fail(ErrorKind::kData, "{}: '{}' occurs twice in one object", name, printable_token(key));
    }
    return true;
  };
  try {
    content_->value = json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& error) {
    const auto* parse = dynamic_cast<const json::parse_error*>(&error);
    fail(ErrorKind::kData, "{}:{}: not valid JSON: {}", name, parse ? line_of_byte(text, parse->byte) : 1,
         error.what());
  }
  if (!content_->value.is_object()) fail(ErrorKind::kData, "{}:1: expected a JSON object", name);
}

JsonDocument::~JsonDocument() = default;

JsonNode JsonDocument::root() const { return {&content_->value, content_->name + ": "}; }

}  // namespace ingot
