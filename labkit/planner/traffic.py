"""The communication bill of one optimizer step: which collective, how large, how often, over which link.

Bytes per rank are what one rank **sends** (it receives as many at the same time). They are never formulas of
this file: each row asks ``labkit.collectives.busiest_bytes`` for the bytes of its collective and multiplies
by the count. Every number may be an array; rows broadcast.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from labkit.collectives import bucket_count, busiest_bytes, collective_cost
from labkit.collectives.place import check_count, check_ranks
from labkit.spec import Cluster, Link
from labkit.spec.checks import amount, noun, one_of, together, whole
from labkit.units import plain

# The algorithm a row is costed with: the bandwidth-optimal one, as libraries choose for large messages.
_ALGORITHM = {
    "all_reduce": "ring",
    "all_gather": "ring",
    "reduce_scatter": "ring",
    "all_to_all": "pairwise",
    "send_recv": "linear",
}


@dataclass(frozen=True, slots=True)
class Workload:
    """What one replica of a model does in one optimizer step, in the numbers that communication depends on.

    ``micro_batch`` samples at a time, ``micro_batches`` of them before the optimizer runs: the steps of
    gradient accumulation, which are also the pipeline's m. ``bytes_per_element`` is that of weights and
    activations; gradients have their own. ``precision`` is that of the matrix products, by its name in the
    GPU presets. Refused: any number that is not above 0.
    """

    parameters: float
    layers: int
    hidden: int
    sequence: int
    micro_batch: int = 1
    micro_batches: int = 1
    bytes_per_element: float = 2.0
    gradient_bytes_per_element: float = 2.0
    precision: str | None = None

    def __post_init__(self):
        for field in fields(self):
            if field.name != "precision":
                amount(getattr(self, field.name), f"{field.name} of a workload")
        if self.precision is not None:
            noun(self.precision, str, "precision of a workload")
        together("a workload", **{field.name: getattr(self, field.name) for field in fields(self)})

    @property
    def weight_bytes(self):
        """Bytes of all weights."""
        return self.parameters * self.bytes_per_element

    @property
    def gradient_bytes(self):
        """Bytes of all gradients."""
        return self.parameters * self.gradient_bytes_per_element

    @property
    def activation_bytes(self):
        """Bytes of one tensor (micro_batch, sequence, hidden): what tensor and pipeline parallel pass on.

        >>> Workload(13e9, 32, 5120, 2048, micro_batch=4).activation_bytes / 2**20
        80.0
        """
        return self.micro_batch * self.sequence * self.hidden * self.bytes_per_element

    @property
    def flops(self):
        """FLOPs of one step, forward and backward: 6 per parameter and token.

        "Scaling Laws for Neural Language Models" (2020), section 2.1. Attention scores and recompute are left
        out, as in that paper.
        """
        return 6 * self.parameters * self.micro_batch * self.micro_batches * self.sequence


@dataclass(frozen=True, slots=True)
class Seats:
    """Where a group of ``ranks`` sits: ``link`` is inside or across, ``members`` of it share a domain."""

    ranks: int
    link: str
    members: int


@dataclass(frozen=True, slots=True)
class BillRow:
    """One line of the bill: ``count`` collectives per step, of ``payload`` bytes (S) each, in a ``group``.

    ``bytes_per_rank`` is what one rank sends per step, ``link`` is ``inside`` or ``across`` the fast-link
    domain, and ``members`` how many of the group share one domain when it is across.
    """

    strategy: str
    collective: str
    payload: float
    count: float
    bytes_per_rank: float
    group: int
    link: str
    members: int

    @property
    def bytes_across(self):
        """Bytes per step that leave the domain, as the mean over the ranks that send.

        One in ``members`` of a ring's hops crosses; of an all_to_all (N - members)/(N - 1).
        """
        share = 1 / self.members
        if self.collective == "all_to_all":
            share = (self.group - self.members) / np.maximum(np.asarray(self.group) - 1, 1)
        return plain(np.where(np.asarray(self.link) == "across", self.bytes_per_rank * share, 0.0))

    def seconds_on(self, link: Link | Cluster):
        """Seconds of the whole row, one collective after another, on this link or cluster, nothing hidden."""
        together("the seconds of a row", row=self, link=link)
        ranks = 2 if self.collective == "send_recv" else self.group
        algorithm = _ALGORITHM[self.collective]
        return self.count * collective_cost(self.collective, algorithm, self.payload, ranks, link).seconds

    def seconds(self, cluster: Cluster):
        """Seconds of the row on as many hosts of a cluster as it takes, all other groups at work too."""
        noun(cluster, Cluster, "the cluster")
        inside = self.seconds_on(cluster.intra)
        if np.all(np.asarray(self.link) == "inside"):
            return inside
        crosses = np.asarray(self.link) == "across"
        # Of ranks that send to one other rank, just two meet at a boundary that is crossed. A group that is
        # inside has no say: where nothing is sent it may be larger than a domain.
        together = np.where(crosses, 1 if self.collective == "send_recv" else self.members, 1)
        hosts = -(-int(np.max(self.group)) // together) * cluster.domain // cluster.gpus_per_node
        across = self.seconds_on(replace(cluster, nodes=hosts).group(together))
        return plain(np.where(crosses, across, inside))


def share_of_ports(cluster: Cluster) -> Link:
    """The link one GPU has to other hosts while all GPUs of its host use theirs: ports x rate / GPUs.

    A group with one member per host gets it (``Cluster.group(1)``), as data parallel under tensor parallel.
    """
    noun(cluster, Cluster, "the cluster")
    return Link(cluster.inter.alpha, cluster.node_bandwidth / cluster.gpus_per_node)


def link_of(group, stride=1, domain=8):
    """``inside`` where ``group`` ranks, ``stride`` apart, fit one fast-link domain, else ``across``.

    Refused: any of the three not whole or below 1.

    >>> link_of(8), link_of(16), link_of(8, stride=8)
    ('inside', 'across', 'across')
    """
    together("a group", group=group, stride=stride, domain=domain)
    group = check_ranks(group)
    stride, domain = check_count(stride, "the stride of a group"), check_count(domain, "a fast-link domain")
    return plain(np.where(group * stride <= domain, "inside", "across"))


def seats(ranks, stride=1, domain=8) -> Seats:
    """Seats of a group of ``ranks``, ``stride`` apart, in fast-link domains of ``domain`` GPUs."""
    link = link_of(ranks, stride, domain)
    ranks, stride, domain = (
        whole(number, name, arrays=True)
        for number, name in ((ranks, "ranks of a group"), (stride, "stride of a group"), (domain, "a domain"))
    )
    return Seats(ranks, link, plain(np.maximum(1, np.asarray(domain) // np.asarray(stride))))


def bill_row(strategy, collective, payload, count, at: Seats) -> BillRow:
    """``count`` collectives of ``payload`` bytes each; bytes per rank are those of the busiest rank.

    A send_recv is one message to one other rank, however large the group.
    """
    noun(strategy, str, "the strategy of a bill")
    noun(at, Seats, "where a group sits")
    one_of(tuple(_ALGORITHM), collective, "the collective of a bill", arrays=False)
    together("a row", payload=payload, count=count, at=at)
    count = amount(count, "the number of collectives", zero=True)
    ranks = 2 if collective == "send_recv" else at.ranks
    sent = plain(count * np.asarray(busiest_bytes(collective, _ALGORITHM[collective], payload, ranks)))
    payload, count = plain(np.asarray(payload, float)), plain(count)
    return BillRow(strategy, collective, payload, count, sent, at.ranks, at.link, at.members)


def _seats(n, stride, domain) -> Seats:
    """The seats that a caller knows, or those of ``n`` ranks."""
    return n if isinstance(n, Seats) else seats(n, stride, domain)


def _check(work, **numbers) -> None:
    noun(work, Workload, "the work")
    together("a bill", work=work, **numbers)


def data_parallel(work: Workload, n, *, bucket=None, deferred=True, stride=1, domain=8) -> list[BillRow]:
    """The gradient all_reduce of plain data parallel over ``n`` ranks.

    ``n``: their number, ``stride`` apart; or the ``Seats`` of the group, here as in the rows below. Once per
    step, in ``bucket_count`` collectives of a ``bucket``; not ``deferred``, once per micro-batch.

    >>> data_parallel(Workload(13e9, 40, 5120, 2048, 1, 16), 8)[0].bytes_per_rank / 1e9
    45.5
    """
    _check(work, n=n, bucket=bucket, deferred=deferred, stride=stride, domain=domain)
    pieces = 1 if bucket is None else bucket_count(work.gradient_bytes, bucket)
    times = np.where(one_of((False, True), deferred, "deferred"), 1, work.micro_batches)
    at = _seats(n, stride, domain)
    return [bill_row("data parallel", "all_reduce", work.gradient_bytes / pieces, pieces * times, at)]


def tensor_parallel(work: Workload, n, *, per_layer=4, stride=1, domain=8) -> list[BillRow]:
    """The activation all_reduces of tensor parallel: 2 forward and 2 backward per layer and micro-batch.

    "Megatron-LM" (2019), section 3. Full recompute replays the forward ones: ``per_layer=6``. Sequence
    parallel cuts each into reduce_scatter + all_gather of the same bytes, and gathers two inputs a layer
    again backward unless they are kept whole: 5/4 of the bytes (Korthikanti et al. 2022, section 4.2.2).
    """
    _check(work, n=n, per_layer=per_layer, stride=stride, domain=domain)
    count = amount(per_layer, "all_reduces of a layer", zero=True) * work.layers * work.micro_batches
    at = _seats(n, stride, domain)
    return [bill_row("tensor parallel", "all_reduce", work.activation_bytes, count, at)]


def pipeline_stage(work: Workload, stages, *, stride=1, domain=8) -> list[BillRow]:
    """What an interior stage sends per micro-batch: an activation on, a gradient back (it receives as much).

    "Efficient Large-Scale Language Model Training on GPU Clusters" (2021), section 3.2. The link is that of
    the whole chain of stages: ``across`` as soon as one boundary crosses.
    """
    _check(work, stages=stages, stride=stride, domain=domain)
    at = replace(seats(stages, stride, domain), members=1)
    count = 2 * work.micro_batches
    return [bill_row("pipeline, interior stage", "send_recv", work.activation_bytes, count, at)]


def sharded(
    work: Workload, n, stage: int, *, keep_gradients=False, bucket=None, stride=1, domain=8
) -> list[BillRow]:
    """Sharded data parallel (ZeRO) stage 1, 2 or 3 over ``n`` ranks, with accumulation over m micro-batches.

    In units of S(N-1)/N per step: stage 1 sends 2 (gradients scattered once, weights gathered once), stage 2
    m + 1 (gradients scattered every micro-batch), stage 3 3m (weights gathered per layer forward and
    backward, gradients scattered), or 2m + 1 when full gradients are kept until the last micro-batch. "ZeRO"
    (2020), section 7, for m = 1. Stages 1 and 2 scatter in ``bucket_count`` collectives of a ``bucket``.

    >>> work = Workload(13e9, 40, 5120, 2048, 1, 16)
    >>> [sum(row.bytes_per_rank for row in sharded(work, 8, stage)) / 1e9 for stage in (1, 2, 3)]
    [45.5, 386.75, 1092.0]
    """
    _check(work, n=n, keep_gradients=keep_gradients, bucket=bucket, stride=stride, domain=domain)
    one_of((1, 2, 3), stage, "the sharding stage", arrays=False)
    kept = one_of((False, True), keep_gradients, "keep_gradients")
    name, m, layers = f"stage {stage}", np.asarray(work.micro_batches), work.layers
    weights, gradients = work.weight_bytes, work.gradient_bytes
    at = _seats(n, stride, domain)
    if stage < 3:
        pieces = 1 if bucket is None else bucket_count(gradients, bucket)
        return [
            bill_row(name, "reduce_scatter", gradients / pieces, pieces * (1 if stage == 1 else m), at),
            bill_row(name, "all_gather", weights, 1, at),
        ]
    scatters = layers * np.where(kept, 1, m)
    return [
        bill_row(name, "all_gather", weights / layers, 2 * layers * m, at),
        bill_row(name, "reduce_scatter", gradients / layers, scatters, at),
    ]


def expert_parallel(work: Workload, n, top_k=2, *, capacity=1.0, stride=1, domain=8) -> list[BillRow]:
    """The four all_to_alls of an expert layer per micro-batch: dispatch and combine, forward and backward.

    Payload ``capacity`` x top-k x one activation tensor. Every layer is taken as an expert layer, and the
    load as even. "GShard" (2020), section 3.
    """
    _check(work, n=n, top_k=top_k, capacity=capacity, stride=stride, domain=domain)
    share = amount(capacity, "the capacity factor") * amount(top_k, "the experts that a token visits")
    payload = share * work.activation_bytes
    count = 4 * work.layers * work.micro_batches
    return [bill_row("expert parallel", "all_to_all", payload, count, _seats(n, stride, domain))]


def bill(work: Workload, n=8, *, top_k=2, bucket=None, domain=8) -> list[BillRow]:
    """The whole bill, each strategy **alone** on ``n`` neighbouring ranks: claim 1-i.

    The rows are not to be added up: a plan that combines strategies cuts the weights and the layers that
    each of them sees.
    """
    rows = data_parallel(work, n, bucket=bucket, domain=domain)
    rows += tensor_parallel(work, n, domain=domain) + pipeline_stage(work, n, domain=domain)
    for stage in (1, 2, 3):
        rows += sharded(work, n, stage, domain=domain)
    return rows + expert_parallel(work, n, top_k, domain=domain)
