#include "ingot/formats/safetensors_set.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "ingot/core/error.h"
#include "ingot/core/visible_text.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr size_t kMaxIndexFiles = 1'000;
constexpr int kMaxIndexDepth = 32;
constexpr size_t kMaxNameBytes = 255;

// Cuts and escapes a name from a file.
std::string shown_name(std::string_view name) { return visible_line(name.substr(0, 200)); }

json parse_index_json(std::string_view text, const std::string& label) {
  if (text.size() > kMaxIndexBytes)
    fail(ErrorKind::kData, "{}: {} bytes are too many for an index of weights; give another file", label,
         text.size());
  std::vector<std::set<std::string>> keys(kMaxIndexDepth + 2);  // of the open object of each depth
  std::string twice;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxIndexDepth)
      fail(ErrorKind::kData, "{}: is nested deeper than {} levels; give an index of weights", label,
           kMaxIndexDepth);
    const auto level = static_cast<size_t>(depth);
    if (event == json::parse_event_t::object_start) keys[level + 1].clear();
    if (event == json::parse_event_t::key && twice.empty() &&
        !keys[level].insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  json root;
  try {
    root = json::parse(text, watch);
  } catch (const json::parse_error& error) {
    fail(ErrorKind::kData, "{}: is not JSON at its byte {}; give an index of weights", label, error.byte);
  } catch (const json::exception&) {
    fail(ErrorKind::kData, "{}: holds a number that no double can hold; give an index of weights", label);
  }
  if (!twice.empty()) fail(ErrorKind::kData, "{}: {:?} is named twice; delete one", label, shown_name(twice));
  return root;
}

bool is_name_in_folder(const std::string& name) {
  const auto is_bad = [](char c) { return c == '/' || c == '\\' || static_cast<unsigned char>(c) < 0x20; };
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." && name != ".." &&
         std::none_of(name.begin(), name.end(), is_bad) && name.ends_with(".safetensors");
}

// Throws unless the file that an index names lies in the folder. A link may lead to a file of the same
// folder, or from a snapshot of Hugging Face's cache (snapshots/REVISION/NAME) to the blobs of the same model
// (blobs/HASH).
void require_inside(const fs::path& folder, const std::string& name, const std::string& label) {
  const fs::path path = folder / name;
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail(ErrorKind::kData, "{}: names {}, which is no file in its folder; copy the missing file", label,
         shown_name(name));
  const fs::path place = fs::canonical(path, error).parent_path(), own = fs::canonical(folder, error);
  if (place == own) return;
  const bool is_snapshot = own.parent_path().filename() == "snapshots";
  if (is_snapshot && place == own.parent_path().parent_path() / "blobs") return;
  fail(ErrorKind::kData, "{}: {} links to {}, outside its folder; copy the file into the folder", label,
       shown_name(name), place.string());
}

}  // namespace

std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& label) {
  const json root = parse_index_json(text, label);
  const auto found = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || found == root.end() || !found->is_object() || found->empty())
    fail(ErrorKind::kData, "{}: has no \"weight_map\" of tensors to files; give an index of weights", label);
  if (found->size() > SafetensorsFile::kMaxTensors)
    fail(ErrorKind::kData, "{}: names {} tensors, at most {} are read", label, found->size(),
         SafetensorsFile::kMaxTensors);
  std::map<std::string, std::string> files;
  std::set<std::string> names;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_name_in_folder(file.get<std::string>()))
      fail(ErrorKind::kData,
           "{}: the file of tensor {} must be a name like model-00001-of-00002.safetensors in the same "
           "folder, got {}",
           label, shown_name(tensor), shown_name(file.dump(-1, ' ', true, json::error_handler_t::replace)));
    files[tensor] = file.get<std::string>();
    names.insert(files[tensor]);
  }
  if (names.size() > kMaxIndexFiles)
    fail(ErrorKind::kData, "{}: names {} files, at most {} are read", label, names.size(), kMaxIndexFiles);
  return files;
}

std::string safetensors_index_text(const std::map<std::string, std::string>& files, uint64_t total_bytes) {
  const json index = {{"metadata", {{"total_size", total_bytes}}}, {"weight_map", files}};
  return index.dump(2) + "\n";
}

SafetensorsSet::SafetensorsSet(const SafetensorsFile& file) : label_(file.label()), files_{&file} {}

void SafetensorsSet::add(const fs::path& path) { files_.push_back(&owned_.emplace_back(path)); }

SafetensorsSet SafetensorsSet::open(const fs::path& folder) {
  const fs::path single = folder / kSafetensorsName, index = folder / kSafetensorsIndexName;
  if (path_exists(single) || !path_exists(index)) {
    if (!path_exists(single))
      fail(ErrorKind::kData, "{}: there is neither {} nor {} in it; save the model as safetensors",
           folder.string(), kSafetensorsName, kSafetensorsIndexName);
    SafetensorsSet set(single.string());
    set.add(single);
    return set;
  }
  SafetensorsSet set(index.string());
  std::error_code error;
  if (fs::file_size(index, error) > kMaxIndexBytes)
    fail(ErrorKind::kData, "{}: is too large for an index of weights; give another file", index.string());
  const std::map<std::string, std::string> files = parse_safetensors_index(read_file(index), index.string());
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [tensor, name] : files) {
    if (opened.contains(name)) continue;
    require_inside(folder, name, set.label_);
    opened[name] = nullptr;
  }
  for (auto& [name, file] : opened) {
    set.add(folder / name);
    file = set.files_.back();
  }
  for (const auto& [tensor, name] : files) {
    const SafetensorsEntry* entry = opened[name]->find(tensor);
    if (!entry)
      fail(ErrorKind::kData, "{}: names tensor {} in {}, which does not have it; give the files of one model",
           set.label_, shown_name(tensor), name);
    set.indexed_.emplace(tensor, entry);
  }
  return set;
}

size_t SafetensorsSet::tensors() const {
  if (!indexed_.empty()) return indexed_.size();
  size_t count = 0;
  for (const SafetensorsFile* file : files_) count += file->tensors().size();
  return count;
}

const SafetensorsEntry* SafetensorsSet::find(std::string_view name) const {
  if (!indexed_.empty()) {
    const auto found = indexed_.find(name);
    return found == indexed_.end() ? nullptr : found->second;
  }
  for (const SafetensorsFile* file : files_)
    if (const SafetensorsEntry* found = file->find(name)) return found;
  return nullptr;
}

const SafetensorsEntry& SafetensorsSet::get(std::string_view name) const {
  if (files_.size() == 1 && indexed_.empty()) return files_.front()->get(name);
  if (const SafetensorsEntry* found = find(name)) return *found;
  fail(ErrorKind::kData, "{}: has no tensor {}", label_, name);
}

const std::string& SafetensorsSet::label_of(const SafetensorsEntry& entry) const {
  for (const SafetensorsFile* file : files_) {
    const std::vector<SafetensorsEntry>& own = file->tensors();
    if (!own.empty() && &entry >= own.data() && &entry < own.data() + own.size()) return file->label();
  }
  return label_;
}

}  // namespace ingot
