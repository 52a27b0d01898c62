// A folder for the files of one test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "ingot/core/file.h"

namespace ingot {

// A new, empty folder, which is removed with everything in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path())
      : path_((parent / "ingot_test_XXXXXX").string()) {
    if (!::mkdtemp(path_.data())) ADD_FAILURE() << "cannot make " << path_;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path() const { return path_; }

 private:
  std::string path_;
};

// The fixture of tests with files.
class FolderTest : public testing::Test {
 private:
  TemporaryFolder temporary_;

 protected:
  const std::filesystem::path folder_ = temporary_.path();

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  // Writes a file, makes its folder, and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const {
    make_folders((folder_ / name).parent_path());
    write_file(folder_ / name, bytes);
    return path(name);
  }
};

}  // namespace ingot
