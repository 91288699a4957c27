package proc

// Share splits a list of CPUs as Split does.
var Share = share
