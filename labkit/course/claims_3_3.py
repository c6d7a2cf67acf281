"""Section 3.3's claims: pipeline parallelism."""
