"""The commands `partition-controller` and `pctl`."""
