"""Several hosts: made on one machine as network namespaces, or real ones that run one command
each.
"""
