"""Where the bytes of weights are read from and written to: door, leases, snapshots, versions."""
