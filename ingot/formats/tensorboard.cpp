#include "ingot/formats/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "ingot/core/error.h"
#include "ingot/core/file.h"
#include "ingot/formats/protobuf_wire.h"

namespace ingot {
namespace fs = std::filesystem;
namespace {

using protobuf::kFixed32;
using protobuf::message;
using protobuf::put_bytes;
using protobuf::put_double;
using protobuf::put_fixed;
using protobuf::put_key;
using protobuf::put_number;

// Field numbers of the protobuf messages.
constexpr int kEventTime = 1, kEventStep = 2, kEventVersion = 3, kEventSummary = 5, kEventSession = 7;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueNumber = 2, kValueTensor = 8, kValueMetadata = 9;
constexpr int kTensorType = 1, kTensorShape = 2, kTensorStrings = 8;
constexpr uint64_t kTypeFloat = 1, kTypeString = 7, kSessionStart = 1, kEndedWell = 1;
// From tensorboard/plugins/hparams/plugin_data.proto and google.protobuf.Value.
constexpr int kHparamsStart = 3, kHparamsEnd = 4, kStartHparams = 1, kStartTime = 5, kEndStatus = 1,
              kEndTime = 2;
constexpr int kMapKey = 1, kMapValue = 2, kNumberValue = 2, kStringValue = 3, kBoolValue = 4;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    table[i] = i;
    for (int bit = 0; bit < 8; ++bit) table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0x82f63b78u : 0u);
  }
  return table;
}

// CRC-32C (Castagnoli), masked (rotated and offset) as TFRecord stores it.
uint32_t masked_crc(std::string_view bytes) {
  static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return std::rotr(~crc, 15) + 0xa282ead8u;
}

std::string event_at(int64_t step, double time_s) {
  std::string event;
  put_double(event, kEventTime, time_s);
  put_number(event, kEventStep, static_cast<uint64_t>(step));
  return event;
}

}  // namespace

TensorboardWriter::TensorboardWriter(const fs::path& folder, double time_s,
                                     std::optional<int64_t> resumed_step) {
  make_folders(folder);
  std::array<char, 256> host{"localhost"};
  ::gethostname(host.data(), host.size() - 1);
  for (int n = 0; fd_ < 0; ++n) {
    path_ = folder / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", static_cast<int64_t>(time_s),
                                 host.data(), ::getpid(), n);
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd_ < 0 && errno != EEXIST)
      fail(ErrorKind::kDisk, "{}: cannot be written: {}; choose a folder you may write to", path_.string(),
           std::strerror(errno));
  }
  std::string version = event_at(0, time_s);
  put_bytes(version, kEventVersion, "brain.Event:2");
  add_event(version);
  if (resumed_step) {
    std::string start = event_at(*resumed_step, time_s);
    std::string status;
    put_number(status, 1, kSessionStart);
    put_bytes(start, kEventSession, status);
    add_event(start);
  }
  flush();
}

TensorboardWriter::~TensorboardWriter() {
  try {
    flush();
  } catch (const Error&) {  // a destructor must not throw; call flush() to see the error
  }
  ::close(fd_);
}

void TensorboardWriter::scalar(std::string_view tag, double value, int64_t step, double time_s) {
  std::string entry;
  put_bytes(entry, kValueTag, tag);
  put_key(entry, kValueNumber, kFixed32);
  put_fixed(entry, std::bit_cast<uint32_t>(static_cast<float>(value)));
  std::string event = event_at(step, time_s);
  put_bytes(event, kEventSummary, message(kSummaryValue, entry));
  add_event(event);
}

void TensorboardWriter::text(std::string_view tag, std::string_view text, int64_t step, double time_s) {
  std::string dim, tensor, entry;
  put_number(dim, 1, 1);
  put_number(tensor, kTensorType, kTypeString);
  put_bytes(tensor, kTensorShape, message(2, dim));
  put_bytes(tensor, kTensorStrings, text);
  put_bytes(entry, kValueTag, fmt::format("{}/text_summary", tag));
  put_bytes(entry, kValueTensor, tensor);
  put_bytes(entry, kValueMetadata, message(1, message(1, "text")));  // plugin_data { plugin_name }
  std::string event = event_at(step, time_s);
  put_bytes(event, kEventSummary, message(kSummaryValue, entry));
  add_event(event);
}

void TensorboardWriter::hparams_start(std::span<const HyperParameter> values, double time_s) {
  std::string start;
  for (const auto& [key, value] : values) {
    std::string held, entry;
    if (const bool* flag = std::get_if<bool>(&value)) put_number(held, kBoolValue, *flag ? 1 : 0);
    if (const double* number = std::get_if<double>(&value)) put_double(held, kNumberValue, *number);
    if (const auto* text = std::get_if<std::string>(&value)) put_bytes(held, kStringValue, *text);
    put_bytes(entry, kMapKey, key);
    put_bytes(entry, kMapValue, held);
    put_bytes(start, kStartHparams, entry);
  }
  put_double(start, kStartTime, time_s);
  add_hparams("_hparams_/session_start_info", message(kHparamsStart, start), time_s);
}

void TensorboardWriter::hparams_end(double time_s) {
  std::string end;
  put_number(end, kEndStatus, kEndedWell);
  put_double(end, kEndTime, time_s);
  add_hparams("_hparams_/session_end_info", message(kHparamsEnd, end), time_s);
}

// The plugin reads the message from the summary's metadata. The summary must also have a tensor, which is
// empty.
void TensorboardWriter::add_hparams(std::string_view tag, std::string_view content, double time_s) {
  std::string plugin, tensor, entry;
  put_bytes(plugin, 1, "hparams");
  put_bytes(plugin, 2, content);
  put_number(tensor, kTensorType, kTypeFloat);
  put_bytes(tensor, kTensorShape, "");
  put_bytes(entry, kValueTag, tag);
  put_bytes(entry, kValueTensor, tensor);
  put_bytes(entry, kValueMetadata, message(1, plugin));
  std::string event = event_at(0, time_s);
  put_bytes(event, kEventSummary, message(kSummaryValue, entry));
  add_event(event);
}

void TensorboardWriter::add_event(std::string_view event) {
  std::string length;
  put_fixed(length, static_cast<uint64_t>(event.size()));
  pending_ += length;
  put_fixed(pending_, masked_crc(length));
  pending_ += event;
  put_fixed(pending_, masked_crc(event));
}

void TensorboardWriter::flush() {
  while (!pending_.empty()) {
    const ssize_t n = ::write(fd_, pending_.data(), pending_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(ErrorKind::kDisk, "{}: writing failed: {}; free some space and try again", path_.string(),
           n < 0 ? std::strerror(errno) : "nothing was written");
    pending_.erase(0, static_cast<size_t>(n));
  }
}

}  // namespace ingot
