"""What a published client uses of TensorFlow: the preparation of images."""
