"""What controllers tell a broker: requests, gates, hosted replicas, the metadata cache. Pure but for `journal`."""
