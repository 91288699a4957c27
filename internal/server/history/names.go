package history

// names numbers the models that frames have points of. A number is used again when no point has it.
type names struct {
	list    []name
	free    []uint32
	numbers map[string]uint32
}

// name is a model.
type name struct {
	name     string
	ensemble bool
	used     int // by points
}

func newNames() names { return names{numbers: map[string]uint32{}} }

// numberOf returns the number of a model, a new one if it has none.
func (n *names) numberOf(model string, ensemble bool) uint32 {
	if at, ok := n.numbers[model]; ok {
		n.list[at].ensemble = ensemble
		return at
	}
	at := uint32(len(n.list)) //nolint:gosec // names are fewer than points
	if k := len(n.free); k > 0 {
		at, n.free = n.free[k-1], n.free[:k-1]
	} else {
		n.list = append(n.list, name{})
	}
	n.list[at] = name{name: model, ensemble: ensemble}
	n.numbers[model] = at
	return at
}

// use adds d to the points of a number, which is free when none is left.
func (n *names) use(at uint32, d int) {
	x := &n.list[at]
	if x.used += d; x.used == 0 {
		delete(n.numbers, x.name)
		*x = name{}
		n.free = append(n.free, at)
	}
}
