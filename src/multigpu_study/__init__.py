"""The study of five documents of 2018, which adds claims, tables and experiments to `multigpu`."""
