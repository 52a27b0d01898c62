// A JSON document whose values know their path, so that errors name the place. Wraps nlohmann::json, whose
// header only the .cpp includes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ingot {

// A value of a document, or the absence of one. Valid as long as its document.
class JsonNode {
 public:
  JsonNode(const void* value, std::string path) : value_(value), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  bool exists() const { return value_ != nullptr; }
  bool is_set() const;  // exists and is not null
  bool is_object() const;
  bool is_list() const;

  // A member; absent if this is not an object or has no such member.
  JsonNode operator[](const char* key) const;
  JsonNode item(size_t i) const;  // REQUIRES: i < size()
  // Calls visit(key, value) for each member. REQUIRES: is_object().
  void for_each(const std::function<void(const std::string&, const JsonNode&)>& visit) const;
  size_t members() const;  // number of members or items; 0 for other values

  // kData error: "PATH: expected WANTED, got VALUE".
  [[noreturn]] void refuse(std::string_view wanted) const;

  // Each of these throws a kData error if the value has another type.
  size_t size() const;  // items of a list
  const std::string& text() const;
  bool flag(bool fallback) const;  // the fallback if the value is absent or null
  uint32_t id(uint64_t limit) const;
  bool is_text(std::string_view wanted) const;  // never throws
  std::string dump() const;                     // the value as JSON; REQUIRES: exists()

 private:
  const void* value_;  // const nlohmann::json*, borrowed; null if absent
  std::string path_;
};

class JsonDocument {
 public:
  // kData error "NAME:LINE: ..." if the text is no JSON object, is nested too deep, is larger than a
  // tokenizer may be, or has a key twice in one object.
  JsonDocument(std::string_view text, const std::string& name);
  ~JsonDocument();
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;

  JsonNode root() const;

 private:
  struct Content;
  std::unique_ptr<Content> content_;
};

}  // namespace ingot
