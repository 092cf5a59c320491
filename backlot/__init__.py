"""The backlot: the whole service in a box. It shares no code with callsheet, so no misreading passes both."""
