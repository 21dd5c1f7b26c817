"""Studies: training, tables of papers and measurements. Not part of the package ``nystra``."""

from importlib import import_module

# Before an engine is imported; some engines have environments without nystra.
import_module("core")
