"""Key terms, English and Chinese, one line each; the start page shows them."""

from labkit.course.table import Table, table

TERMS = (
    ("rank", "进程编号", "one process with one GPU; N of them work together"),
    ("collective communication", "集合通信", "an operation in which all ranks of a group take part"),
    ("Broadcast", "广播", "one rank's data to all"),
    ("Reduce", "规约", "the element-wise sum of all ranks' data on one rank"),
    ("AllReduce", "全规约", "the same sum on every rank"),
    ("ReduceScatter", "规约散射", "each rank keeps one shard of the sum"),
    ("AllGather", "全收集", "each rank's shard to every rank"),
    ("AllToAll", "全交换", "a different piece from every rank to every other"),
    ("Scatter / Gather", "散射 / 收集", "pieces from, or to, one rank"),
    ("Send/Recv", "点对点", "one message from one rank to another"),
    ("Barrier", "屏障", "nobody goes on before all have arrived"),
    ("alpha", "固定延迟 α", "what one message costs however small, in seconds, one way"),
    ("bandwidth B", "有效带宽", "bytes per second in one direction, as reached"),
    ("algbw", "算法带宽", "size / time"),
    ("busbw", "总线带宽", "algbw times the factor of the collective: comparable with a link's rate"),
    (
        "knee",
        "拐点",
        "the size at which latency and bandwidth cost the same; or the N where communication equals compute",
    ),
    ("ring / tree", "环 / 树", "two ways to run a collective: many small steps, or few large ones"),
    ("recursive doubling", "递归倍增", "exchange everything with ever more distant partners, log2 N steps"),
    (
        "halving-doubling",
        "减半倍增",
        "the same partners, but halves: log2 N steps each way and no byte too many",
    ),
    ("pairwise", "成对交换", "every rank exchanges its piece with one partner after another, N-1 steps"),
    (
        "double tree",
        "双二叉树",
        "two trees of half the data each: inner ranks of one are leaves of the other",
    ),
    ("segments", "分段", "pieces of a message that follow each other down a tree or chain"),
    ("hierarchical", "分层", "reduce inside each node, then across nodes, then spread inside"),
    ("in-switch reduction", "网内规约", "the switch adds the data itself (NVLS, SHARP)"),
    (
        "contention, taper",
        "争抢、收敛比",
        "several transfers on one link; what an oversubscribed network leaves",
    ),
    ("node, port (NIC)", "机器、网卡", "a host with its GPUs; where traffic leaves it"),
    ("data parallel (DP)", "数据并行", "same model, different samples; gradients are reduced"),
    ("tensor parallel (TP)", "张量并行", "one layer's matrices cut over ranks"),
    (
        "sequence parallel (SP)",
        "序列并行",
        "norm and dropout cut along the positions of a tensor-parallel group",
    ),
    ("context parallel (CP)", "上下文并行", "the positions cut everywhere, attention included"),
    ("pipeline parallel (PP)", "流水线并行", "layers cut into stages"),
    ("expert parallel (EP)", "专家并行", "experts of a mixture spread over ranks"),
    ("router, top-k", "路由", "picks the experts of each token"),
    (
        "capacity factor",
        "容量因子",
        "room of an expert, in multiples of the even share; what comes later is dropped",
    ),
    ("grouped-query attention", "分组查询注意力", "several heads share one key and value head"),
    ("micro-batch", "微批", "the unit that travels through a pipeline or is accumulated"),
    ("gradient bucket", "梯度桶", "gradients sent together in one collective"),
    ("gradient accumulation", "梯度累积", "several micro-batches, one synchronisation"),
    (
        "sharding, ZeRO stages 1-3",
        "分片（第一、二、三档）",
        "optimizer states, gradients, parameters kept in shards",
    ),
    ("weak / strong scaling", "弱扩展 / 强扩展", "batch per rank fixed / global batch fixed"),
    ("overlap, coverage", "重叠、通信覆盖率", "communication under computation; the hidden share of it"),
    ("bubble", "空泡（气泡）", "time in which a pipeline stage waits"),
    ("1F1B, GPipe", "一前一后、先全前向", "two orders of a pipeline: alternating, or all forwards first"),
    ("virtual stage, interleaving", "虚拟阶段、交错式调度", "a rank holds several thin stages, far apart"),
    ("zero bubble (ZB)", "零空泡", "the weight gradient split off and moved into the bubble"),
    ("recompute", "重计算", "drop activations forward, compute them again backward"),
    ("MFU", "算力利用率", "model FLOPs per second as a share of the dense peak"),
)


def glossary() -> Table:
    """The course's key terms."""
    return table(("English", "中文", "in this course"), TERMS)
