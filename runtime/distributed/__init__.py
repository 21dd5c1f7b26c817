"""A run spread over the machines of a Ray cluster: folders, videos and one huge image."""
