"""Section 3.4's claims: hybrid and expert parallelism."""
