"""Several processes: the process group, synchronized batch norm, federated averaging."""
