package exec

// TakeFree exports applyRuntimeRule to the tests.
var TakeFree = applyRuntimeRule

// SetInputBytes sets how much the input streams of an executor keep.
func SetInputBytes(x *Executor, n int64) {
	for _, b := range x.inner {
		b.inputs.most = n
	}
}

// InputBytes returns how much they keep.
func InputBytes(x *Executor) (n int64) {
	for _, b := range x.inner {
		n += b.inputs.held.Load()
	}
	return n
}
