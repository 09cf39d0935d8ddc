// SPDX-License-Identifier: Apache-2.0
// Looks an engine's functions up in the library that called us, and asks it for names of types and
// operators.
#include "capture/ggml/engine.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>

#include <map>
#include <memory>

#include "base/ascii.hpp"
#include "capture/common/host_guard.hpp"

namespace assay::capture::ggml {
namespace {

// What ggml calls the types that others have, too.
struct PlainType {
  std::string_view ggml;
  DType dtype;
};
constexpr PlainType kPlainTypes[] = {{"f32", DType::Float32}, {"f64", DType::Float64},
                                     {"f16", DType::Float16}, {"bf16", DType::BFloat16},
                                     {"i8", DType::Int8},     {"i16", DType::Int16},
                                     {"i32", DType::Int32},   {"i64", DType::Int64}};

struct BuildIdSearch {
  uintptr_t address;
  std::string build_id;
};

std::string hex(const unsigned char* bytes, size_t count) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    text += kDigits[bytes[i] >> 4];
    text += kDigits[bytes[i] & 15];
  }
  return text;
}

std::string build_id_in(const char* notes, size_t size) {
  while (size >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes, sizeof(note));
    const size_t name_bytes = (size_t{note.n_namesz} + 3) / 4 * 4;
    const size_t content_bytes = (size_t{note.n_descsz} + 3) / 4 * 4;
    if (sizeof(note) + name_bytes + content_bytes > size) return {};
    const char* name = notes + sizeof(note);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
      return hex(reinterpret_cast<const unsigned char*>(name) + name_bytes, note.n_descsz);
    notes += sizeof(note) + name_bytes + content_bytes;
    size -= sizeof(note) + name_bytes + content_bytes;
  }
  return {};
}

int look_for_build_id(dl_phdr_info* object, size_t, void* data) {
  auto* search = static_cast<BuildIdSearch*>(data);
  bool holds = false;
  for (size_t i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
    holds |= segment.p_type == PT_LOAD && search->address >= begin &&
             search->address < begin + segment.p_memsz;
  }
  if (!holds) return 0;
  for (size_t i = 0; i < object->dlpi_phnum && search->build_id.empty(); ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type == PT_NOTE)
      search->build_id = build_id_in(
          reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr), segment.p_memsz);
  }
  return 1;
}

/// The first required function that the library lacks; empty when it has all.
std::string load_functions(void* library, EngineFunctions* functions) {
  std::string missing;
#define ASSAY_GGML_LOAD(result, name, arguments) \
  functions->name = reinterpret_cast<decltype(functions->name)>(::dlsym(library, #name));
#define ASSAY_GGML_LOAD_REQUIRED(result, name, arguments) \
  ASSAY_GGML_LOAD(result, name, arguments)                \
  if (functions->name == nullptr && missing.empty()) missing = #name;
  ASSAY_GGML_REQUIRED_SYMBOLS(ASSAY_GGML_LOAD_REQUIRED)
  ASSAY_GGML_OPTIONAL_SYMBOLS(ASSAY_GGML_LOAD)
#undef ASSAY_GGML_LOAD_REQUIRED
#undef ASSAY_GGML_LOAD
  return missing;
}

/// The setter that the engine itself has, and not the probe's in front of it.
SetEvalCallback own_setter(void* library, const EngineFunctions& functions) {
  Dl_info info{};
  Dl_info engine{};
  void* setter = ::dlsym(library, "ggml_backend_sched_set_eval_callback");
  if (setter == nullptr || ::dladdr(setter, &info) == 0 ||
      ::dladdr(reinterpret_cast<void*>(functions.ggml_op_name), &engine) == 0 ||
      info.dli_fbase != engine.dli_fbase)
    return nullptr;
  return reinterpret_cast<SetEvalCallback>(setter);
}

Result<const Engine*> open_engine(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  // The main program is not found by its name.
  if (library == nullptr) library = ::dlopen(nullptr, RTLD_LAZY);
  EngineFunctions functions;
  if (const std::string missing = load_functions(library, &functions); !missing.empty())
    return fail(Errc::Unsupported, "the function " + missing + " is missing");
  functions.ggml_backend_sched_set_eval_callback = own_setter(library, functions);
  if (functions.ggml_backend_sched_set_eval_callback == nullptr)
    return fail(Errc::Unsupported, "its scheduler and its tensors are in different libraries");
  return Engine::make(functions, file);
}

std::string lower_text(const char* text) { return text == nullptr ? "" : lower_case(text); }

}  // namespace

Result<const Engine*> Engine::make(const EngineFunctions& functions, std::string file) {
  std::unique_ptr<Engine> engine(new Engine);
  ASSAY_TRY(engine->layout_, measure_layout(functions));
  engine->functions_ = functions;
  engine->file_ = std::move(file);
  BuildIdSearch search{reinterpret_cast<uintptr_t>(functions.ggml_op_name), {}};
  ::dl_iterate_phdr(look_for_build_id, &search);
  engine->build_id_ = std::move(search.build_id);
  return engine.release();
}

const Engine* Engine::of(const void* function) {
  // dladdr searches a whole symbol table, which would cost each graph 10 us.
  constinit thread_local const void* last_function __attribute__((tls_model("initial-exec"))) =
      nullptr;
  constinit thread_local const Engine* last_engine __attribute__((tls_model("initial-exec"))) =
      nullptr;
  if (function == last_function) return last_engine;
  last_engine = find(function);
  last_function = function;
  return last_engine;
}

const Engine* Engine::find(const void* function) {
  static auto* engines = new std::map<const void*, const Engine*>;  // by base address
  static ForkLock lock;
  Dl_info info{};
  if (::dladdr(function, &info) == 0 || info.dli_fname == nullptr) return nullptr;
  lock.lock();
  if (const auto known = engines->find(info.dli_fbase); known != engines->end()) {
    const Engine* engine = known->second;
    lock.unlock();
    return engine;
  }
  const Engine* engine = nullptr;
  try {
    if (const Result<const Engine*> opened = open_engine(info.dli_fname)) {
      engine = *opened;
    } else {
      tell(LogLevel::Warning, std::string(info.dli_fname) +
                                  ": this ggml library is not captured: " + opened.error().message);
    }
    engines->emplace(info.dli_fbase, engine);
  } catch (...) {
    lock.unlock();
    throw;
  }
  lock.unlock();
  return engine;
}

const std::string& Engine::op_name(int op) const {
  static const auto& unknown = *new std::string("unknown");
  if (op < 0 || static_cast<size_t>(op) >= kNumbers) return unknown;
  std::atomic<const std::string*>& place = op_names_[static_cast<size_t>(op)];
  const std::string* text = place.load(std::memory_order_acquire);
  if (text != nullptr) return *text;
  const auto* made = new std::string(lower_text(functions_.ggml_op_name(op)));
  if (place.compare_exchange_strong(text, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *text;
}

const TypeInfo& Engine::type_info(int type) const {
  static const auto& unknown = *new TypeInfo{"unknown", std::nullopt, 1, 0};
  if (type < 0 || static_cast<size_t>(type) >= kNumbers) return unknown;
  std::atomic<const TypeInfo*>& place = types_[static_cast<size_t>(type)];
  const TypeInfo* known = place.load(std::memory_order_acquire);
  if (known != nullptr) return *known;
  const char* name = functions_.ggml_type_name(type);
  auto made = std::make_unique<TypeInfo>(
      TypeInfo{name == nullptr ? "unknown" : name, std::nullopt, functions_.ggml_blck_size(type),
               static_cast<int64_t>(functions_.ggml_type_size(type))});
  for (const PlainType& plain : kPlainTypes) {
    if (plain.ggml != made->name) continue;
    made->dtype = plain.dtype;
    made->name = assay::name(plain.dtype);
    break;
  }
  if (place.compare_exchange_strong(known, made.get(), std::memory_order_acq_rel))
    return *made.release();
  return *known;
}

std::string Engine::version() const {
  const char* text = functions_.ggml_version == nullptr ? nullptr : functions_.ggml_version();
  return text == nullptr ? "" : text;
}

std::string Engine::commit() const {
  const char* text = functions_.ggml_commit == nullptr ? nullptr : functions_.ggml_commit();
  return text == nullptr ? "" : text;
}

}  // namespace assay::capture::ggml
