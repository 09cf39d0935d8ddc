// SPDX-License-Identifier: Apache-2.0
// Instructions of one byte and their operand work on a stack, from which REDUCE and BUILD would
// call code; here they make a node that says so:
//
//   80 02  63 "torch._utils\n_rebuild_tensor_v2\n"  28 .. 74  52  2e
//   PROTO  GLOBAL: a name                           ( .. tuple  REDUCE: {call, name, arguments}  STOP
#include "formats/pickle.hpp"

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <unordered_map>

namespace assay::formats::pickle {
namespace {

enum Op : uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kBinFloat = 'G',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kBinInt2 = 'M',
  kNone = 'N',
  kBinPersId = 'Q',
  kReduce = 'R',
  kBinString = 'T',
  kShortBinString = 'U',
  kBinUnicode = 'X',
  kEmptyList = ']',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kAppends = 'e',
  kBinGet = 'h',
  kLongBinGet = 'j',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kSetItems = 'u',
  kEmptyTuple = ')',
  kEmptyDict = '}',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kProto = 0x80,
  kNewObj = 0x81,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8a,
  kLong4 = 0x8b,
  kShortBinUnicode = 0x8c,
  kBinUnicode8 = 0x8d,
  kBinBytes8 = 0x8e,
  kEmptySet = 0x8f,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
};

constexpr uint8_t kHighestProtocol = 5;

class Machine {
 public:
  Machine(ByteSpan stream, size_t max_values, uint64_t base_offset)
      : stream_(stream), reader_(stream), max_values_(max_values), base_offset_(base_offset) {}

  Result<Pickle> run() {
    while (!stopped_) {
      at_ = reader_.offset();
      auto code = reader_.read<uint8_t>();
      Status done = code ? step(*code) : Status(fail(std::move(code).error()));
      if (!done) {
        Error error = std::move(done).error();
        error.offset = error.offset.value_or(at_) + base_offset_;
        return fail(std::move(error));
      }
    }
    pickle_.size_bytes = reader_.offset();
    return std::move(pickle_);
  }

 private:
  [[nodiscard]] tl::unexpected<Error> wrong(std::string what) const {
    return fail(Errc::Invalid, std::move(what), at_);
  }

  Status push(Value value) {
    if (pickle_.values.size() >= max_values_) {
      return fail(Errc::TooLarge,
                  "the pickle builds more than " + std::to_string(max_values_) + " values", at_);
    }
    value.offset = at_ + base_offset_;
    stack_.push_back(static_cast<ValueId>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
    return {};
  }
  Status push_kind(Kind kind) {
    Value value;
    value.kind = kind;
    return push(std::move(value));
  }
  Status push_integer(Kind kind, int64_t integer) {
    Value value;
    value.kind = kind;
    value.integer = integer;
    return push(std::move(value));
  }

  Result<ValueId> pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) return wrong("the pickle's stack is empty here");
    const ValueId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Result<std::vector<ValueId>> pop_to_mark() {
    if (marks_.empty()) return wrong("the pickle has no mark here");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<ValueId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  template <typename Length>
  Status push_text(Kind kind) {
    ASSAY_TRY(const auto length, reader_.read<Length>());
    ASSAY_TRY(const ByteSpan bytes, reader_.read_bytes(length));
    Value value;
    value.kind = kind;
    value.text = as_text(bytes);
    return push(std::move(value));
  }
  template <typename Length>
  Status push_long() {
    ASSAY_TRY(const auto length, reader_.read<Length>());
    ASSAY_TRY(const ByteSpan bytes, reader_.read_bytes(length));
    Value value;
    value.kind = Kind::BigInt;
    value.text = as_text(bytes);
    if (bytes.size() <= 8) {
      const bool negative = !bytes.empty() && (std::to_integer<uint8_t>(bytes.back()) & 0x80u) != 0;
      uint64_t bits = negative ? ~uint64_t{0} : 0;
      std::memcpy(&bits, bytes.data(), bytes.size());
      value.kind = Kind::Int;
      value.integer = static_cast<int64_t>(bits);
    }
    return push(std::move(value));
  }
  Status push_float() {
    ASSAY_TRY(const auto bits, reader_.read<uint64_t>());
    Value value;
    value.kind = Kind::Float;
    value.real = std::bit_cast<double>(__builtin_bswap64(bits));
    return push(std::move(value));
  }
  Status push_items(Kind kind, std::vector<ValueId> items) {
    Value value;
    value.kind = kind;
    value.items = std::move(items);
    return push(std::move(value));
  }
  Status push_tuple(size_t count) {
    std::vector<ValueId> items(count);
    for (size_t i = count; i-- > 0;) {
      ASSAY_TRY(items[i], pop());
    }
    return push_items(Kind::Tuple, std::move(items));
  }

  Result<std::string_view> read_line() {
    const std::string_view rest = as_text(stream_.subspan(reader_.offset()));
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return fail(Errc::Truncated, "a name without line end", at_);
    ASSAY_TRY_STATUS(reader_.skip(end + 1));
    return rest.substr(0, end);
  }
  Status push_global(std::string_view module, std::string_view name) {
    Value value;
    value.kind = Kind::Global;
    value.text = module;
    value.name = name;
    return push(std::move(value));
  }
  Status push_global_from_lines() {
    ASSAY_TRY(const std::string_view module, read_line());
    ASSAY_TRY(const std::string_view name, read_line());
    return push_global(module, name);
  }
  Status push_global_from_stack() {
    ASSAY_TRY(const ValueId name, pop());
    ASSAY_TRY(const ValueId module, pop());
    if (pickle_.values[name].kind != Kind::String || pickle_.values[module].kind != Kind::String) {
      return wrong("a class whose name is not text");
    }
    return push_global(pickle_.values[module].text, pickle_.values[name].text);
  }

  Status push_call() {
    ASSAY_TRY(const ValueId arguments, pop());
    ASSAY_TRY(const ValueId callable, pop());
    Value value;
    value.kind = Kind::Call;
    value.callable = callable;
    value.arguments = arguments;
    return push(std::move(value));
  }
  Status push_persistent() {
    ASSAY_TRY(const ValueId id, pop());
    Value value;
    value.kind = Kind::Persistent;
    value.arguments = id;
    return push(std::move(value));
  }

  // The container that stands on top of the stack stays there.
  Status extend_top(const std::vector<ValueId>& added, bool pairs) {
    ASSAY_TRY(const ValueId target, pop());
    stack_.push_back(target);
    Value& container = pickle_.values[target];
    const bool fits = container.kind == Kind::Call ||
                      (pairs ? container.kind == Kind::Dict
                             : container.kind == Kind::List || container.kind == Kind::Set);
    if (!fits) return wrong("items are added to something that holds none");
    if (pairs && added.size() % 2 != 0) return wrong("a key without a value");
    container.items.insert(container.items.end(), added.begin(), added.end());
    return {};
  }
  Status extend_from_mark(bool pairs) {
    ASSAY_TRY(const std::vector<ValueId> added, pop_to_mark());
    return extend_top(added, pairs);
  }
  Status append_one() {
    ASSAY_TRY(const ValueId item, pop());
    return extend_top({item}, false);
  }
  Status set_one() {
    ASSAY_TRY(const ValueId value, pop());
    ASSAY_TRY(const ValueId key, pop());
    return extend_top({key, value}, true);
  }

  Status put(uint64_t index) {
    if (stack_.empty()) return wrong("nothing to remember");
    memo_[index] = stack_.back();
    return {};
  }
  Status get(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end())
      return wrong("value " + std::to_string(index) + " was never remembered");
    stack_.push_back(found->second);
    return {};
  }

  Status check_protocol() {
    ASSAY_TRY(const auto protocol, reader_.read<uint8_t>());
    if (protocol > kHighestProtocol)
      return fail(Errc::Unsupported,
                  "pickle protocol " + std::to_string(protocol) + " is not supported", at_);
    return {};
  }

  Status step(uint8_t code) {
    switch (code) {
      case kProto:
        return check_protocol();
      case kFrame:
        return reader_.skip(8);  // a hint for buffered readers
      case kStop: {
        ASSAY_TRY(pickle_.root, pop());
        stopped_ = true;
        return {};
      }
      case kMark:
        marks_.push_back(stack_.size());
        return {};
      case kPop:
        // A mark counts as one thing on the stack.
        if (!marks_.empty() && marks_.back() == stack_.size()) {
          marks_.pop_back();
          return {};
        } else {
          ASSAY_TRY_STATUS(pop());
          return {};
        }
      case kPopMark:
        ASSAY_TRY_STATUS(pop_to_mark());
        return {};

      case kNone:
        return push_kind(Kind::None);
      case kNewTrue:
        return push_integer(Kind::Bool, 1);
      case kNewFalse:
        return push_integer(Kind::Bool, 0);
      case kBinInt:
        return push_number<int32_t>();
      case kBinInt1:
        return push_number<uint8_t>();
      case kBinInt2:
        return push_number<uint16_t>();
      case kLong1:
        return push_long<uint8_t>();
      case kLong4:
        return push_long<uint32_t>();
      case kBinFloat:
        return push_float();

      case kBinUnicode:
        return push_text<uint32_t>(Kind::String);
      case kShortBinUnicode:
        return push_text<uint8_t>(Kind::String);
      case kBinUnicode8:
        return push_text<uint64_t>(Kind::String);
      case kShortBinString:
        return push_text<uint8_t>(Kind::String);
      case kBinString:
        return push_text<uint32_t>(Kind::String);
      case kShortBinBytes:
        return push_text<uint8_t>(Kind::Bytes);
      case kBinBytes:
        return push_text<uint32_t>(Kind::Bytes);
      case kBinBytes8:
      case kByteArray8:
        return push_text<uint64_t>(Kind::Bytes);

      case kEmptyTuple:
        return push_tuple(0);
      case kTuple1:
        return push_tuple(1);
      case kTuple2:
        return push_tuple(2);
      case kTuple3:
        return push_tuple(3);
      case kTuple:
        return push_from_mark(Kind::Tuple);
      case kFrozenSet:
        return push_from_mark(Kind::Set);
      case kEmptyList:
        return push_kind(Kind::List);
      case kEmptyDict:
        return push_kind(Kind::Dict);
      case kEmptySet:
        return push_kind(Kind::Set);
      case kAppend:
        return append_one();
      case kAppends:
      case kAddItems:
        return extend_from_mark(false);
      case kSetItem:
        return set_one();
      case kSetItems:
        return extend_from_mark(true);

      case kGlobal:
        return push_global_from_lines();
      case kStackGlobal:
        return push_global_from_stack();
      case kReduce:
      case kNewObj:
        return push_call();
      case kNewObjEx:
        ASSAY_TRY_STATUS(pop());
        return push_call();  // keyword arguments
      case kBuild:
        ASSAY_TRY_STATUS(pop());
        return {};  // attributes: nobody asks for them
      case kBinPersId:
        return push_persistent();

      case kBinPut:
        return put_number<uint8_t>();
      case kLongBinPut:
        return put_number<uint32_t>();
      case kMemoize:
        return put(memo_.size());
      case kBinGet:
        return get_number<uint8_t>();
      case kLongBinGet:
        return get_number<uint32_t>();
      default:
        return wrong("unknown pickle instruction " + std::to_string(code));
    }
  }

  template <typename T>
  Status push_number() {
    ASSAY_TRY(const auto number, reader_.read<T>());
    return push_integer(Kind::Int, number);
  }
  template <typename T>
  Status put_number() {
    ASSAY_TRY(const auto index, reader_.read<T>());
    return put(index);
  }
  template <typename T>
  Status get_number() {
    ASSAY_TRY(const auto index, reader_.read<T>());
    return get(index);
  }
  Status push_from_mark(Kind kind) {
    ASSAY_TRY(std::vector<ValueId> items, pop_to_mark());
    return push_items(kind, std::move(items));
  }

  ByteSpan stream_;
  ByteReader reader_;
  size_t max_values_;
  uint64_t base_offset_;
  uint64_t at_ = 0;  // offset of the current instruction
  bool stopped_ = false;
  Pickle pickle_;
  std::vector<ValueId> stack_;
  std::vector<size_t> marks_;  // stack sizes at the open marks
  std::unordered_map<uint64_t, ValueId> memo_;
};

}  // namespace

Result<Pickle> read_pickle(ByteSpan stream, size_t max_values, uint64_t base_offset) {
  return Machine(stream, max_values, base_offset).run();
}

}  // namespace assay::formats::pickle
