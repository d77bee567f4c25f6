"""HTTP: one route, its documentation, its log."""
