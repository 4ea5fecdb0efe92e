"""What theory asks of a trained network: how curved the loss is where it came to rest."""
