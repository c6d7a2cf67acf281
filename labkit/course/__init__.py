"""What the course says and checks: the guide's claims, worked examples, and the source shown in notebooks."""

from labkit.course.claims import guide_claims
from labkit.course.listing import source
from labkit.course.terms import glossary

__all__ = ["glossary", "guide_claims", "source"]
