"""A run spread over the machines of a Ray cluster: folders and videos."""
