"""Section 3.2's claims: tensor parallelism."""
