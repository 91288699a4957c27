package forest

// The steps of rows and abreast are written out for the eight lanes on purpose. Local variables stay in registers, an array does not: with a
// loop over the lanes BenchmarkOverhead of the package fil takes 18% longer. lane repeats one for the other layout of prepared rows.

// lanes is the number of traversals that run side by side. A step of a traversal waits for two loads that depend on each other; the
// processor works on the others meanwhile.
const lanes = 8

// strip is the number of steps after which a traversal looks whether every lane is at a leaf. Trees are balanced or deeper than they
// are on average, so looking at each step costs more than the steps it saves.
const strip = 4

// after returns the node after n for a key: n.next for key <= n.threshold, else the one after it.
func (n *node) after(key int32) uint32 {
	return n.next + uint32(uint64(int64(n.threshold)-int64(key))>>63)
}

// rows follows one plain tree for the eight rows of a group and sets their leaves. x has the prepared rows, side by side.
//
// hot: no allocation.
func (f *Forest) rows(t *tree, x [][lanes]int32, at *[lanes]uint32) {
	nodes := f.nodes
	i0, i1, i2, i3, i4, i5, i6, i7 := t.root, t.root, t.root, t.root, t.root, t.root, t.root, t.root
	for depth := t.depth; depth > 0; depth -= strip {
		for range min(depth, strip) {
			n := &nodes[i0]
			i0 = n.after(x[n.slot][0])
			n = &nodes[i1]
			i1 = n.after(x[n.slot][1])
			n = &nodes[i2]
			i2 = n.after(x[n.slot][2])
			n = &nodes[i3]
			i3 = n.after(x[n.slot][3])
			n = &nodes[i4]
			i4 = n.after(x[n.slot][4])
			n = &nodes[i5]
			i5 = n.after(x[n.slot][5])
			n = &nodes[i6]
			i6 = n.after(x[n.slot][6])
			n = &nodes[i7]
			i7 = n.after(x[n.slot][7])
		}
		if depth > strip && f.done(i0, i1, i2, i3, i4, i5, i6, i7) {
			break
		}
	}
	at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7] = i0, i1, i2, i3, i4, i5, i6, i7
}

// abreast follows eight plain trees for one prepared row and sets its leaves in them.
//
// hot: no allocation.
func (f *Forest) abreast(t []tree, x []int32, at *[lanes]uint32) {
	nodes := f.nodes
	t = t[:lanes]
	i0, i1, i2, i3, i4, i5, i6, i7 := t[0].root, t[1].root, t[2].root, t[3].root, t[4].root, t[5].root, t[6].root, t[7].root
	depth := max(t[0].depth, t[1].depth, t[2].depth, t[3].depth, t[4].depth, t[5].depth, t[6].depth, t[7].depth)
	for ; depth > 0; depth -= strip {
		for range min(depth, strip) {
			n := &nodes[i0]
			i0 = n.after(x[n.slot])
			n = &nodes[i1]
			i1 = n.after(x[n.slot])
			n = &nodes[i2]
			i2 = n.after(x[n.slot])
			n = &nodes[i3]
			i3 = n.after(x[n.slot])
			n = &nodes[i4]
			i4 = n.after(x[n.slot])
			n = &nodes[i5]
			i5 = n.after(x[n.slot])
			n = &nodes[i6]
			i6 = n.after(x[n.slot])
			n = &nodes[i7]
			i7 = n.after(x[n.slot])
		}
		if depth > strip && f.done(i0, i1, i2, i3, i4, i5, i6, i7) {
			break
		}
	}
	at[0], at[1], at[2], at[3], at[4], at[5], at[6], at[7] = i0, i1, i2, i3, i4, i5, i6, i7
}

// done reports whether all nodes are leaves.
func (f *Forest) done(at ...uint32) bool {
	zero := uint32(len(f.columns))
	for _, i := range at {
		if f.nodes[i].slot != zero {
			return false
		}
	}
	return true
}

// one follows one tree, of any tests, for one prepared row and returns its leaf.
//
// hot: no allocation.
func (f *Forest) one(t *tree, x []int32) uint32 {
	at, zero := t.root, uint32(len(f.columns))
	for {
		switch n := &f.nodes[at]; {
		case n.slot < zero:
			at = n.after(x[n.slot])
		case n.slot == zero:
			return at
		default:
			s := &f.special[n.slot-zero-1]
			at = n.next + s.second(x[s.slot], f.sets)
		}
	}
}

// lane is one for a row of a group.
//
// hot: no allocation.
func (f *Forest) lane(t *tree, x [][lanes]int32, lane int) uint32 {
	at, zero := t.root, uint32(len(f.columns))
	for {
		switch n := &f.nodes[at]; {
		case n.slot < zero:
			at = n.after(x[n.slot][lane])
		case n.slot == zero:
			return at
		default:
			s := &f.special[n.slot-zero-1]
			at = n.next + s.second(x[s.slot][lane], f.sets)
		}
	}
}
