"""How sure a result is: calibrated probabilities, sets that keep their promise, shift, and what attention says.

Nothing here knows a model: the functions take logits, labels and attention weights, and compute in float64, each row
alone, so that a row has the same bits in every batch. docs/uncertainty.md has the formulas and their sources.
"""

from .attention import entropy_limits as entropy_limits
from .attention import rollout as rollout
from .attention import shares as shares
from .conformal import SCORES as SCORES
from .conformal import aps_scores as aps_scores
from .conformal import check_coverage as check_coverage
from .conformal import class_thresholds as class_thresholds
from .conformal import lac_scores as lac_scores
from .conformal import threshold as threshold
from .measures import Bin as Bin
from .measures import Measures as Measures
from .measures import entropy as entropy
from .measures import margin as margin
from .measures import measure as measure
from .measures import measure_summary as measure_summary
from .measures import reliability as reliability
from .measures import summarise as summarise
from .probabilities import probabilities as probabilities
from .shift import MOST_COMPARED as MOST_COMPARED
from .shift import kolmogorov_smirnov as kolmogorov_smirnov
from .temperature import fit_scale as fit_scale
from .temperature import fit_scale_and_bias as fit_scale_and_bias
from .temperature import fit_temperature as fit_temperature
from .temperature import log_loss as log_loss
