"""Several hosts: made on one machine as network namespaces, or real with a command each."""
