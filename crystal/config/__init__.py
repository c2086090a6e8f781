"""Settings, each resolved once; where files lie; which packages and prices there are."""
