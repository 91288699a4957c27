package exec

// TakeFree is takeFree.
var TakeFree = takeFree
