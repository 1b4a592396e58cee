"""What the paper says, as checks that can fail."""

from icml25cli.papers.quantize.scope_claims import SCOPE_CLAIMS
from icml25cli.papers.quantize.weight_claims import WEIGHT_CLAIMS

CLAIMS = (*WEIGHT_CLAIMS, *SCOPE_CLAIMS)
