package exec

// TakeFree exports takeFree to the tests.
var TakeFree = takeFree
