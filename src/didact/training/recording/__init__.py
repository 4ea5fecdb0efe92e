"""What a run keeps besides weights: the model summary, decision surfaces, TensorBoard events."""
