"""The service of the interface, from the client's side: wire types, transport and verdicts."""
