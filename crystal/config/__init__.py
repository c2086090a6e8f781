"""Settings, each resolved once; where files are; which packages and prices there are."""
