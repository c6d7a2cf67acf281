"""Three levers: send less (shrink), send under computation (hide), send on the fast link (confine).

Claim 1-h: every technique of chapters 3 and 4 as one computed row, before and after, on one workload and one
plan. Bytes and seconds per step. Coverage is hidden / all communication time. It rests on bounds, not on a
timeline (the chapters have those): a collective hides at most as long as the computation that may legally run
beside it, and the first or last piece never does.

Sources: gradient buckets Li et al. (2020, PyTorch DDP); tensor and sequence parallel, selective recompute
"Megatron-LM" (2019) and Korthikanti et al. (2022); stages and prefetch "ZeRO" (2020) and Zhao et al. (2023,
PyTorch FSDP, also for the hybrid of shards and replicas).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from labkit.collectives import bucket_count
from labkit.collectives.scaling import BACKWARD_SHARE
from labkit.errors import InputRefused
from labkit.planner.compute import compute_time
from labkit.planner.sharding import hybrid
from labkit.planner.traffic import BillRow, Workload, data_parallel, sharded, tensor_parallel
from labkit.spec import Cluster
from labkit.spec.checks import amount, noun, whole, without_arrays


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a row, per step: what is sent, for how long, how much of that is hidden, on which link.

    ``bytes_per_rank`` is what a rank sends, ``bytes_across`` how much of it leaves the fast-link domain (mean
    over ranks), ``coverage`` the hidden share of ``seconds``.
    """

    bytes_per_rank: float
    bytes_across: float
    collectives: float
    seconds: float
    coverage: float
    link: str

    @property
    def exposed(self):
        """Seconds that lengthen the step."""
        return self.seconds * (1 - self.coverage)


@dataclass(frozen=True, slots=True)
class Lever:
    """One technique; ``note`` says what is approximate, what it costs, or what it does not do."""

    technique: str
    section: str
    kind: str
    before: Side
    after: Side
    note: str = ""


def levers(work: Workload, cluster: Cluster, tp=8, dp=8, *, bucket=25e6) -> list[Lever]:
    """Every technique on one plan: tensor parallel ``tp`` inside a host, data parallel ``dp`` across hosts.

    Two rows look at the same tp x dp ranks without tensor parallel and say so. Compute is FLOPs / (peak x
    reached share), the same before and after: what a technique does to compute itself is in its note. Rows
    that pair micro-batches are left out when their number is odd. Refused: degrees not whole or below 1, tp
    beyond the domain, tp x dp ranks that do not fill whole domains, and a bucket of no bytes.
    """
    noun(work, Workload, "the work")
    noun(cluster, Cluster, "the cluster")
    without_arrays("a table of levers", work=work, cluster=cluster)
    tp, dp = whole(tp, "the tensor-parallel degree"), whole(dp, "the data-parallel degree")
    amount(bucket, "the size of a bucket, in bytes,", arrays=False)
    if tp * dp % cluster.domain:
        raise InputRefused(
            f"{tp} x {dp} ranks do not fill domains of {cluster.domain}; use a multiple of {cluster.domain}"
        )
    if tp > cluster.domain:
        raise InputRefused(
            f"tensor parallel {tp} does not fit a fast-link domain of {cluster.domain}; lower tp"
        )
    plan = _Plan(work, cluster, tp, dp, bucket)
    return [*plan.shrink(), *plan.hide(), *plan.confine()]


@dataclass(frozen=True, slots=True)
class _Plan:
    """The one plan all rows are computed on."""

    work: Workload
    cluster: Cluster
    tp: int
    dp: int
    bucket: float

    @property
    def rank(self) -> Workload:
        """The weights that one tensor-parallel rank holds, and reduces over its data-parallel group."""
        return replace(self.work, parameters=self.work.parameters / self.tp)

    @property
    def compute(self):
        """Seconds of compute per step on one rank."""
        return compute_time(self.work.flops, self.cluster.gpu, self.work.precision) / self.tp

    def side(self, rows: list[BillRow], hideable=0.0, pieces=1.0) -> Side:
        """Rows on their own links; at most ``hideable`` seconds hide, and one piece of ``pieces`` never."""
        seconds = sum(row.seconds(self.cluster) for row in rows)
        hidden = min(hideable, seconds * (1 - 1 / pieces))
        links = " + ".join(dict.fromkeys(row.link for row in rows))
        sent, across = sum(row.bytes_per_rank for row in rows), sum(row.bytes_across for row in rows)
        count = sum(row.count for row in rows)
        return Side(sent, across, count, seconds, hidden / seconds if seconds else 0.0, links)

    def beside(self, forward, backward):
        """Seconds of these that fit under the forward and the backward compute of a step."""
        under_backward = BACKWARD_SHARE * self.compute
        return min(forward, self.compute - under_backward) + min(backward, under_backward)

    def data(self, work: Workload | None = None, **options) -> list[BillRow]:
        place = {"stride": self.tp, "domain": self.cluster.domain, "bucket": self.bucket}
        return data_parallel(work or self.rank, self.dp, **{**place, **options})

    def tensor(self, work: Workload | None = None, stride=1, **options) -> list[BillRow]:
        return tensor_parallel(
            work or self.work, self.tp, stride=stride, domain=self.cluster.domain, **options
        )

    def stage(self, number, **options) -> list[BillRow]:
        return sharded(self.rank, self.dp, number, stride=self.tp, domain=self.cluster.domain, **options)

    def shrink(self) -> Iterator[Lever]:
        work, side = self.work, self.side
        data, tensor, stage3 = side(self.data()), side(self.tensor()), side(self.stage(3))
        fp32 = side(self.data(replace(self.rank, gradient_bytes_per_element=4.0)))
        each_time = side(self.data(deferred=False))
        yield Lever("accumulate, synchronise once", "3.1", "shrink", each_time, data)
        yield Lever(
            "gradients in bf16, not fp32", "3.1", "shrink", fp32, data, "rounds the sum of the gradients"
        )
        yield Lever(
            f"buckets of {2 * self.bucket / 1e6:g} MB, not {self.bucket / 1e6:g}",
            "3.1",
            "shrink",
            data,
            side(self.data(bucket=2 * self.bucket)),
            "same bytes in fewer collectives: shrinks latency only",
        )
        if work.micro_batches % 2 == 0:
            double = replace(work, micro_batch=2 * work.micro_batch, micro_batches=work.micro_batches // 2)
            yield Lever(
                "micro-batch twice as large, half as many",
                "3.2",
                "shrink",
                tensor,
                side(self.tensor(double)),
                "same bytes in half the collectives; needs twice the activation memory",
            )
        yield Lever(
            "sequence parallel",
            "3.2",
            "shrink",
            tensor,
            tensor,
            "shrinks activations, not traffic: same bytes with gathered inputs kept, 5/4 if gathered again",
        )
        yield Lever("stage 1 instead of stage 2", "4.1", "shrink", side(self.stage(2)), side(self.stage(1)))
        yield Lever("stage 1 instead of stage 3", "4.1", "shrink", stage3, side(self.stage(1)))
        yield Lever(
            "stage 3 keeping full gradients",
            "4.1",
            "shrink",
            stage3,
            side(self.stage(3, keep_gradients=True)),
            "costs the memory of the full gradients",
        )
        yield Lever(
            "selective instead of full recompute",
            "4.2",
            "shrink",
            side(self.tensor(per_layer=6)),
            tensor,
            "full recompute replays a layer's two forward all_reduces (its compute is not counted here)",
        )

    def hide(self) -> Iterator[Lever]:
        side, compute, work = self.side, self.compute, self.work
        last_backward = BACKWARD_SHARE * compute / work.micro_batches
        pieces = bucket_count(self.rank.gradient_bytes, self.bucket)
        yield Lever(
            "gradient buckets under the backward pass",
            "3.1",
            "hide",
            side(self.data()),
            side(self.data(), last_backward, pieces),
            "only the last micro-batch's backward is left to hide it, and the last bucket never hides",
        )
        tensor = self.tensor()
        # Backward, the all_reduce of a layer's input gradient runs beside the weight gradient of the same
        # product: 3 h^2 (query, key, value) and 4 h^2 (first MLP matrix) of a layer's 12 h^2. All weight
        # gradients together are one third of the layer's compute.
        calls = work.layers * work.micro_batches
        call = side(tensor).seconds / (4 * calls)
        beside = sum(min(call, compute / 3 / calls * share) for share in (3 / 12, 4 / 12)) * calls
        yield Lever(
            "input-gradient all_reduce beside the weight gradient",
            "4.3",
            "hide",
            side(tensor),
            side(tensor, beside, float("inf")),
            "backward only, layers of 12 h^2 parameters; forward the dependency forbids it",
        )
        if work.micro_batches % 2 == 0:
            half = side(tensor).seconds / 2
            # A pair of micro-batches has 2 x 4 equal all_reduces a layer. The last one of its forward and of
            # its backward pass have nothing left beside them: 2 of 8 x layers, one in 4 x layers.
            pieces = 4.0 * work.layers
            yield Lever(
                "two micro-batches in turn",
                "4.3",
                "hide",
                side(tensor),
                side(tensor, self.beside(half, half), pieces),
                "one communicates while the other computes; the last collective of each pass is exposed; two "
                "halves of one micro-batch do the same with twice the collectives",
            )
        stage3 = self.stage(3)
        gather, scatter = (row.seconds(self.cluster) for row in stage3)
        # A micro-batch has three equal collectives a layer: gather forward, gather and scatter backward. Its
        # first gather and last scatter have nothing beside them: 2 of 3 x layers, one in 1.5 x layers.
        pieces = 1.5 * work.layers
        yield Lever(
            "stage-3 prefetch one layer ahead",
            "4.1",
            "hide",
            side(stage3),
            side(stage3, self.beside(gather / 2, gather / 2 + scatter), pieces),
            "equal layers; of each micro-batch the first gather and the last scatter are exposed",
        )

    def confine(self) -> Iterator[Lever]:
        side, everyone, domain = self.side, self.tp * self.dp, self.cluster.domain
        yield Lever(
            "tensor parallel inside the host",
            "3.2",
            "confine",
            side(self.tensor(stride=self.dp)),
            side(self.tensor()),
            f"before: rank order data before tensor, so that tensor ranks sit {self.dp} apart",
        )
        # A hierarchical all_reduce: reduce_scatter and all_gather inside, which are the bytes of stage 1, and
        # an all_reduce of the shards across.
        yield Lever(
            "hierarchical all_reduce",
            "2.3",
            "confine",
            side(data_parallel(self.work, everyone, domain=domain)),
            side(hybrid(self.work, domain, everyone // domain, 1, domain=domain)),
            f"plain data parallel over all {everyone} ranks; same bytes in all; phases follow one another, "
            "so it may be slower than rings through all ports",
        )
        yield Lever(
            "stage 3 inside the host, replicas across",
            "4.1",
            "confine",
            side(sharded(self.work, everyone, 3, domain=domain)),
            side(hybrid(self.work, domain, everyone // domain, 3, domain=domain)),
            f"no tensor parallel, all {everyone} ranks; states divided by {domain}, not by {everyone}",
        )
