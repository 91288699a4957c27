package proc

// Share is what Split does with CPUs.
var Share = share
