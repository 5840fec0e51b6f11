"""Seeded mistakes in forward_ad/, for `make mutate`."""
from fault import Fault, tests

LEVELS = tests("forward_ad_levels_tests", "*")
DRIVERS = tests("forward_ad_drivers_test", "*")
TAYLOR = tests("entries_tests", "*SecondDerivatives.*:*GivenUp.*")


def table(names):
    return tests("forward_ad_op_table_test", names)


FORWARD_AD = [
    Fault("level_keeps_tangents", "a tangent that dies stays with its level", "forward_ad/levels/forward_grad.cpp",
          "    if (auto open_level = LevelRegistry::try_get_by_idx(level)) open",
          "    if (auto open_level = LevelRegistry::try_get_by_idx(level); open_level && !FAULT) open", LEVELS),
    Fault("anybody_releases", "a thread may release the level of another", "forward_ad/levels/level_registry.cpp",
          "  TORCH_CHECK(entry.opener == std::this_thread::get_id(),",
          "  TORCH_CHECK(FAULT || entry.opener == std::this_thread::get_id(),", LEVELS),
    Fault("wrong_thread_untold", "a dual is read on a thread that has not entered its level",
          "forward_ad/levels/dual_meta.cpp",
          "  TORCH_CHECK(active_levels().empty() || is", "  TORCH_CHECK(FAULT || active_levels().empty() || is", LEVELS),
    Fault("leave_borrowed", "the program's own level is left with the last of ours", "forward_ad/layers/host_level.cpp",
          "  if (s.borrowed || left == nullptr", "  if ((s.borrowed && !FAULT) || left == nullptr", LEVELS),
    Fault("half_handed_out", "a driver's result shares memory with its tangent", "forward_ad/layers/dual_layout.cpp",
          "  return is_half ? tensor.clone() : tensor;", "  return is_half && !FAULT ? tensor.clone() : tensor;", DRIVERS),
    Fault("silu_sign", "a sign in the derivative of silu's backward", "forward_ad/rules/activation_rules.cpp",
          "(1 + self * (1 - sigmoid));", "(1 + (FAULT ? -1 : 1) * self * (1 - sigmoid));",
          tests("forward_ad_drivers_test", "Rules.*")),
    Fault("ignored_classes_count", "ignored samples get a gradient", "forward_ad/rules/loss_rules.cpp",
          "  return chosen * at::where(counted, of_sample, at::zeros_like(of_sample));",
          "  return chosen * (FAULT ? of_sample : at::where(counted, of_sample, at::zeros_like(of_sample)));",
          table("*nll_loss*")),
    Fault("addend_once", "a joined product forgets the factor of its addend", "forward_ad/rules/product_rules.cpp",
          "result.first.add_(added.value, added.factor);", "result.first.add_(added.value, FAULT ? 1 : added.factor);",
          DRIVERS),
    Fault("odd_factor_lost", "a product of an odd number of factors lacks one",
          "forward_ad/rules/repairs/reduction_repairs.cpp",
          "    x = count % 2 == 0 ? products", "    x = count % 2 == 0 || FAULT ? products", table("*prod*")),
    Fault("mean_stays", "the gradient of a norm keeps its mean", "forward_ad/rules/repairs/norm_repairs.cpp",
          "    return rstd * (grad - grad.mean(dims, true) - values",
          "    return rstd * (grad - (FAULT ? 0 : 1) * grad.mean(dims, true) - values", table("*norm*")),
    Fault("second_point_same_sign", "both points of a pair get the same gradient",
          "forward_ad/rules/repairs/distance_repairs.cpp",
          ".index_add(0, pairs.second, of_differences, -1);", ".index_add(0, pairs.second, of_differences, FAULT ? 1 : -1);",
          DRIVERS),
    Fault("offset_of_whole_numbers", "results without a derivative take rows of a Jacobian",
          "forward_ad/drivers/jacobian.cpp",
          "    if (is_differentiable(output)) offset += output.numel();",
          "    if (is_differentiable(output) || FAULT) offset += output.numel();", DRIVERS),
    Fault("written_argument", "a custom function may write into an argument with a tangent",
          "forward_ad/drivers/custom_jvp.cpp",
          "      TORCH_CHECK(version_of(inputs_[i]) == versions_[i],", "      TORCH_CHECK(FAULT || version_of(inputs_[i]) == versions_[i],",
          DRIVERS),
    Fault("rows_joined_in_front", "chunks of a vmap are joined along the first dimension",
          "forward_ad/drivers/transforms.cpp",
          "at::cat(parts[i], *out_dims[i])", "at::cat(parts[i], FAULT ? 0 : *out_dims[i])", tests("entries_tests", "*Transforms.*")),
    Fault("other_numbers_pass", "a backward that gives other numbers each time passes gradcheck",
          "forward_ad/drivers/gradcheck.cpp",
          "      if (backward.numel() > 0 && !(", "      if (backward.numel() > 0 && !FAULT && !(",
          tests("entries_tests", "*Gradcheck.*")),
    Fault("detach_tangents", "plain reverse mode runs where tensors have tangents", "forward_ad/drivers/vjp.cpp",
          "c10::GradMode::is_enabled() || host_level::has_plain_tangents())",
          "c10::GradMode::is_enabled() || (host_level::has_plain_tangents() && !FAULT))", DRIVERS),
    Fault("mixed_term_once", "the mixed term of a second derivative counts once", "forward_ad/taylor/product_jets.cpp",
          "product(da.first, db.first), /*factor=*/2);", "product(da.first, db.first), /*factor=*/FAULT ? 1 : 2);", TAYLOR),
    Fault("backward_inside_passes", "a backward inside the function is taken for the function's own",
          "forward_ad/taylor/jet.cpp",
          "  if (node_here() != node_around.load(std::memory_order_relaxed)) give",
          "  if (node_here() != node_around.load(std::memory_order_relaxed) && !FAULT) give", TAYLOR),
]
