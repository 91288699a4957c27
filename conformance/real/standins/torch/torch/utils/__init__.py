"""Parts of their own."""
