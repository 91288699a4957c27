"""The folder of the parts."""
