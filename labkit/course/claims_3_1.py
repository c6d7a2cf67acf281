"""Section 3.1's claims: data parallelism."""
