package exec

// TakeFree exports applyRuntimeRule to the tests.
var TakeFree = applyRuntimeRule
