#include "ingot/formats/manifest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/xxh3.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr std::string_view kFormatName = "ingot checkpoint ";
constexpr int64_t kFormatNumber = 1;
constexpr size_t kMaxManifestBytes = size_t{16} << 20;

std::string hex(uint64_t hash) { return fmt::format("{:016x}", hash); }

std::optional<uint64_t> parse_hex(const std::string& text) {
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != text.npos) return std::nullopt;
  return std::stoull(text, nullptr, 16);
}

// The last line of the file: the hash of everything before it.
std::string closing_line(std::string_view body) {
  return fmt::format("\"self_xxh3_64\": \"{}\"}}\n", hex(XXH3_64bits(body.data(), body.size())));
}

// Returns the reason why a name is not allowed in a manifest; empty if it is allowed.
std::string name_fault(std::string_view name) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (name.empty()) return "is empty";
  if (name == "." || name == "..") return "leads out of the folder";
  if (name.find('/') != name.npos) return "is a path, not a name";
  if (std::ranges::any_of(name, is_control)) return "holds a control character";
  if (name.size() > 255) return "is longer than 255 bytes";
  if (name == kManifestName) return "is the manifest itself";
  return "";
}

std::string compact(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

[[noreturn]] void refuse(const std::string& what) { throw Error(what, ErrorKind::kData); }

// Returns an object's member of type T. kData error if it is missing or of another type.
template <typename T>
T member(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end()) refuse(fmt::format("key {} is missing", key));
  const bool is_right = std::is_same_v<T, std::string> ? it->is_string() : it->is_number_unsigned();
  if (!is_right) refuse(fmt::format("key {} has the wrong type", key));
  return it->get<T>();
}

ManifestValue metadata_value(const std::string& key, const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return value.get<double>();
  if (value.is_number_integer() &&
      (!value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)))
    return value.get<int64_t>();
  refuse(fmt::format("metadata {:?} is neither a number nor a string", key));
}

// Returns the number of "ingot checkpoint 1", or nullopt for a text that names no format of checkpoints.
std::optional<int64_t> format_number(const json& root) {
  if (!root.is_object() || !root.contains("format") || !root["format"].is_string()) return std::nullopt;
  const std::string text = root["format"].get<std::string>();
  if (!text.starts_with(kFormatName)) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data() + kFormatName.size(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

Manifest from_json(const json& root) {
  if (!root.is_object() || !root.contains("metadata") || !root["metadata"].is_object() ||
      !root.contains("files") || !root["files"].is_array())
    refuse("is not an object with metadata and files");
  Manifest manifest;
  for (const auto& [key, value] : root["metadata"].items())
    manifest.metadata.emplace(key, metadata_value(key, value));
  for (const json& entry : root["files"]) {
    if (!entry.is_object()) refuse("a file is no object");
    ManifestFile file{member<std::string>(entry, "name"), member<uint64_t>(entry, "size_bytes"), 0};
    if (const std::string fault = name_fault(file.name); !fault.empty())
      refuse(fmt::format("file name {:?} {}", file.name.substr(0, 300), fault));
    const std::optional<uint64_t> hash = parse_hex(member<std::string>(entry, "xxh3_64"));
    if (!hash) refuse(fmt::format("file {:?}: xxh3_64 must be 16 hex digits", file.name));
    file.xxh3_64 = *hash;
    manifest.files.push_back(std::move(file));
  }
  const auto twice =
      std::ranges::adjacent_find(manifest.files, std::ranges::greater_equal(), &ManifestFile::name);
  if (twice != manifest.files.end())
    refuse(fmt::format("file {:?} is given twice or out of order", std::next(twice)->name));
  return manifest;
}

// Describes a path that is missing or not a regular file; empty if it is a regular file.
std::string type_fault(const fs::path& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return errno == ENOENT ? "is missing" : std::strerror(errno);
  if (S_ISREG(info.st_mode)) return "";
  return S_ISLNK(info.st_mode)    ? "is a link"
         : S_ISDIR(info.st_mode)  ? "is a folder"
         : S_ISFIFO(info.st_mode) ? "is a FIFO"
                                  : "is a device or socket";
}

// Hashes a file with read(), not a mapping, so that a disk error is an error and not a signal.
ManifestFile hash_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) fail(ErrorKind::kData, "{}: cannot be read: {}", path.string(), std::strerror(errno));
  Xxh3 hash;
  constexpr size_t kBufferBytes = size_t{1} << 20;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
  uint64_t size_bytes = 0;
  ssize_t n = 0;
  while ((n = ::read(fd, buffer.get(), kBufferBytes)) > 0 || (n < 0 && errno == EINTR)) {
    if (n < 0) continue;
    hash.add({buffer.get(), static_cast<size_t>(n)});
    size_bytes += static_cast<uint64_t>(n);
  }
  const int error = errno;
  ::close(fd);
  if (n < 0)
    fail(ErrorKind::kData, "{}: reading failed after {} bytes: {}", path.string(), size_bytes,
         std::strerror(error));
  return {path.filename().string(), size_bytes, hash.value()};
}

// Returns the sorted names in a folder, without the manifest's.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (std::string name = it->path().filename().string(); name != kManifestName)
      names.push_back(std::move(name));
  if (error) fail(ErrorKind::kData, "{}: the folder cannot be read: {}", folder.string(), error.message());
  std::ranges::sort(names);
  return names;
}

// Returns the fault of one listed file; empty if it has none. is_read: compares its bytes, too.
std::string file_fault(const fs::path& folder, const ManifestFile& wanted, bool is_read) {
  const fs::path path = folder / wanted.name;
  if (std::string fault = type_fault(path); !fault.empty()) return fault;
  try {
    const uint64_t size_bytes = fs::file_size(path);
    if (size_bytes != wanted.size_bytes)
      return fmt::format("has {} bytes, the manifest says {}", size_bytes, wanted.size_bytes);
    if (!is_read) return "";
    const ManifestFile found = hash_file(path);
    if (found.xxh3_64 != wanted.xxh3_64)
      return fmt::format("has hash {}, the manifest says {}: its bytes have changed", hex(found.xxh3_64),
                         hex(wanted.xxh3_64));
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  json metadata = json::object();
  for (const auto& [key, value] : manifest.metadata) {
    const double* number = std::get_if<double>(&value);
    INGOT_CHECK(!number || std::isfinite(*number), "manifest_text: metadata {} is not finite", key);
    std::visit([&, &k = key](const auto& v) { metadata[k] = v; }, value);
  }
  std::string body = fmt::format("{{\n\"format\": \"{}{}\",\n\"metadata\": {},\n\"files\": [", kFormatName,
                                 kFormatNumber, compact(metadata));
  const ManifestFile* previous = nullptr;
  for (const ManifestFile& file : manifest.files) {
    const std::string fault = name_fault(file.name);
    INGOT_CHECK(fault.empty(), "manifest_text: file name {:?} {}", file.name, fault);
    INGOT_CHECK(!previous || previous->name < file.name,
                "manifest_text: file {} is given twice or out of order", file.name);
    body += fmt::format("{}\n{{\"name\": {}, \"size_bytes\": {}, \"xxh3_64\": \"{}\"}}", previous ? "," : "",
                        compact(file.name), file.size_bytes, hex(file.xxh3_64));
    previous = &file;
  }
  body += "\n],\n";
  return body + closing_line(body);
}

namespace {

// Returns the JSON of a manifest of any format. kData error unless its seal is right.
json sealed_json(std::string_view text) {
  if (text.size() > kMaxManifestBytes)
    refuse(fmt::format("{} bytes are too many for a manifest", text.size()));
  const size_t closing_bytes = closing_line("").size();
  if (text.size() < closing_bytes) refuse(fmt::format("{} bytes are too few for a manifest", text.size()));
  const std::string_view body = text.substr(0, text.size() - closing_bytes);
  if (text.substr(body.size()) != closing_line(body))
    refuse("its own hash does not match: it has been changed");
  return json::parse(text, nullptr, /*allow_exceptions=*/false);
}

// As parse_manifest, but errors have no label.
Manifest parse_sealed(std::string_view text) {
  const json root = sealed_json(text);
  const std::optional<int64_t> format = format_number(root);
  if (format > kFormatNumber)
    refuse(
        fmt::format("was made by a newer Ingot: it is of format {}, and this program reads up to {}; use "
                    "that Ingot",
                    *format, kFormatNumber));
  Manifest manifest = from_json(root);
  if (format != kFormatNumber) refuse(fmt::format("is not of format \"{}{}\"", kFormatName, kFormatNumber));
  // Only the canonical text is accepted, so no key occurs twice and none is unknown.
  if (manifest_text(manifest) != text) refuse("is not as Ingot writes it");
  return manifest;
}

}  // namespace

Manifest parse_manifest(std::string_view text, const std::string& label) {
  try {
    return parse_sealed(text);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", label, error.what()), error.kind());
  }
}

std::optional<int64_t> newer_format(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  if (!type_fault(path).empty()) return std::nullopt;
  try {
    const std::optional<int64_t> format = format_number(sealed_json(read_file(path)));
    return format > kFormatNumber ? format : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

Manifest write_manifest(const fs::path& folder, const ManifestMetadata& metadata,
                        const std::map<std::string, uint64_t>& known_hashes) {
  Manifest manifest{metadata, {}};
  for (const std::string& name : names_in(folder)) {
    const fs::path path = folder / name;
    std::string fault = type_fault(path);
    if (fault.empty()) fault = name_fault(name);
    if (!fault.empty())
      fail(ErrorKind::kData, "{}: file {:?} {}; a checkpoint holds plain files", folder.string(), name,
           fault);
    const auto known = known_hashes.find(name);
    manifest.files.push_back(known == known_hashes.end()
                                 ? hash_file(path)
                                 : ManifestFile{name, fs::file_size(path), known->second});
  }
  OutputFile file(folder / kManifestName);
  file.write(manifest_text(manifest));
  file.close();
  return manifest;
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path path = folder / kManifestName;
  if (const std::string fault = type_fault(path); !fault.empty())
    fail(ErrorKind::kData, "{}: {}", path.string(), fault);
  return parse_manifest(read_file(path), path.string());
}

namespace {

// Compares the bytes of the files for which is_read(name) is true, and the sizes of all.
std::vector<ManifestProblem> verify_folder(const fs::path& folder,
                                           const std::function<bool(const std::string&)>& is_read) {
  std::vector<ManifestProblem> problems;
  const std::string manifest_name(kManifestName);
  if (const std::string fault = type_fault(folder / manifest_name); !fault.empty())
    return {{manifest_name, fault}};
  try {
    const Manifest manifest = parse_sealed(read_file(folder / kManifestName));
    std::set<std::string> listed;
    for (const ManifestFile& file : manifest.files) {
      listed.insert(file.name);
      if (std::string fault = file_fault(folder, file, is_read(file.name)); !fault.empty())
        problems.push_back({file.name, fault});
    }
    for (const std::string& name : names_in(folder))
      if (!listed.contains(name)) problems.push_back({name, "is not listed in the manifest"});
  } catch (const Error& error) {
    problems.push_back({manifest_name, error.what()});
  }
  return problems;
}

}  // namespace

std::vector<ManifestProblem> verify_manifest(const fs::path& folder) {
  return verify_folder(folder, [](const std::string&) { return true; });
}

std::vector<ManifestProblem> verify_manifest_of(const fs::path& folder,
                                                std::span<const std::string_view> read) {
  return verify_folder(folder,
                       [&](const std::string& name) { return std::ranges::find(read, name) != read.end(); });
}

}  // namespace ingot
