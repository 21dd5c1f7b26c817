"""The operator ``NystraWindowCovariance``."""
