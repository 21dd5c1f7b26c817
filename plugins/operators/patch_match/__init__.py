"""The operator ``NystraPatchMatch``."""
