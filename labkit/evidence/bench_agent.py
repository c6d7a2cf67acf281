"""torchrun as ``labkit bench`` starts it: what its ranks said stands alone, without its own traceback."""

import sys
from collections.abc import Sequence

FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs torchrun with these arguments: 0 when every rank is through, 1 when one failed or it was ended."""
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    try:
        run.main(list(sys.argv[1:] if argv is None else argv))
    except (ChildFailedError, SignalException):  # the rank that failed has said why
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
