"""Statistics on plain numbers: aggregates, intervals, ranks."""
