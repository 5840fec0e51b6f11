#include "engine/base/of_thread.h"
#include "replay/bind/probe_numbers.h"
#include "replay/direct/product.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace overdrive::replay {

namespace {

// Note [Shares of a product]
// A library of products may add in another order where a matrix has other sizes: blocks, loops for what is left
// over, and whole algorithms go by them. No manual says which. But the order is a function of sizes, leading
// dimensions, transpositions and alignment, never of the numbers. So columns are computed apart only where they
// have the bits of the whole product for numbers that show another order: of one magnitude, of very different
// ones, and NaNs, each of its own bits, of which a sum keeps the one that its first instruction met. All of it
// in memory that lies in lines of the cache as the program's does. What is refused stays whole.

constexpr uintptr_t kPage = 4096;
// Columns that the library computes together.
constexpr int64_t kColumns = 8;

// Memory of a range of the program's, at the same place in a page.
class Twin {
 public:
  explicit Twin(const AddressRange& range) : count_((range.end - range.begin) / sizeof(float)) {
    memory_.resize(count_ + kPage / sizeof(float));
    const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = memory_.data() + (range.begin - begin) % kPage / sizeof(float);
  }
  float* begin() const { return begin_; }
  void fill(ProbeNumbers kind, std::mt19937_64& random) {
    std::generate_n(begin_, count_, [&] { return probe_number(kind, random); });
  }
  std::vector<float> numbers() const { return {begin_, begin_ + count_}; }
  void set(const std::vector<float>& numbers) { std::copy(numbers.begin(), numbers.end(), begin_); }
  bool has_bits_of(const std::vector<float>& other) const {
    return std::memcmp(begin_, other.data(), count_ * sizeof(float)) == 0;
  }

 private:
  std::vector<float> memory_;
  float* begin_;
  size_t count_;
};

bool have_same_bits(Product product, const std::vector<int64_t>& bounds) {
  const Touched touched = product.touched();
  Twin a(touched.reads[0]), b(touched.reads[1]), c(touched.writes[0]);
  std::vector<Twin> start;
  if (product.start) start.emplace_back(touched.reads[2]);
  product.a = a.begin();
  product.b = b.begin();
  product.c = c.begin();
  if (product.start) product.start = start[0].begin();
  const auto same_for = [&](ProbeNumbers kind, std::mt19937_64& random) {
    for (Twin* twin : {&a, &b, &c}) twin->fill(kind, random);
    for (Twin& twin : start) twin.fill(kind, random);
    const std::vector<float> before = c.numbers();
    product();
    const std::vector<float> whole = c.numbers();
    c.set(before);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) product.columns(bounds[i], bounds[i + 1])();
    return c.has_bits_of(whole);
  };
  std::mt19937_64 random(7);
  for (const ProbeNumbers kind : kAllProbeNumbers) {
    for (int i = probe_rounds(kind, int64_t{product.m} * product.n); i-- > 0;) {
      if (!same_for(kind, random)) return false;
    }
  }
  return true;
}

// What decides the library's way through the product, and where it is cut.
using ProductForm = std::vector<int64_t>;

ProductForm product_form_of(const Product& product, const std::vector<int64_t>& bounds) {
  const auto place = [](const float* begin) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kPage);
  };
  uint32_t alpha, beta;
  std::memcpy(&alpha, &product.alpha, sizeof alpha);
  std::memcpy(&beta, &product.beta, sizeof beta);
  ProductForm form{
      product.transpose_a, product.transpose_b,  product.m, product.n, product.k,        product.lda,
      product.ldb,         product.ldc,          alpha,     beta,      place(product.a), place(product.b),
      place(product.c),    product.start ? 1 : 0};
  form.insert(form.end(), bounds.begin(), bounds.end());
  return form;
}

// A step has many products of the same form. Of a thread, so that no lock is held when the process forks.
struct KnownProducts {
  std::map<ProductForm, bool> known;
};
bool are_known_to_have_same_bits(const Product& product, const std::vector<int64_t>& bounds) {
  std::map<ProductForm, bool>& known = base::OfThread<KnownProducts>::get().known;
  const auto [form, is_new] = known.try_emplace(product_form_of(product, bounds), false);
  if (is_new) form->second = have_same_bits(product, bounds);
  return form->second;
}

struct ProductStep final : Step::State {
  explicit ProductStep(const Product& whole) : product(whole) {}
  static void run(Step::State& state) { static_cast<const ProductStep&>(state).product(); }

  std::vector<Share> shares(int count) const override {
    const std::vector<int64_t> bounds =
        share_bounds(product.n, product.n >= kColumns * count ? kColumns : 1, count);
    if (bounds.size() < 3 || at::get_num_threads() > 1 || !are_known_to_have_same_bits(product, bounds))
      return {};
    std::vector<Share> result;
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      const Product part = product.columns(bounds[i], bounds[i + 1]);
      result.push_back({step_of(part), part.touched()});
    }
    return result;
  }

  const Product product;
};

}  // namespace

Step product_step(const Product& product) {
  return Step(&ProductStep::run, std::make_unique<ProductStep>(product));
}

}  // namespace overdrive::replay
