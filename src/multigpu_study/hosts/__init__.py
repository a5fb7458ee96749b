"""All-reduces and steps between hosts made of network namespaces."""
