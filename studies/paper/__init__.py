"""The tables and figures of PnP-Nystra's paper, measured again."""
