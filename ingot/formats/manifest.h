// MANIFEST.json: what a checkpoint folder holds, so that any damage is found before a byte of it is used.
// It lists every file with its size and XXH3-64 and ends with a line that holds the hash of all lines before
// it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ingot {

inline constexpr std::string_view kManifestName = "MANIFEST.json";

struct ManifestFile {
  std::string name;  // a plain name: the folder is flat
  uint64_t size_bytes = 0;
  uint64_t xxh3_64 = 0;

  bool operator==(const ManifestFile&) const = default;
};

using ManifestValue = std::variant<int64_t, double, std::string>;
using ManifestMetadata = std::map<std::string, ManifestValue>;

struct Manifest {
  ManifestMetadata metadata;        // step, tokens, configuration hash ...
  std::vector<ManifestFile> files;  // by name, without MANIFEST.json itself
};

// What is wrong with one file of a folder.
struct ManifestProblem {
  std::string file;  // its name in the folder
  std::string what;  // "is missing", "has 12 bytes, the manifest says 40" ...
};

// A file's text: canonical, one line per file. kInternal error for a name that is no plain file name, a name
// given twice or a number that is not finite.
std::string manifest_text(const Manifest& manifest);

// The inverse. `label` stands for the path in errors. kData error unless the text is exactly what
// manifest_text makes: a changed byte, an unsafe name ('/', "..", absolute, control characters), a name given
// twice, an unknown key.
Manifest parse_manifest(std::string_view text, const std::string& label);

// Hashes every file of the folder, writes MANIFEST.json and flushes it; returns it. A hash in `known_hashes`
// (file name -> XXH3-64, as the writer computed it from memory) is taken instead of reading that file back.
// kDisk error if writing fails; kData error naming a folder, link, FIFO or device among the files.
Manifest write_manifest(const std::filesystem::path& folder, const ManifestMetadata& metadata,
                        const std::map<std::string, uint64_t>& known_hashes = {});

// Compares the folder with its manifest, reading every byte once. Empty: all is well. Names what is damaged,
// missing, not listed, or not a regular file. Never follows a link, never waits on a FIFO.
std::vector<ManifestProblem> verify_manifest(const std::filesystem::path& folder);

// The manifest of a folder. kData error if it is missing or damaged; the other files are not looked at.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace ingot
