"""What a published model uses of JAX: a stand-in where it is not installed."""
