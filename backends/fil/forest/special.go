package forest

import "slices"

// special is a test that is not one comparison.
type special struct {
	kind kind
	// missingFirst sends NaN to the first child.
	missingFirst bool
	// truncate converts a category to an integer before the sign is looked at.
	truncate  bool
	slot      uint32
	threshold int32 // a key
	// from and words are a part of Forest.sets.
	from, words uint32
}

// kind is the kind of a special.
type kind uint8

// The kinds.
const (
	// bits is a bitset of categories.
	bits kind = iota
	// list is a sorted list of categories that are far apart.
	list
	// flipZero is x <= threshold, the other way round for x near 0.
	flipZero
	// equal is x == threshold.
	equal
)

// specialBit marks the slot of a special while the number of slots is not known. The other bits are its index.
const specialBit = 1 << 31

// special stores a special and returns its node. Its first child is the left one.
func (b *Builder) special(s special) node {
	b.f.special = append(b.f.special, s)
	return node{slot: specialBit | uint32(len(b.f.special)-1)}
}

// categories completes a special with its categories. A bitset takes memory for the largest category, so that categories far apart,
// which a hostile file may have, become a list.
func (b *Builder) categories(s special, all []uint32) special {
	f := b.f
	s.kind, s.from = bits, uint32(len(f.sets))
	if len(all) == 0 {
		return s
	}
	if most := slices.Max(all); int(most/32) > 4+2*len(all) {
		s.kind = list
		f.sets = append(f.sets, all...)
		slices.Sort(f.sets[s.from:])
	} else {
		f.sets = append(f.sets, make([]uint32, most/32+1)...)
		for _, c := range all {
			f.sets[s.from+c/32] |= 1 << (c % 32)
		}
	}
	s.words = uint32(len(f.sets)) - s.from
	return s
}

// mostCategory is the largest category that FP32 numbers tell from its neighbours. Greater values are in no set.
const mostCategory = 1 << 24

// second returns 0 when the value with a key continues at the first child, and else 1.
func (s *special) second(key int32, sets []uint32) uint32 {
	var first bool
	switch {
	case key == missing:
		first = s.missingFirst
	case s.kind == flipZero:
		first = (key <= s.threshold) != (key >= -nearZero && key <= nearZero)
	case s.kind == equal:
		first = key == s.threshold
	default:
		first = s.has(valueOf(key), sets[s.from:s.from+s.words])
	}
	if first {
		return 0
	}
	return 1
}

// has reports whether x is one of the categories.
func (s *special) has(x float32, set []uint32) bool {
	if x < 0 && !(s.truncate && x > -1) || x > mostCategory {
		return false
	}
	c := uint32(max(x, 0))
	if s.kind == list {
		_, ok := slices.BinarySearch(set, c)
		return ok
	}
	return int(c/32) < len(set) && set[c/32]>>(c%32)&1 != 0
}
