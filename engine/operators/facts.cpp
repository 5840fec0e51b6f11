#include "engine/operators/facts.h"

#include "engine/base/no_destructor.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace overdrive::engine {

namespace {

// Names of aten without the prefix; other operators with their namespace.
constexpr std::string_view kNeverThrow =
    // Arithmetic, element by element.
    "abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift "
    "bitwise_not bitwise_or bitwise_right_shift bitwise_xor __ilshift__ __irshift__ __lshift__ __rshift__ "
    "ceil clamp clamp_max clamp_min complex conj_physical _conj_physical copysign cos cosh deg2rad digamma eq "
    "erf erfc erfinv exp exp2 expm1 floor fmax fmin frac frexp gcd ge gt heaviside hypot i0 igamma igammac "
    "isin isinf isnan isneginf isposinf lcm ldexp le lerp lgamma log log10 log1p log2 logaddexp logaddexp2 "
    "logical_and logical_not logical_or logical_xor logit logit_backward lt masked_fill maximum minimum mul "
    "mvlgamma nan_to_num ne neg nextafter polar polygamma pow rad2deg reciprocal round rsqrt rsub sgn sigmoid "
    "sigmoid_backward sign signbit sin sinc sinh sqrt square sub tan tanh tanh_backward trunc where xlogy "
    "special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 special_entr "
    "special_erfcx special_i0e special_i1 special_i1e special_log_ndtr special_modified_bessel_i0 "
    "special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri "
    "special_spherical_bessel_j0 special_xlog1py special_zeta "
    // Activations and losses.
    "_add_relu celu elu elu_backward gelu gelu_backward glu glu_backward hardshrink hardshrink_backward "
    "hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward leaky_relu "
    "leaky_relu_backward log_sigmoid_backward log_sigmoid_forward mish mish_backward _prelu_kernel "
    "_prelu_kernel_backward relu rrelu_with_noise rrelu_with_noise_backward silu silu_backward softplus "
    "softplus_backward softshrink softshrink_backward threshold threshold_backward _softmax _safe_softmax "
    "_softmax_backward_data _log_softmax _log_softmax_backward_data softmax log_softmax _masked_softmax "
    "_masked_softmax_backward binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss "
    "huber_loss_backward mse_loss mse_loss_backward nll_loss_backward nll_loss2d_backward smooth_l1_loss "
    "smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward native_dropout "
    "native_dropout_backward _masked_scale embedding_dense_backward "
    // Reductions, scans and orders.
    "all amax amin aminmax any argmax argmin count_nonzero cummax cummin _cummax_helper _cummin_helper cumprod "
    "cumsum dist hash_tensor kthvalue linalg_vector_norm logcumsumexp _logcumsumexp logsumexp max mean median "
    "min mode nanmedian nansum norm native_norm prod renorm sort std std_mean sum topk trace var var_mean "
    "_is_all_true _is_any_true bucketize "
    // Products and convolutions.
    "addbmm addmm _addmm_activation addmv addr baddbmm bmm dot linear linear_backward linalg_cross "
    "linalg_matrix_exp matmul_backward mm mv vdot _trilinear _cdist_backward _cdist_forward _euclidean_dist "
    "_pdist_backward _pdist_forward block_diag _compute_linear_combination _convolution convolution "
    "convolution_backward convolution_overrideable convolution_backward_overrideable conv_depthwise3d conv_tbc "
    "mkldnn_convolution mkldnn_linear mkldnn_linear_backward mkldnn_rnn_layer mkldnn_rnn_layer_backward "
    "_nnpack_spatial_convolution _slow_conv2d_forward _slow_conv2d_backward slow_conv3d_forward "
    "slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d col2im im2col "
    "_fft_c2c _fft_c2r _fft_r2c _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward _transform_bias_rescale_qkv "
    // Norms, pools and grids.
    "native_batch_norm native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training _batch_norm_with_update _batch_norm_no_update batch_norm_backward "
    "_batch_norm_with_update_functional batch_norm_update_stats native_group_norm native_group_norm_backward "
    "native_layer_norm native_layer_norm_backward _weight_norm_interface _weight_norm_interface_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward "
    "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_avg_pool3d_backward "
    "adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward "
    "avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward max_pool2d_with_indices "
    "max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward "
    "affine_grid_generator grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d grid_sampler_3d_backward "
    "_grid_sampler_2d_cpu_fallback _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward "
    "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_nearest_exact1d "
    "_upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward "
    "_upsample_nearest_exact3d _upsample_nearest_exact3d_backward upsample_bicubic2d "
    "upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d "
    "upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d "
    "upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward upsample_trilinear3d "
    "upsample_trilinear3d_backward "
    // Views, copies and orders of elements.
    "alias alias_copy as_strided as_strided_copy as_strided_scatter cat _chunk_cat channel_shuffle clone _conj "
    "_conj_copy constant_pad_nd copy detach detach_copy diag_embed diagonal diagonal_backward diagonal_copy "
    "diagonal_scatter expand expand_copy fill flip lift lift_fresh lift_fresh_copy narrow_copy _neg_view "
    "_neg_view_copy permute permute_copy pixel_shuffle pixel_unshuffle repeat _reshape_alias "
    "_reshape_alias_copy _reshape_copy roll rot90 select select_backward select_copy select_scatter slice "
    "slice_backward slice_copy slice_inverse slice_scatter split split_copy split_with_sizes "
    "split_with_sizes_copy squeeze squeeze_copy stack _stack t t_copy _to_copy transpose transpose_copy tril "
    "triu unbind unbind_copy unfold unfold_backward unfold_copy unsafe_split unsafe_split_with_sizes "
    "_unsafe_view unsqueeze unsqueeze_copy view view_as_complex view_as_complex_copy view_as_real "
    "view_as_real_copy view_copy zero reflection_pad1d reflection_pad1d_backward reflection_pad2d "
    "reflection_pad2d_backward reflection_pad3d reflection_pad3d_backward replication_pad1d "
    "replication_pad1d_backward replication_pad2d replication_pad2d_backward replication_pad3d "
    "replication_pad3d_backward "
    // Factories and random numbers with parameters that are numbers.
    "arange bartlett_window blackman_window empty empty_like empty_permuted empty_strided eye fft_fftfreq "
    "fft_rfftfreq full full_like hamming_window hann_window kaiser_window linspace logspace new_empty "
    "new_empty_strided new_full new_ones new_zeros ones ones_like range scalar_tensor tril_indices "
    "triu_indices zeros zeros_like rand rand_like randint randint_like randn randn_like randperm bernoulli.p "
    "bernoulli_.float cauchy exponential geometric log_normal normal.float_float normal_ normal_functional "
    "random uniform "
    // Updates of optimizers.
    "_fused_adagrad _fused_adam _fused_adamw _fused_sgd overdrive::sgd_ overdrive::adam_ "
    "overdrive::fused_adam_ overdrive::adagrad_ overdrive::adamax_ overdrive::nadam_ overdrive::radam_";

constexpr std::string_view kThrowOnData =
    "_assert_async _assert_scalar _ctc_loss _embedding_bag _embedding_bag_forward_only "
    "_functional_assert_async "
    "_functional_assert_scalar _index_put_impl _linalg_check_errors _linalg_eigh _linalg_eigvals _linalg_svd "
    "_sample_dirichlet _standard_gamma _unsafe_index _unsafe_index_put _unsafe_masked_index "
    "_unsafe_masked_index_put_accumulate bernoulli bernoulli_ binary_cross_entropy bincount binomial cholesky "
    "cholesky_inverse cholesky_solve embedding embedding_renorm equal fractional_max_pool2d "
    "fractional_max_pool3d gather histc index index_add index_copy index_fill index_put index_reduce "
    "index_select linalg_cholesky_ex linalg_eig linalg_eigvals linalg_inv_ex linalg_lstsq "
    "linalg_solve_triangular masked_scatter max_unpool2d max_unpool3d multi_margin_loss "
    "multilabel_margin_loss_forward multinomial nll_loss_forward nll_loss2d_forward normal poisson put "
    "repeat_interleave scatter scatter_add scatter_reduce searchsorted segment_reduce take";

constexpr std::string_view kThrowOnIntegers = "div floor_divide fmod remainder";

constexpr std::string_view kMoveMemory =
    "set_ set resize_ resize resize_as_ resize_as _resize_output_ _resize_output set_data _lazy_clone "
    "resize_as_sparse_ resize_as_sparse";

constexpr std::string_view kInFiles =
    // Element by element: an iterator looks at sizes and types.
    "abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or "
    "bitwise_xor ceil clamp clamp_max clamp_min conj_physical _conj_physical copysign cos cosh deg2rad digamma "
    "div eq erf erfc erfinv exp exp2 expm1 floor floor_divide fmax fmin fmod frac ge gt heaviside hypot isinf "
    "isnan isneginf isposinf le lerp lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not "
    "logical_or logical_xor logit logit_backward lt masked_fill maximum minimum mul nan_to_num ne neg pow "
    "rad2deg reciprocal remainder round rsqrt rsub sgn sigmoid sigmoid_backward sign signbit sin sinc sinh "
    "sqrt "
    "square sub tan tanh tanh_backward trunc where xlogy "
    // Activations and losses.
    "celu elu elu_backward gelu gelu_backward hardshrink hardshrink_backward hardsigmoid hardsigmoid_backward "
    "hardswish hardswish_backward hardtanh hardtanh_backward leaky_relu leaky_relu_backward "
    "log_sigmoid_backward log_sigmoid_forward mish mish_backward relu silu silu_backward softplus "
    "softplus_backward softshrink softshrink_backward threshold threshold_backward _softmax _safe_softmax "
    "_softmax_backward_data _log_softmax _log_softmax_backward_data binary_cross_entropy "
    "binary_cross_entropy_backward binary_cross_entropy_with_logits huber_loss huber_loss_backward mse_loss "
    "_foreach_add _foreach_mul _foreach_norm mse_loss_backward nll_loss_forward nll_loss_backward "
    "smooth_l1_loss smooth_l1_loss_backward "
    "native_dropout native_dropout_backward embedding_dense_backward "
    // Reductions and products.
    "all amax amin any argmax argmin cumsum linalg_vector_norm logsumexp max mean min norm prod std std_mean "
    "sum var var_mean addmm addmv baddbmm bmm dot mm mv convolution convolution_backward mkldnn_rnn_layer "
    "mkldnn_rnn_layer_backward "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
    // Norms and pools.
    "native_batch_norm native_batch_norm_backward native_layer_norm native_layer_norm_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward avg_pool2d avg_pool2d_backward "
    "max_pool2d_with_indices max_pool2d_with_indices_backward "
    // Copies, indices and numbers.
    "_to_copy _unsafe_view cat clone constant_pad_nd copy embedding fill flip gather index index_add index_put "
    "_index_put_impl index_select repeat roll scatter scatter_add select_backward slice_backward stack tril "
    "triu zero arange full full_like ones ones_like scalar_tensor zeros zeros_like new_full new_ones new_zeros "
    "rand rand_like randn randn_like randint randint_like bernoulli cauchy exponential geometric log_normal "
    "normal random uniform multinomial _local_scalar_dense equal "
    "overdrive::sgd_ overdrive::adam_";

constexpr std::string_view kTakeAnyNumber =
    "add addcdiv addcmul clamp clamp_max clamp_min copy div.Scalar div.Tensor eq fill full full_like ge gt le "
    "lerp lt "
    "masked_fill mul ne new_full rsub scalar_tensor sub where _to_copy";

template <typename Action>
void for_each_name(std::string_view names, Action action) {
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find(' '));
    names.remove_prefix(std::min(name.size() + 1, names.size()));
    action(name);
  }
}

using Rows = std::unordered_map<std::string_view, Throws>;

const Rows& throwing_rows() {
  static base::NoDestructor<Rows> rows([] {
    Rows made;
    for_each_name(kNeverThrow, [&](std::string_view name) { made[name] = Throws::kNever; });
    for_each_name(kThrowOnIntegers, [&](std::string_view name) { made[name] = Throws::kOnIntegers; });
    for_each_name(kThrowOnData, [&](std::string_view name) { made[name] = Throws::kOnData; });
    return made;
  }());
  return *rows;
}

using Names = std::unordered_set<std::string_view>;

Names names_in(std::string_view text) {
  Names names;
  for_each_name(text, [&](std::string_view each) { names.insert(each); });
  return names;
}

const Names& in_files() {
  static base::NoDestructor<Names> names(names_in(kInFiles));
  return *names;
}
const Names& moving_memory() {
  static base::NoDestructor<Names> names(names_in(kMoveMemory));
  return *names;
}
const Names& taking_any_number() {
  static base::NoDestructor<Names> names(names_in(kTakeAnyNumber));
  return *names;
}

Throws throws_of(std::string_view name, std::string_view base) {
  const Rows& rows = throwing_rows();
  std::string_view plain = base.starts_with("_foreach_") ? base.substr(9) : base;
  if (plain.ends_with('_') && !plain.ends_with("__")) plain.remove_suffix(1);
  for (const std::string_view each : {name, base, plain}) {
    if (const auto row = rows.find(each); row != rows.end()) return row->second;
  }
  return Throws::kUnknown;
}

// By the overload where it decides: a division that rounds does not belong here.
bool takes_any_number(std::string_view name) {
  std::string plain(name.substr(0, name.find('.')));
  if (plain.ends_with('_') && !plain.ends_with("__")) plain.pop_back();
  const Names& names = taking_any_number();
  if (names.contains(plain)) return true;
  return names.contains(plain.append(name.substr(std::min(name.find('.'), name.size()))));
}

}  // namespace

OperatorFacts facts_of(std::string_view name) {
  if (name.starts_with("aten::")) name.remove_prefix(6);
  const std::string_view base = name.substr(0, name.find('.'));
  std::string_view plain = base;
  if (plain.ends_with('_') && !plain.ends_with("__")) plain.remove_suffix(1);
  return {.throws = throws_of(name, base),
          .moves_memory = moving_memory().contains(base),
          .in_files = in_files().contains(base) || in_files().contains(plain),
          .takes_any_number = takes_any_number(name)};
}

std::string listed_operators() {
  std::string all;
  for (const std::string_view names :
       {kNeverThrow, kThrowOnData, kThrowOnIntegers, kMoveMemory, kInFiles, kTakeAnyNumber}) {
    all.append(all.empty() ? "" : " ").append(names);
  }
  return all;
}

}  // namespace overdrive::engine
