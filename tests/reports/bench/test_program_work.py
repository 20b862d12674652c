"""Counting the work of compiled programs, against numbers known in advance."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from hmx.reports.bench.findings import step_work
from hmx.reports.bench.program_work import H100, ProgramWork, bound, count_work, heaviest, lightest

M, K, N = 24, 40, 56
PRODUCT = 2 * M * K * N
MOVED = 4 * (M * K + K * N + M * N)


def text(function: Callable[..., object], *shapes: tuple[int, ...]) -> str:
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.jit(function).lower(*arguments).compile().as_text() or ""


def test_matrix_product_counts_its_multiplications_and_its_arrays():
    work = count_work(text(jnp.dot, (M, K), (K, N)))
    assert work == ProgramWork(PRODUCT, MOVED, 1, 0)


def test_loop_counts_as_often_as_it_runs():
    def repeated(x: jax.Array, weights: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (x @ weights, None), x, None, length=7)[0]

    work = count_work(text(repeated, (K, K), (K, K)))
    assert 7 * 2 * K**3 <= work.operations <= 7.1 * 2 * K**3
    assert work.unknown_loops == 0


def test_loop_of_unknown_length_counts_once_and_is_reported():
    def repeated(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: x.sum() < 1e6, lambda x: x @ x, x)

    work = count_work(text(repeated, (K, K)))
    assert 2 * K**3 <= work.operations <= 2.2 * 2 * K**3
    assert work.unknown_loops == 1


def test_row_written_in_a_loop_does_not_count_as_the_whole_array():
    def rows(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (jnp.sin(x), x), x, None, length=500)[1]

    once, whole = 4 * 64, 4 * 64 * 500
    assert 500 * 2 * once <= count_work(text(rows, (64,))).bytes < 20 * whole


@pytest.mark.parametrize(("branch", "least", "most"), [(heaviest, 2 * K**3, 2.2 * K**3), (lightest, 0, K**2)])
def test_branch_of_a_condition_is_chosen(branch, least, most):
    def choose(flag: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(flag[0] > 0, lambda x: x @ x, lambda x: x, x)

    assert least <= count_work(text(choose, (1,), (K, K)), branch).operations <= most


def test_random_bits_are_one_kernel_and_not_the_loop_of_a_cpu():
    program = jax.jit(lambda seed: jax.random.bits(jax.random.key(seed), (4096,))).lower(0).compile().as_text() or ""
    assert 'known_trip_count":{"n":"5"}' in program, "this CPU no longer draws bits in a loop"
    assert count_work(program).kernels < 15


GPU = """HloModule jit_f, is_scheduled=true

%fused_computation (param_0: bf16[128,64], param_1: s32[]) -> bf16[1,64] {
  %param_0 = bf16[128,64]{1,0} parameter(0)
  %param_1 = s32[] parameter(1)
  %zero = s32[] constant(0)
  ROOT %slice = bf16[1,64]{1,0} dynamic-slice(%param_0, %param_1, %zero), dynamic_slice_sizes={1,64}
}

ENTRY %main (image: f32[8,10,10,4], kernel: f32[3,3,4,16], table: bf16[128,64], row: s32[]) -> (f32[], bf16[]) {
  %image = f32[8,10,10,4]{3,2,1,0} parameter(0)
  %kernel = f32[3,3,4,16]{3,2,1,0} parameter(1)
  %table = bf16[128,64]{1,0} parameter(2)
  %row = s32[] parameter(3)
  %convolved = f32[8,8,8,16]{3,2,1,0} convolution(%image, %kernel), window={size=3x3}, dim_labels=b01f_01io->b01f
  %read = bf16[1,64]{1,0} fusion(%table, %row), kind=kLoop, calls=%fused_computation
  ROOT %both = (f32[8,8,8,16]{3,2,1,0}, /*index=1*/bf16[1,64]{1,0}) tuple(%convolved, %read)
}
"""


def test_text_with_a_convolution_and_a_fusion_that_reads_one_row():
    outputs = 8 * 8 * 8 * 16
    convolution = ProgramWork(2 * outputs * 3 * 3 * 4, 4 * (8 * 10 * 10 * 4 + 3 * 3 * 4 * 16 + outputs), 1)
    row = ProgramWork(0, 2 * 64 + 4 + 2 * 64, 1)
    assert count_work(GPU) == convolution.plus(row)


def test_prediction_names_the_resource_that_runs_out_first():
    assert bound(ProgramWork(operations=67e12, bytes=1, kernels=1), H100) == ("operations", 1.0)
    assert bound(ProgramWork(operations=1, bytes=6.7e12, kernels=1), H100) == ("bytes", 2.0)
    assert bound(ProgramWork(operations=1, bytes=1, kernels=4e5), H100) == ("kernels", 1.0)


def test_work_of_an_environment_step_leaves_out_the_loop_over_steps():
    work = step_work(ProgramWork(operations=1000, bytes=500, kernels=40, unknown_loops=1), 10)
    assert work is not None
    assert (work.operations, work.bytes, work.kernels, work.unknown_loops) == (100, 50, 40, 0)
    assert work.h100_steps_per_sec == pytest.approx(10 / (40 / 4e5))
    assert step_work(ProgramWork(), 10) is None
