// MANIFEST.json lists the content of a checkpoint folder, so that damage is found before any of it is
// used. It holds every file's size and XXH3-64, and its last line is the hash of all lines before it.
//
// The member "format": "ingot checkpoint N" and the last line are the same in every format, so that an older
// program knows a checkpoint of a newer one. N grows if this program could not continue from what the newer
// one writes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ingot {

inline constexpr std::string_view kManifestName = "MANIFEST.json";

struct ManifestFile {
  std::string name;  // a file name without a path; the folder has no sub-folders
  uint64_t size_bytes = 0;
  uint64_t xxh3_64 = 0;

  bool operator==(const ManifestFile&) const = default;
};

using ManifestValue = std::variant<int64_t, double, std::string>;
using ManifestMetadata = std::map<std::string, ManifestValue>;

struct Manifest {
  ManifestMetadata metadata;        // step, tokens, configuration hash ...
  std::vector<ManifestFile> files;  // sorted by name, without MANIFEST.json itself
};

// A fault of one file of a folder.
struct ManifestProblem {
  std::string file;  // its name in the folder
  std::string what;  // "is missing", "has 12 bytes, the manifest says 40" ...
};

// Returns the text of MANIFEST.json in a canonical form, one line per file. kInternal error for an unsafe
// file name, a name given twice or out of order, or a number that is not finite.
std::string manifest_text(const Manifest& manifest);

// The inverse. `label` stands for the path in errors. kData error unless the text is exactly what
// manifest_text returns: it rejects a changed byte, a newer format, an unsafe name ('/', "..", absolute,
// control characters), a name given twice, and an unknown key.
Manifest parse_manifest(std::string_view text, const std::string& label);

// Returns the number of the format of a folder's manifest if a newer program than this one made it; nullopt
// otherwise, also if the manifest is missing or damaged.
std::optional<int64_t> newer_format(const std::filesystem::path& folder);

// Hashes every file of the folder, writes and flushes MANIFEST.json, and returns it. Files in
// `known_hashes` (file name -> XXH3-64, which the writer computed from memory) are not read back. kDisk
// error if writing fails; kData error that names a folder, link, FIFO or device among the files.
Manifest write_manifest(const std::filesystem::path& folder, const ManifestMetadata& metadata,
                        const std::map<std::string, uint64_t>& known_hashes = {});

// Compares the folder with its manifest and reads every byte once. Returns the files that are damaged,
// missing, not listed or not regular files; empty if all is well. Never follows a link or blocks on a FIFO.
std::vector<ManifestProblem> verify_manifest(const std::filesystem::path& folder);

// As verify_manifest for a caller that reads only the files named in `read`: the bytes of the others are not
// compared, only their presence, kind and size.
std::vector<ManifestProblem> verify_manifest_of(const std::filesystem::path& folder,
                                                std::span<const std::string_view> read);

// Reads the manifest of a folder. kData error if it is missing or damaged. Does not check the other files.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace ingot
