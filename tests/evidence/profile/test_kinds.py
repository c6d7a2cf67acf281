"""Which rows compute, communicate, copy or wait: names of all eras and of all libraries."""

import pytest

from labkit.evidence.profile.kinds import cause_of, kind_of, operation_of, width_of

# From shared/data/trace_format.md, sections 2 and 4.
COMMUNICATION = (
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ncclDevKernel_Generic(ncclDevComm*, unsigned long, ncclWork*)",
    "nccldevkernel_allreduce_sum_f32_ring_ll",
    "ncclDevKernel_Generic_1(ncclDevComm*)",
    "ncclDevFunc_AllReduce_RING_LL_Sum_double",
    "oneccl_reduce_base<float, 4>",
    "void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)",
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)",
    "void deep_ep::internode_ll::combine<true>(void*)",
    "nvshmemi_transfer_rma_p2p",
    "multimem_all_reduce_kernel<16>",
)


@pytest.mark.parametrize("name", COMMUNICATION)
@pytest.mark.parametrize("category", ["kernel", "Kernel"])
def test_collectives_of_every_era(name, category):
    assert kind_of(category, name) == kind_of(category, name.upper()) == "communication"


@pytest.mark.parametrize(
    ("category", "name", "kind"),
    [
        ("kernel", "batch_norm_collect_statistics_channels_last_kernel<SyncBatchNorm>", "compute"),
        ("kernel", "void at::native::reduce_kernel<512, 1>(ReduceOp)", "compute"),
        ("kernel", "triton_poi_fused_all_gather_into_tensor_add_0", "compute"),
        ("kernel", "Device Sync", "neither"),
        ("kernel", "Stream Wait Event", "neither"),
        ("cuda_sync", "Context Sync", "neither"),
        ("kernel", "hipMemcpyAsync", "copy"),
        ("kernel", "Memcpy DtoD (Device -> Device)", "copy"),
        ("gpu_memcpy", "Memcpy DtoD (Device -> Device)", "copy"),
        ("gpu_memset", "Memset (Device)", "copy"),
        ("kernel", "__amd_rocclr_fillBufferAligned.kd", "copy"),
        ("gpu_user_annotation", "nccl:all_reduce", "gpu annotation"),
        ("user_annotation", "nccl:all_reduce", "annotation"),
        ("cuda_runtime", "cudaLaunchKernel", "launch"),
        ("cuda_driver", "cuLaunchKernelEx", "launch"),
        ("cuda_runtime", "cudaStreamSynchronize", "neither"),
        ("ac2g", "ac2g", "neither"),
        (None, "anything", "neither"),
    ],
)
def test_other_rows(category, name, kind):
    assert kind_of(category, name) == kind


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("nccl:all_to_all", "all_to_all"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
        ("gather", "gather"),
        ("scatter", "scatter"),
        ("send", "send_recv"),
        ("recv", "send_recv"),
        ("barrier", "barrier"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)", "send_recv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("coalesced", ""),
    ],
)
def test_operations(name, operation):
    assert operation_of(name) == operation


@pytest.mark.parametrize(
    ("group", "cause"),
    [
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", "dp"),
        ("CONTEXT_PARALLEL_GROUP", "cp"),
        ("EXPERT_MODEL_PARALLEL_GROUP", "ep"),
        ("EXPERT_DATA_PARALLEL_GROUP", "dp"),
        ("mesh_tp", "tp"),
        ("mesh_dp_shard_cp", "dp"),
        ("mesh_pp", "pp"),
        ("1 mesh_ep", "ep"),
    ],
)
def test_groups_that_tell_their_parallelism(group, cause):
    assert cause_of(group, "all_reduce") == (cause, True)


def test_without_a_telling_name_the_operation_decides():
    found = [cause_of("0 default_pg", op) for op in ("all_reduce", "all_to_all", "send_recv", "all_gather")]
    assert found == [("dp", False), ("ep", False), ("pp", False), ("dp", False)]


def test_widths():
    assert [width_of(one) for one in ("Float", "BFloat16", "Long", "Bool", "Nonsense", None, 3)] == [
        *(4, 2, 8, 1),
        *(None, None, None),
    ]
