// The weights of a Hugging Face folder: model.safetensors, or several files that model.safetensors.index.json
// names, as one set of tensors.
#pragma once

#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ingot/formats/safetensors.h"

namespace ingot {

inline constexpr const char* kSafetensorsName = "model.safetensors";
inline constexpr const char* kSafetensorsIndexName = "model.safetensors.index.json";

// Returns the file of every tensor ("weight_map" of an index). `label` stands for the path in errors. kData
// error that names the tensor and the file if the text is not such an object, a tensor is named twice, or a
// file's name is not that of a file in the index's own folder, such as "../x.safetensors".
std::map<std::string, std::string> parse_safetensors_index(std::string_view text, const std::string& label);

// The inverse, with the total size of the tensors.
std::string safetensors_index_text(const std::map<std::string, std::string>& files, uint64_t total_bytes);

// Movable; entries stay where they are.
class SafetensorsSet {
 public:
  // Maps the files of a folder; if there are both, model.safetensors is taken and not the index. kData error
  // that names the file and the tensor if there is neither, the index names a file that is missing, links to
  // a place outside the folder (the cache of Hugging Face, whose snapshots link to its blobs, is allowed) or
  // lacks the tensor. A tensor comes from the file that the index names, whatever other files hold; one that
  // it does not name is not there.
  static SafetensorsSet open(const std::filesystem::path& folder);
  // The tensors of one file, which the caller owns and must keep.
  SafetensorsSet(const SafetensorsFile& file);  // NOLINT(google-explicit-constructor): one file is a set

  // The file that holds the tensors, or the index.
  const std::string& label() const { return label_; }
  const std::vector<const SafetensorsFile*>& files() const { return files_; }
  size_t tensors() const;

  // Returns nullptr if no file has such a tensor.
  const SafetensorsEntry* find(std::string_view name) const;
  // kData error that names the set and the tensor if no file has it.
  const SafetensorsEntry& get(std::string_view name) const;
  // The path of the file that holds an entry of this set.
  const std::string& label_of(const SafetensorsEntry& entry) const;

 private:
  explicit SafetensorsSet(std::string label) : label_(std::move(label)) {}
  void add(const std::filesystem::path& path);

  std::string label_;
  std::deque<SafetensorsFile> owned_;
  std::vector<const SafetensorsFile*> files_;  // in the order of their names
  std::map<std::string, const SafetensorsEntry*, std::less<>>
      indexed_;  // the tensors of an index; else empty
};

}  // namespace ingot
