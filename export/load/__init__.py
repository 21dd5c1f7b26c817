"""Loading of the network, its checkpoint and the images that an export is measured on."""
