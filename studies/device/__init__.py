"""The first hour on a GPU: what is packed without one, and what is run there in stages."""
