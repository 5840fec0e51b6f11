#include "replay/file/pickled_tensors.h"

#include "replay/file/bytes.h"

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include <deque>
#include <unordered_map>

namespace overdrive::replay {

namespace {

// What stands on the reader's stack, and in its memory.
struct Thing {
  enum class Kind : uint8_t { kOther, kMark, kNumber, kText, kClass, kList, kDict, kObject, kStorage, kTensor };
  Kind kind = Kind::kOther;
  int64_t number = 0;
  // A text; the name of a class; the key of a storage.
  std::string text = {};
  // Of a list or a tuple the items, of a dict or an object keys and values in turn.
  std::vector<Thing*> items = {};
  at::ScalarType type = at::kFloat;
  at::Tensor tensor = {};
};
using Kind = Thing::Kind;

constexpr const char* kNoPickle = "it is no file of torch.save() that holds tensors.";

at::ScalarType type_of_storage(const std::string& name) {
  static const std::unordered_map<std::string, at::ScalarType> types{
      {"torch FloatStorage", at::kFloat},
      {"torch DoubleStorage", at::kDouble},
      {"torch HalfStorage", at::kHalf},
      {"torch BFloat16Storage", at::kBFloat16},
      {"torch LongStorage", at::kLong},
      {"torch IntStorage", at::kInt},
      {"torch ShortStorage", at::kShort},
      {"torch CharStorage", at::kChar},
      {"torch ByteStorage", at::kByte},
      {"torch BoolStorage", at::kBool},
      {"torch ComplexFloatStorage", at::kComplexFloat},
      {"torch ComplexDoubleStorage", at::kComplexDouble}};
  const auto found = types.find(name);
  TORCH_CHECK(found != types.end(), "it has a tensor of another kind: ", name, ".");
  return found->second;
}

class PickleReader {
 public:
  PickleReader(std::string_view pickle, const StorageByKey& storage) : bytes_(pickle), storage_(storage) {}

  Thing* read() {
    while (true) {
      const auto code = bytes_.number<uint8_t>();
      if (code == '.') return pop();
      take(code);
    }
  }

 private:
  Thing* make(Kind kind) {
    things_.emplace_back();
    things_.back().kind = kind;
    return &things_.back();
  }
  void push(Thing* thing) { stack_.push_back(thing); }
  void push_number(int64_t number) {
    push(make(Kind::kNumber));
    stack_.back()->number = number;
  }
  Thing* pop() {
    TORCH_CHECK(!stack_.empty() && stack_.back()->kind != Kind::kMark, kNoPickle);
    Thing* thing = stack_.back();
    stack_.pop_back();
    return thing;
  }
  Thing* top() const {
    TORCH_CHECK(!stack_.empty(), kNoPickle);
    return stack_.back();
  }
  // All from the last mark on.
  std::vector<Thing*> pop_marked() {
    size_t mark = stack_.size();
    while (mark > 0 && stack_[mark - 1]->kind != Kind::kMark) --mark;
    TORCH_CHECK(mark > 0, kNoPickle);
    std::vector<Thing*> items(stack_.begin() + static_cast<int64_t>(mark), stack_.end());
    stack_.resize(mark - 1);
    return items;
  }
  void push_tuple(size_t count) {
    Thing* tuple = make(Kind::kList);
    tuple->items.resize(count);
    for (size_t i = count; i-- > 0;) tuple->items[i] = pop();
    push(tuple);
  }
  void push_text(std::string_view text) {
    push(make(Kind::kText));
    stack_.back()->text = text;
  }
  std::string line() {
    std::string text;
    for (char c = bytes_.number<char>(); c != '\n'; c = bytes_.number<char>()) text += c;
    return text;
  }
  void add(Thing* to, const std::vector<Thing*>& items, bool pairs) {
    TORCH_CHECK(!pairs || items.size() % 2 == 0, kNoPickle);
    if (to->kind == (pairs ? Kind::kDict : Kind::kList))
      to->items.insert(to->items.end(), items.begin(), items.end());
  }

  void take(uint8_t code) {
    switch (code) {
      case 0x80:  // the protocol
        TORCH_CHECK(bytes_.number<uint8_t>() <= 2, "it is a pickle of another protocol.");
        return;
      case '(':
        return push(make(Kind::kMark));
      case '}':
        return push(make(Kind::kDict));
      case ']':
      case ')':
        return push(make(Kind::kList));
      case 'N':
        return push(make(Kind::kOther));
      case 'G':
        bytes_.number<double>();
        return push(make(Kind::kOther));
      case 0x88:
      case 0x89:
        return push_number(code == 0x88 ? 1 : 0);
      case 'K':
        return push_number(bytes_.number<uint8_t>());
      case 'M':
        return push_number(bytes_.number<uint16_t>());
      case 'J':
        return push_number(bytes_.number<int32_t>());
      case 0x8a:
        return push_long();
      case 'X':
        return push_text(bytes_.text());
      case 'c': {
        const std::string module = line();
        push(make(Kind::kClass));
        stack_.back()->text = module + " " + line();
        return;
      }
      case 'q':
        memory_[bytes_.number<uint8_t>()] = top();
        return;
      case 'r':
        memory_[bytes_.number<uint32_t>()] = top();
        return;
      case 'h':
        return push(known(bytes_.number<uint8_t>()));
      case 'j':
        return push(known(bytes_.number<uint32_t>()));
      case 't': {
        Thing* tuple = make(Kind::kList);
        tuple->items = pop_marked();
        return push(tuple);
      }
      case 0x85:
      case 0x86:
      case 0x87:
        return push_tuple(code - size_t{0x84});
      case 'a': {
        Thing* item = pop();
        return add(top(), {item}, false);
      }
      case 'e': {
        const std::vector<Thing*> items = pop_marked();
        return add(top(), items, false);
      }
      case 's': {
        Thing *value = pop(), *key = pop();
        return add(top(), {key, value}, true);
      }
      case 'u': {
        const std::vector<Thing*> items = pop_marked();
        return add(top(), items, true);
      }
      case 'b': {  // attributes of an object; those of a dict are no entries of it
        const Thing* attributes = pop();
        if (top()->kind == Kind::kObject && attributes->kind == Kind::kDict) top()->items = attributes->items;
        return;
      }
      case 'Q':
        return push_storage(*pop());
      case 'R':
      case 0x81: {
        const Thing *arguments = pop(), *made = pop();
        return push(make_object(*made, *arguments));
      }
      default:
        TORCH_CHECK(false, kNoPickle);
    }
  }

  Thing* known(uint32_t index) const {
    const auto found = memory_.find(index);
    TORCH_CHECK(found != memory_.end(), kNoPickle);
    return found->second;
  }

  void push_long() {
    const auto size = bytes_.number<uint8_t>();
    TORCH_CHECK(size <= sizeof(int64_t), kNoPickle);
    uint64_t number = 0;
    for (int i = 0; i < size; ++i) number |= uint64_t{bytes_.number<uint8_t>()} << (8 * i);
    const int rest = 64 - 8 * size;
    push_number(size == 0 ? 0 : static_cast<int64_t>(number << rest) >> rest);
  }

  // ("storage", class, key, where it was, how many elements)
  void push_storage(const Thing& id) {
    TORCH_CHECK(id.kind == Kind::kList && id.items.size() >= 5 && id.items[1]->kind == Kind::kClass &&
                    id.items[2]->kind == Kind::kText,
                kNoPickle);
    push(make(Kind::kStorage));
    stack_.back()->text = id.items[2]->text;
    stack_.back()->type = type_of_storage(id.items[1]->text);
  }

  Thing* make_object(const Thing& made, const Thing& arguments) {
    TORCH_CHECK(made.kind == Kind::kClass && arguments.kind == Kind::kList, kNoPickle);
    const std::string& name = made.text;
    if (name == "torch._utils _rebuild_tensor_v2") return make_tensor(arguments.items);
    if (name == "torch._utils _rebuild_parameter" || name == "torch.jit._pickle restore_type_tag") {
      TORCH_CHECK(!arguments.items.empty(), kNoPickle);
      return arguments.items[0];
    }
    if (name == "collections OrderedDict") return make(Kind::kDict);
    return make(name.starts_with("__torch__") ? Kind::kObject : Kind::kOther);
  }

  static std::vector<int64_t> numbers(const Thing& list) {
    TORCH_CHECK(list.kind == Kind::kList, kNoPickle);
    std::vector<int64_t> result;
    for (const Thing* item : list.items) {
      TORCH_CHECK(item->kind == Kind::kNumber, kNoPickle);
      result.push_back(item->number);
    }
    return result;
  }

  // (storage, offset, sizes, strides, ...)
  Thing* make_tensor(const std::vector<Thing*>& given) {
    TORCH_CHECK(given.size() >= 4 && given[0]->kind == Kind::kStorage && given[1]->kind == Kind::kNumber,
                kNoPickle);
    const at::ScalarType type = given[0]->type;
    const std::vector<int64_t> sizes = numbers(*given[2]), strides = numbers(*given[3]);
    const int64_t offset = given[1]->number, element = static_cast<int64_t>(c10::elementSize(type));
    auto& storage = storages_[given[0]->text];
    if (!storage) storage = storage_(given[0]->text);
    check_inside(sizes, strides, offset, static_cast<int64_t>(storage.nbytes()) / element);
    Thing* thing = make(Kind::kTensor);
    thing->tensor = at::empty({0}, type);
    thing->tensor.set_(storage, offset, sizes, strides);
    return thing;
  }

  static void check_inside(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                           int64_t offset, int64_t elements) {
    bool inside = sizes.size() == strides.size() && sizes.size() <= 64 && offset >= 0 && offset <= elements;
    bool is_empty = false;
    int64_t last = offset;
    for (size_t i = 0; i < sizes.size() && inside; ++i) {
      is_empty |= sizes[i] == 0;
      int64_t reach = 0;
      inside = sizes[i] >= 0 && strides[i] >= 0 &&
               !__builtin_mul_overflow(std::max<int64_t>(sizes[i] - 1, 0), strides[i], &reach) &&
               !__builtin_add_overflow(last, reach, &last);
    }
    TORCH_CHECK(inside && (is_empty || last < elements), "a tensor ends behind its memory.");
  }

  ByteReader bytes_;
  const StorageByKey& storage_;
  // All that was made; nothing is freed before the end, so that cycles do no harm.
  std::deque<Thing> things_;
  std::vector<Thing*> stack_;
  std::unordered_map<uint32_t, Thing*> memory_;
  std::unordered_map<std::string, c10::Storage> storages_;
};

class Names {
 public:
  void add(const std::string& name, const Thing& thing, int depth) {
    constexpr int kDeepest = 32;
    constexpr size_t kMost = size_t{1} << 22;
    TORCH_CHECK(depth < kDeepest && ++seen_ < kMost, "its dicts lie too deep in each other.");
    if (thing.kind == Kind::kTensor) {
      tensors.emplace_back(name, thing.tensor);
    } else if (thing.kind == Kind::kDict || thing.kind == Kind::kObject) {
      for (size_t i = 0; i + 1 < thing.items.size(); i += 2) {
        const Thing& key = *thing.items[i];
        if (key.kind != Kind::kText && key.kind != Kind::kNumber) continue;
        const std::string own = key.kind == Kind::kText ? key.text : std::to_string(key.number);
        add(name.empty() ? own : name + "." + own, *thing.items[i + 1], depth + 1);
      }
    }
  }

  std::vector<std::pair<std::string, at::Tensor>> tensors;

 private:
  size_t seen_ = 0;
};

}  // namespace

std::vector<std::pair<std::string, at::Tensor>> pickled_tensors(std::string_view pickle,
                                                                const StorageByKey& storage) {
  PickleReader reader(pickle, storage);
  Names names;
  names.add("", *reader.read(), 0);
  TORCH_CHECK(!names.tensors.empty(), "it holds no tensors by name.");
  return std::move(names.tensors);
}

}  // namespace overdrive::replay
