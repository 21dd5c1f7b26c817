"""The operator ``NystraWindowCosine``."""
