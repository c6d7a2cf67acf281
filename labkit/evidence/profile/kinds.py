"""What a row of a trace is: computing, communicating, copying or waiting; told by its category and its name.

One table, tried from the top. Names are compared without regard to case: exporters differ in it. Kernel
names are those of NCCL since 2.7, RCCL and oneCCL, and of what communicates without them: NVSHMEM and DeepEP
(deepseek-ai/DeepEP), the all-reduces of vLLM, SGLang and TensorRT-LLM, PyTorch's symmetric memory.
"""

import re
from functools import cache

COMPUTE, COMMUNICATION, COPY, LAUNCH, OPERATOR, ANNOTATION, GPU_ANNOTATION, NEITHER = (
    "compute",
    "communication",
    "copy",
    "launch",
    "operator",
    "annotation",
    "gpu annotation",
    "neither",
)

# (category, name, what it is). Waiting rows (cuda_sync) carry a stream and are no kernels; annotations on a
# GPU's row lie over kernels that are counted by themselves. A SyncBatchNorm kernel computes.
_KINDS = (
    (r"gpu_user_annotation", r".*", GPU_ANNOTATION),
    (r"user_annotation", r".*", ANNOTATION),
    (r"cpu_op|operator", r".*", OPERATOR),
    (r".*runtime|.*driver", r".*(synchronize|streamwaitevent|eventquery)", NEITHER),
    (r".*runtime|.*driver", r".*", LAUNCH),
    (r".*", r"(stream|event|device|context) (wait|sync)", NEITHER),
    (r"gpu_memcpy|gpu_memset|memcpy|memset", r".*", COPY),
    (
        r"kernel",
        r"mem(cpy|set)|dma|hip(memcpy|memset|copy)|copy(host|device)to|__amd_rocclr_(copy|fill)",
        COPY,
    ),
    (r"kernel", r"triton_", COMPUTE),  # named after the operators that are fused, collectives among them
    (r"kernel", r".*(nccl|rccl|oneccl|hccl|mscclpp|msccl|nvshmem)", COMMUNICATION),
    (
        r"kernel",
        r".*(deep_ep::(intranode|internode|internode_ll)::|notify_(dispatch|combine))",
        COMMUNICATION,
    ),
    (
        r"kernel",
        r".*(cross_device_reduce|lamport|multimem_|oneshot|twoshot|one_shot|two_shot)",
        COMMUNICATION,
    ),
    (r"kernel", r".*(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all)", COMMUNICATION),
    (r"kernel", r".*", COMPUTE),
)
_TABLE = tuple((re.compile(category), re.compile(name), kind) for category, name, kind in _KINDS)


@cache
def _of_category(category: str) -> tuple:
    return tuple((name, kind) for which, name, kind in _TABLE if which.fullmatch(category))


def kind_of(category, name: str) -> str:
    """What a row is, by its category (``cat``) and name.

    >>> kind_of("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)")
    'communication'
    >>> kind_of("kernel", "batch_norm_sync_kernel"), kind_of("cuda_sync", "Stream Sync")
    ('compute', 'neither')
    """
    name = name.lower()
    category = category.lower() if isinstance(category, str) else ""
    for pattern, kind in _of_category(category):
        if pattern.match(name):
            return kind
    return NEITHER


# PyTorch's and NCCL's spellings of labkit's names, as parts of a name in lower case without "_".
_OPERATIONS = (
    (r"allreduce|crossdevicereduce|allreducing", "all_reduce"),
    (r"reducescatter", "reduce_scatter"),
    (r"allgather", "all_gather"),
    (r"alltoall|dispatch|combine", "all_to_all"),
    (r"broadcast", "broadcast"),
    (r"barrier", "barrier"),
    (r"scatter", "scatter"),
    (r"gather", "gather"),
    (r"sendrecv|send|recv", "send_recv"),
    (r"reduce(?!base)", "reduce"),
)


@cache
def operation_of(name: str) -> str:
    """labkit's name of the operation in a collective's or kernel's name; "" where it has none.

    >>> operation_of("_allgather_base"), operation_of("nccl:all_reduce"), operation_of("ncclKernel_Generic")
    ('all_gather', 'all_reduce', '')
    """
    plain = re.sub(r"[^a-z]", "", name.lower().split("(")[0])
    return next((operation for pattern, operation in _OPERATIONS if re.search(pattern, plain)), "")


# By which parallelism a process group exchanges, told by its name or description: Megatron-LM's
# (TENSOR_MODEL_PARALLEL_GROUP, DATA_PARALLEL_GROUP_WITH_CP, ...) and PyTorch's device meshes (mesh_tp,
# mesh_dp_shard_cp, ...). Data comes first: a group of data and context ranks reduces gradients.
_CAUSES = (
    (r"data|dp|ddp|fsdp|hsdp|replicate|shard", "dp"),
    (r"expert|ep|moe", "ep"),
    (r"pipe|pipeline|pp|embedding", "pp"),
    (r"context|cp|ulysses", "cp"),
    (r"tensor|tp|sequence|sp|model", "tp"),
)


@cache
def cause_of(group: str, operation: str) -> tuple[str, bool]:
    """The term of a StepTime that a collective belongs to, and whether its group's name says so.

    Where it does not, the operation decides: all_to_all is the exchange of experts, send and receive is that
    of a pipeline, and all else is data parallel.

    >>> cause_of("mesh_tp", "all_reduce"), cause_of("default_pg", "all_reduce")
    (('tp', True), ('dp', False))
    """
    words = set(re.split(r"[^a-z]+", group.lower()))
    for pattern, cause in _CAUSES:
        if any(re.fullmatch(pattern, word) for word in words):
            return cause, True
    return {"all_to_all": "ep", "send_recv": "pp"}.get(operation, "dp"), False


# Bytes of an element by PyTorch's name of its type (c10/core/ScalarType.h), in lower case.
_WIDTHS = {
    **dict.fromkeys(("byte", "char", "bool", "uint8", "int8", "signed char", "unsigned char"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz"), 1),
    **dict.fromkeys(("short", "half", "bfloat16", "c10::half", "c10::bfloat16", "float16"), 2),
    **dict.fromkeys(("int", "float", "int32", "float32", "complexhalf"), 4),
    **dict.fromkeys(("long", "double", "int64", "float64", "complexfloat", "long int"), 8),
    "complexdouble": 16,
}


def width_of(dtype) -> int | None:
    """Bytes of an element; None where its type is not known.

    >>> width_of("BFloat16"), width_of("Float8_e4m3fn"), width_of("Other")
    (2, 1, None)
    """
    return _WIDTHS.get(dtype.lower()) if isinstance(dtype, str) else None
