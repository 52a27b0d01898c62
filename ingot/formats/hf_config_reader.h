// The reader of a config.json's values, for the .cpp files that know its keys.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ingot/core/error.h"
#include "ingot/formats/hf_config.h"

namespace ingot {

// Reads a JSON object's values by key and type. Errors name the key, the expected and the found value.
class HfConfigReader {
 public:
  static constexpr int64_t kMaxSize = std::numeric_limits<int32_t>::max();

  HfConfigReader(const nlohmann::json& object, std::string label)
      : object_(object), label_(std::move(label)) {}

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorKind::kData, "{}: {}", label_, fmt::format(format, std::forward<Args>(args)...));
  }

  // Returns the value of the first key that exists and is not null, or nullptr if there is none.
  const nlohmann::json* find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (const auto it = object_.find(key); it != object_.end() && !it->is_null()) return &*it;
    return nullptr;
  }

  // A whole number in [least, 2^31). If the key is missing, returns `absent`, or fails if that is nullopt.
  int64_t whole(const char* key, std::optional<int64_t> absent = {}, int64_t least = 1) const {
    const nlohmann::json* value = find({key});
    if (!value) {
      if (absent) return *absent;
      refuse("key {:?} is missing; give the config.nlohmann::json of a complete checkpoint", key);
    }
    if (!value->is_number_integer() || *value < least || *value > kMaxSize)
      refuse("{} must be a whole number from {} to {}, got {}", key, least, kMaxSize, shown(*value));
    return value->get<int64_t>();
  }

  bool is_null(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }

  // A number in [0, 1e18).
  double number(const char* key, double absent) const {
    const nlohmann::json* value = find({key});
    if (!value) return absent;
    if (!value->is_number() || !(value->get<double>() >= 0 && value->get<double>() < 1e18))
      refuse("{} must be a number that is not negative, got {}", key, shown(*value));
    return value->get<double>();
  }

  bool boolean(const char* key, bool absent) const {
    const nlohmann::json* value = find({key});
    if (!value) return absent;
    if (!value->is_boolean()) refuse("{} must be true or false, got {}", key, shown(*value));
    return value->get<bool>();
  }

  std::string text(std::initializer_list<const char*> keys, const std::string& absent) const {
    const nlohmann::json* value = find(keys);
    if (!value) return absent;
    if (!value->is_string()) refuse("{} must be a string, got {}", *keys.begin(), shown(*value));
    return value->get<std::string>();
  }

  // Token ids: a number, or a list of them. Returns an empty list if the key is missing.
  std::vector<int64_t> tokens(const char* key) const {
    const nlohmann::json* value = find({key});
    std::vector<int64_t> ids;
    if (!value) return ids;
    for (const nlohmann::json& id : value->is_array() ? *value : nlohmann::json::array({*value})) {
      if (!id.is_number_integer() || id < 0 || id > kMaxSize)
        refuse("{} must be a token id from 0 to {}, or a list of them, got {}", key, kMaxSize, shown(*value));
      ids.push_back(id.get<int64_t>());
    }
    return ids;
  }

  // An object. Returns an empty one if the key is missing.
  nlohmann::json object(const char* key) const {
    const nlohmann::json* value = find({key});
    if (!value) return nlohmann::json::object();
    if (!value->is_object()) refuse("{} must be an object, got {}", key, shown(*value));
    return *value;
  }

  const std::string& label() const { return label_; }

  static std::string shown(const nlohmann::json& value) {
    return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 80);
  }

 private:
  const nlohmann::json& object_;
  std::string label_;
};

// Reads the rotary positions of a model into rope and rope_theta. REQUIRES: model_type and context have been read.
void read_hf_rope(const HfConfigReader& in, HfModelConfig& config);

}  // namespace ingot
