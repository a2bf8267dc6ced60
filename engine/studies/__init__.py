"""Measure models for the command line and for `engine`: speed, quality by precision, calibration, and importance."""

from .compare import compare_precision as compare_precision
from .compare import parse_data as parse_data
from .compare_calibration import COVERAGE as COVERAGE
from .compare_calibration import compare_calibration as compare_calibration
from .labelled import LINES as LINES
from .labelled import RELEVANCES as RELEVANCES
from .labelled import label_numbers as label_numbers
from .labelled import parse_labelled as parse_labelled
