"""The operator ``NystraWindowCluster``."""
