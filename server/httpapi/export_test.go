package httpapi

// LoadTLSAt is LoadTLS with a clock.
var LoadTLSAt = loadTLS
