package exec

// TakeFree exports applyRuntimeRule to the tests.
var TakeFree = applyRuntimeRule

// Depths returns the depths of the steps by their names, those within fan-outs and streams too, and the numbers of their graphs.
func Depths(x *Executor) (depths map[string]int, graphs map[int64]bool) {
	depths, graphs = map[string]int{}, map[int64]bool{}
	var add func(x *Executor)
	add = func(x *Executor) {
		for i := range x.plan.Nodes {
			if x.targets[i] != nil {
				depths[x.plan.Nodes[i].Name] = x.forecast.paths[i].Depth
				graphs[x.forecast.paths[i].Graph] = true
			}
		}
		for _, f := range x.fanOuts {
			if f != nil {
				add(f.x)
			}
		}
		for _, b := range x.inner {
			add(b.x)
		}
	}
	add(x)
	return depths, graphs
}

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
