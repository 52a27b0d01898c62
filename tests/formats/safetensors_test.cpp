#include "ingot/formats/safetensors.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <chrono>
#include <cstring>

#include "ingot/core/error.h"
#include "tests/reference/error_of.h"
#include "tests/reference/file_size_limit.h"
#include "tests/reference/temporary_folder.h"

namespace ingot {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const fs::path kGolden = fs::path(INGOT_TEST_DATA) / "formats" / "mixed.safetensors";

class SafetensorsTest : public FolderTest {};

std::span<const std::byte> as_span(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Returns a file with this header and `data_bytes` zero bytes of data.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t n = header.size();
  std::string file(reinterpret_cast<const char*>(&n), sizeof n);
  return file + header + std::string(data_bytes, '\0');
}

std::string file_with_length(uint64_t header_bytes, const std::string& rest) {
  return std::string(reinterpret_cast<const char*>(&header_bytes), sizeof header_bytes) + rest;
}

std::string file_refusal(const std::string& file) {
  return data_error([&] { const SafetensorsFile parsed(as_span(file), "x.safetensors"); });
}

template <typename T>
std::vector<T> values(const SafetensorsEntry& entry) {
  std::vector<T> out(entry.bytes.size() / sizeof(T));
  std::memcpy(out.data(), entry.bytes.data(), entry.bytes.size());
  return out;
}

TEST(Safetensors, ReadsWhatTheReferenceWrote) {
  const SafetensorsFile file(kGolden);
  EXPECT_EQ(file.tensors().size(), 11u);
  EXPECT_THAT(file.metadata(), ElementsAre(std::pair("format", "pt")));
  const SafetensorsEntry& b = file.get("b.weight");
  EXPECT_EQ(b.dtype, DType::f32);
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.shape_text(), "(2, 3)");
  EXPECT_THAT(values<float>(b), ElementsAre(0, 0.25, 0.5, 0.75, 1, 1.25));
  EXPECT_THAT(values<int64_t>(file.get("ids")), ElementsAre(-7, 9));
  EXPECT_EQ(file.get("half").dtype, DType::bf16);
  EXPECT_THAT(values<uint16_t>(file.get("half")), ElementsAre(0x3f80, 0x3f00, 0xc000));
  EXPECT_EQ(file.get("fp8").dtype, DType::f8e4m3);
  EXPECT_EQ(file.get("scalar").elements(), 1);
  EXPECT_TRUE(file.get("scalar").shape.empty());
  EXPECT_TRUE(file.get("empty").bytes.empty());
  EXPECT_NE(file.find("quote\"\\ é\n"), nullptr);
  EXPECT_EQ(file.find("nothing"), nullptr);
  EXPECT_THAT(error_of([&] { file.get("nothing"); }),
              AllOf(HasSubstr("mixed.safetensors"), HasSubstr("\"nothing\" is missing")));
}

TEST_F(SafetensorsTest, WritesTheBytesThatTheReferenceWrote) {
  const SafetensorsFile golden(kGolden);
  std::vector<SafetensorsSource> sources;
  for (const SafetensorsEntry& entry : golden.tensors())
    sources.insert(sources.begin(), {entry.name, *entry.dtype, entry.shape, entry.bytes, {}});
  const fs::path path = folder_ / "out.safetensors";
  const SafetensorsWritten written = write_safetensors(path, sources);
  EXPECT_EQ(read_file(path), read_file(kGolden));

  const std::string bytes = read_file(path);
  EXPECT_EQ(written.size_bytes, bytes.size());
  EXPECT_EQ(written.xxh3_64, XXH3_64bits(bytes.data(), bytes.size()));
  ASSERT_EQ(written.tensors.size(), golden.tensors().size());
  for (size_t i = 0; i < written.tensors.size(); ++i) {
    const SafetensorsEntry& entry = golden.tensors()[i];
    EXPECT_EQ(written.tensors[i].name, entry.name);
    EXPECT_EQ(written.tensors[i].xxh3_64, XXH3_64bits(entry.bytes.data(), entry.bytes.size()));
  }
}

TEST_F(SafetensorsTest, StreamsATensorInPieces) {
  std::vector<float> x(10'000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(x));
  const SafetensorsSource whole{"x", DType::f32, {100, 100}, bytes, {}};
  SafetensorsSource pieces{"x", DType::f32, {100, 100}, {}, [&](const ByteSink& sink) {
                             for (size_t at = 0; at < bytes.size(); at += 777)
                               sink(bytes.subspan(at, std::min<size_t>(777, bytes.size() - at)));
                           }};
  const auto a = write_safetensors(folder_ / "a", {&whole, 1});
  const auto b = write_safetensors(folder_ / "b", {&pieces, 1});
  EXPECT_EQ(read_file(folder_ / "a"), read_file(folder_ / "b"));
  EXPECT_EQ(a.xxh3_64, b.xxh3_64);
  EXPECT_EQ(a.tensors[0].xxh3_64, b.tensors[0].xxh3_64);
}

TEST_F(SafetensorsTest, WriterRefusesMistakesAndLeavesNoFile) {
  const std::vector<float> x(4);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(x));
  const SafetensorsSource good{"x", DType::f32, {4}, bytes, {}};
  const auto refused = [&](const std::vector<SafetensorsSource>& sources) {
    const fs::path path = folder_ / "bad.safetensors";
    EXPECT_THROW(write_safetensors(path, sources), Error);
    EXPECT_FALSE(fs::exists(path));
  };
  refused({good, good});
  refused({{"", DType::f32, {4}, bytes, {}}});
  refused({{"__metadata__", DType::f32, {4}, bytes, {}}});
  refused({{"x", DType::f32, {5}, bytes, {}}});
  refused({{"x", DType::f32, {-4}, bytes, {}}});
  refused({{"x", DType::f32, {4194305, 4194305, 211106198978564}, bytes, {}}});
  refused({{"x\xff", DType::f32, {4}, bytes, {}}});
  refused({good, {"y", DType::f32, {4}, {}, [](const ByteSink&) { throw Error("reading failed"); }}});
  EXPECT_THROW(write_safetensors(folder_ / "no" / "such" / "folder", {&good, 1}), Error);
}

TEST_F(SafetensorsTest, AFailedWriteIsADiskErrorThatNamesThePathAndLeavesNoFile) {
  const std::vector<float> x(100'000);
  const SafetensorsSource source{"x", DType::f32, {100'000}, std::as_bytes(std::span(x)), {}};
  const fs::path path = folder_ / "full.safetensors";
  const FileSizeLimit full(4096);
  EXPECT_THAT(error_of(
                  [&] {
                    write_safetensors(path, {&source, 1});
                  },
                  ErrorKind::kDisk),
              HasSubstr(path.string()));
  EXPECT_FALSE(fs::exists(path));
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  EXPECT_EQ(file_refusal(file_of("{}", 0)), "no error");
  EXPECT_EQ(file_refusal(file_of("{}      ", 0)), "no error");
  EXPECT_EQ(file_refusal(file_of(R"({"__metadata__":{}})", 0)), "no error");
  EXPECT_EQ(file_refusal(file_of(R"({"a":{"shape":[],"data_offsets":[0,8],"dtype":"F64"}})", 8)), "no error");
  EXPECT_EQ(file_refusal(file_of(R"({"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3)),
            "no error");
  EXPECT_EQ(file_refusal(file_of(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1)), "no error");
  // Empty tensors may share an offset with others, between tensors and at both ends.
  EXPECT_EQ(file_refusal(file_of(R"({"e":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},)"
                                 R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("f":{"dtype":"U8","shape":[0,7],"data_offsets":[1,1]},)"
                                 R"("g":{"dtype":"U8","shape":[0],"data_offsets":[2,2]},)"
                                 R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 2)),
            "no error");
}

struct Hostile {
  const char* why;  // part of the message
  std::string file;
};

std::string entry(const std::string& body) { return R"({"w":{)" + body + "}}"; }
std::string u8_entry(const std::string& offsets) {
  return entry(R"("dtype":"U8","shape":[2],"data_offsets":)" + offsets);
}
std::string shaped(const std::string& dtype, const std::string& shape) {
  return entry(R"("dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[0,4])");
}

std::vector<Hostile> hostile_lengths() {
  return {
      {"too few", ""},
      {"too few", "{}"},
      {"header length is 0", file_with_length(0, "{}")},
      {"above the format's", file_with_length(uint64_t{1} << 63, "{}")},
      {"above the format's", file_with_length(~uint64_t{0}, "{}")},
      {"above the format's", file_with_length(100'000'001, "{}")},
      {"past the end", file_with_length(100'000'000, "{}")},
      {"past the end", file_with_length(3, "{}")},
      {"begin with '{'", file_of(" {}", 0)},
      {"begin with '{'", file_of("[]", 0)},
      {"begin with '{'", file_of("\xef\xbb\xbf{}", 0)},
  };
}

std::vector<Hostile> hostile_json() {
  std::string deep_objects, deep_arrays = R"({"w":{"shape":)" + std::string(100'000, '[');
  for (int i = 0; i < 100'000; ++i) deep_objects += R"({"shape":)";
  return {
      {"NUL", file_of(std::string("{}\0 junk", 8), 0)},
      {"not JSON", file_of("{", 0)},
      {"not JSON", file_of("{} x", 0)},
      {"not JSON", file_of("{}{}", 0)},
      {"not JSON", file_of("{\"a\xff\":1}", 0)},
      {"not JSON", file_of("{\"a\xc0\x80\":1}", 0)},
      {"not JSON", file_of(R"({"\ud800":1})", 0)},
      {"not JSON", file_of("{/**/}", 0)},
      {"an object where", file_of(deep_objects, 0)},
      {"an array where", file_of(deep_arrays, 0)},
      {"a number where", file_of(R"({"w":1})", 0)},
      {"a null where", file_of(R"({"w":null})", 0)},
      {"a boolean where", file_of(R"({"w":true})", 0)},
      {"an array where", file_of(R"({"w":[]})", 0)},
      {"a string where", file_of(R"({"w":"x"})", 0)},
      {"__metadata__ is given twice", file_of(R"({"__metadata__":{},"__metadata__":{}})", 0)},
      {"\"k\" is given twice", file_of(R"({"__metadata__":{"k":"a","k":"b"}})", 0)},
      {"a number where", file_of(R"({"__metadata__":{"k":1}})", 0)},
      {"an object where", file_of(R"({"__metadata__":{"k":{}}})", 0)},
      {"an array where", file_of(R"({"__metadata__":[]})", 0)},
  };
}

std::vector<Hostile> hostile_entries() {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)";
  std::string many_ones = "[1";
  for (int i = 0; i < 64; ++i) many_ones += ",1";
  many_ones += "]";
  return {
      {"dtype is missing", file_of(entry(R"("shape":[2],"data_offsets":[0,2])"), 2)},
      {"shape is missing", file_of(entry(R"("dtype":"U8","data_offsets":[0,2])"), 2)},
      {"data_offsets is missing", file_of(entry(R"("dtype":"U8","shape":[2])"), 2)},
      {"dtype is given twice",
       file_of(entry(R"("dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2])"), 2)},
      {"shape is given twice",
       file_of(entry(R"("dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2])"), 2)},
      {"unknown key \"strides\"", file_of(entry(R"("strides":[1])"), 2)},
      {"unknown dtype \"F31\"", file_of(shaped("F31", "[1]"), 4)},
      {"unknown dtype \"\"", file_of(shaped("", "[1]"), 4)},
      {"unknown dtype \"f32\"", file_of(shaped("f32", "[1]"), 4)},
      {"\"w\" is given twice", file_of(R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                       R"("w":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                                       4)},
      {"negative number -1", file_of(u8_entry("[-1,1]"), 2)},
      {"not a whole number", file_of(u8_entry("[0,2.0]"), 2)},
      {"1e30", file_of(u8_entry("[0,1e30]"), 2)},
      {"not a whole number", file_of(u8_entry("[0,18446744073709551616]"), 2)},
      {"not JSON", file_of(u8_entry("[0,NaN]"), 2)},
      {"not JSON", file_of(u8_entry("[0,1e400]"), 2)},
      {"a string where", file_of(u8_entry(R"(["0",2])"), 2)},
      {"two numbers", file_of(u8_entry("[0]"), 2)},
      {"two numbers", file_of(u8_entry("[0,2,2]"), 2)},
      {"run backwards", file_of(u8_entry("[2,0]"), 2)},
      {"past the end", file_of(u8_entry("[0,18446744073709551615]"), 2)},
      {"past the end", file_of(u8_entry("[0,2]"), 1)},
      {"1 bytes after the last tensor", file_of(u8_entry("[0,2]"), 3)},
      {"4 bytes after the last tensor", file_of("{}", 4)},
      {"leave a hole", file_of(u8_entry("[1,3]"), 3)},
      {"leave a hole", file_of("{" + a + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5)},
      {"overlap", file_of("{" + a + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3)},
      {"overlap", file_of("{" + a + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 2)},
      {"overlap", file_of("{" + a + R"("b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}})", 2)},
      {"past the end", file_of("{" + a + R"("b":{"dtype":"U8","shape":[0],"data_offsets":[3,3]}})", 2)},
      {"takes 0 bytes", file_of("{" + a + R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,4]}})", 4)},
      {"takes 8 bytes", file_of(shaped("F32", "[2]"), 4)},
      {"too many elements", file_of(shaped("U8", "[4194305,4194305,211106198978564]"), 4)},
      {"too many elements", file_of(shaped("F32", "[4611686018427387904]"), 4)},
      {"too many elements", file_of(shaped("F32", "[4294967296,4294967296,0]"), 4)},
      {"past 2^63", file_of(shaped("U8", "[9223372036854775808]"), 4)},
      {"negative number -4", file_of(shaped("U8", "[-4]"), 4)},
      {"not a whole number", file_of(shaped("U8", "[4.5]"), 4)},
      {"an array where", file_of(shaped("U8", "[[4]]"), 4)},
      {"more than 64 dims", file_of(shaped("U8", many_ones), 4)},
      {"too many elements", file_of(entry(R"("dtype":"F4","shape":[3],"data_offsets":[0,1])"), 1)},
  };
}

TEST(Safetensors, RefusesHostileFilesAndSaysWhy) {
  std::vector<Hostile> corpus = hostile_lengths();
  for (Hostile& hostile : hostile_json()) corpus.push_back(std::move(hostile));
  for (Hostile& hostile : hostile_entries()) corpus.push_back(std::move(hostile));
  EXPECT_GE(corpus.size(), 60u);
  for (const Hostile& hostile : corpus) {
    const std::string shown = hostile.file.substr(0, 200);
    EXPECT_THAT(file_refusal(hostile.file), AllOf(HasSubstr("x.safetensors"), HasSubstr(hostile.why)))
        << shown;
  }
}

TEST(Safetensors, NamesTheTensorWithoutControlCharacters) {
  const std::string text = file_refusal(file_of(R"({"\u001b[2J":{"dtype":"F31"}})", 0));
  EXPECT_THAT(text, HasSubstr("\\x1b[2J"));
  EXPECT_EQ(text.find('\x1b'), text.npos);
  EXPECT_LT(file_refusal(file_of("{\"" + std::string(1 << 20, 'n') + "\":{\"x\":1}}", 0)).size(), 1000u);
}

TEST(Safetensors, AMillionEmptyTensorsAreRefusedInBoundedTime) {
  std::string header = "{";
  for (int i = 0; i < 1'000'000; ++i)
    header += fmt::format(R"("{}":{{"dtype":"U8","shape":[0],"data_offsets":[0,0]}},)", i);
  header.back() = '}';
  const std::string file = file_of(header, 0);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(file_refusal(file), HasSubstr("more than 200000 tensors"));
  EXPECT_LT(std::chrono::steady_clock::now() - start,
            std::chrono::seconds(30));  // a quadratic algorithm would take minutes
}

TEST(Safetensors, EveryTruncationOfAFileIsRefused) {
  const std::string golden = read_file(kGolden);
  for (size_t n = 0; n < golden.size(); ++n) EXPECT_NE(file_refusal(golden.substr(0, n)), "no error") << n;
  EXPECT_NE(file_refusal(golden + '\0'), "no error");
}

// A flipped header bit is either refused or leaves tensors that stay inside the file. The sanitizers
// check this.
TEST(Safetensors, FlippedHeaderBitsNeverLeadOutOfTheFile) {
  const std::string golden = read_file(kGolden);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, golden.data(), sizeof header_bytes);
  for (size_t bit = 0; bit < 8 * (8 + header_bytes); ++bit) {
    std::string file = golden;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << (bit % 8)));
    try {
      const SafetensorsFile parsed(as_span(file), "flipped");
      uint64_t sum_bytes = 0;
      for (const SafetensorsEntry& e : parsed.tensors()) sum_bytes += e.bytes.size();
      EXPECT_EQ(sum_bytes, golden.size() - 8 - header_bytes) << bit;
    } catch (const Error&) {
    }
  }
}

TEST_F(SafetensorsTest, RefusesWhatIsNotARegularFile) {
  const fs::path fifo = folder_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  for (const fs::path& path : {fifo, folder_, fs::path("/dev/zero"), folder_ / "missing"})
    EXPECT_THROW(SafetensorsFile{path}, Error) << path;
}

}  // namespace
}  // namespace ingot
