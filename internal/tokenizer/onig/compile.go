package onig

import (
	"fmt"
	"slices"
)

// The instructions of a compiled pattern. pc is the index of the instruction.
const (
	opSet    = iota // match one code point of set arg
	opSplit         // try pc+1, then arg
	opLazy          // try arg, then pc+1
	opJump          // go to arg
	opAssert        // check assertion arg
	opLook          // match the program from pc+1 to arg as a look-ahead, then go to arg
	opNotLook
	opBehind // the same from size code points before this position
	opNotBehind
	opAtomic
	opMatch
)

// instruction is one step of a compiled pattern.
type instruction struct {
	op, arg, size int32
	memo          int32 // the number of a branch outside of look-arounds and atomic groups, or -1
}

// Pattern is a compiled pattern. It never changes and is safe for concurrent use, with a Scratch per goroutine.
type Pattern struct {
	program []instruction
	sets    []runeSet
	memos   int32
	words   runeSet
	first   *runeSet // the code points that a match can begin with; nil when it may be empty
}

// Scratch is the memory of one matching. The zero value is ready; it serves one goroutine at a time.
type Scratch struct {
	stack  []state
	failed []uint64 // a bit for each position and branch, once memo is set
	steps  int
	memo   bool // failed branches are remembered
	bad    bool // the text took too many steps
}

// state is where matching goes on after a failure.
type state struct{ pc, pos int32 }

// maxInstructions bounds a compiled pattern.
const maxInstructions = 4000

// Compile compiles a pattern. A construct that it does not support is an error with its name and position.
func Compile(s string) (*Pattern, error) {
	n, err := parse(s)
	if err != nil {
		return nil, err
	}
	r := &Pattern{words: newRuneSet(named("word"))}
	if err := r.compile(n, true); err != nil {
		return nil, fmt.Errorf("pattern '%s', %w", s, err)
	}
	r.emit(opMatch, 0)
	if first, ok := firstOf(n); ok {
		set := newRuneSet(union(first))
		r.first = &set
	}
	return r, nil
}

// firstOf returns the code points that a match of n can begin with, and false when it may be empty.
func firstOf(n *node) (ranges, bool) {
	switch n.kind {
	case nodeSet:
		return n.set, true
	case nodeCat:
		for _, k := range n.kids {
			if k.kind == nodeLook || k.kind == nodeAssert {
				continue
			}
			if optional := k.kind == nodeRepeat && k.low == 0; !optional {
				set, ok := firstOf(k)
				if !ok {
					return nil, false
				}
				return prefixed(n.kids, k, set)
			}
		}
		return nil, false
	case nodeAlt:
		var all ranges
		for _, k := range n.kids {
			set, ok := firstOf(k)
			if !ok {
				return nil, false
			}
			all = append(all, set...)
		}
		return all, true
	case nodeRepeat:
		if n.low == 0 {
			return nil, false
		}
		return firstOf(n.kids[0])
	case nodeAtomic:
		return firstOf(n.kids[0])
	default:
		return nil, false
	}
}

// prefixed adds the code points that the optional parts before k can begin with.
func prefixed(kids []*node, k *node, set ranges) (ranges, bool) {
	out := append(ranges(nil), set...)
	for _, o := range kids {
		if o == k {
			break
		}
		if o.kind != nodeRepeat {
			continue
		}
		more, ok := firstOf(o.kids[0])
		if !ok {
			return nil, false
		}
		out = append(out, more...)
	}
	return out, true
}

func (r *Pattern) emit(op, arg int32) int32 {
	r.program = append(r.program, instruction{op: op, arg: arg, memo: -1})
	return int32(len(r.program) - 1)
}

// branch emits a split, numbered where it can be remembered.
func (r *Pattern) branch(lazy, outer bool) int32 {
	op := int32(opSplit)
	if lazy {
		op = opLazy
	}
	pc := r.emit(op, 0)
	if outer {
		r.program[pc].memo = r.memos
		r.memos++
	}
	return pc
}

func (r *Pattern) here() int32 { return int32(len(r.program)) }

// compile appends the program of n. outer is false inside look-arounds and atomic groups.
func (r *Pattern) compile(n *node, outer bool) error {
	if len(r.program) > maxInstructions {
		return fmt.Errorf("byte %d: expected at most %d instructions", n.at, maxInstructions)
	}
	switch n.kind {
	case nodeSet:
		r.sets = append(r.sets, newRuneSet(union(n.set)))
		r.emit(opSet, int32(len(r.sets)-1))
	case nodeAssert:
		r.emit(opAssert, int32(n.assert))
	case nodeCat:
		for _, k := range n.kids {
			if err := r.compile(k, outer); err != nil {
				return err
			}
		}
	case nodeAlt:
		return r.compileAlt(n, outer)
	case nodeRepeat:
		return r.compileRepeat(n, outer)
	case nodeLook, nodeAtomic:
		return r.compileInner(n)
	}
	return nil
}

func (r *Pattern) compileAlt(n *node, outer bool) error {
	var jumps []int32
	for i, k := range n.kids {
		if i == len(n.kids)-1 {
			if err := r.compile(k, outer); err != nil {
				return err
			}
			break
		}
		at := r.branch(false, outer)
		if err := r.compile(k, outer); err != nil {
			return err
		}
		jumps = append(jumps, r.emit(opJump, 0))
		r.program[at].arg = r.here()
	}
	for _, j := range jumps {
		r.program[j].arg = r.here()
	}
	return nil
}

func (r *Pattern) compileRepeat(n *node, outer bool) error {
	kid := n.kids[0]
	if n.high < 0 && canBeEmpty(kid) {
		return fmt.Errorf("byte %d: an unbounded repeat of a part that can be empty is not supported", n.at)
	}
	for range n.low {
		if err := r.compile(kid, outer); err != nil {
			return err
		}
	}
	if n.high < 0 {
		at := r.branch(n.lazy, outer)
		if err := r.compile(kid, outer); err != nil {
			return err
		}
		r.emit(opJump, at)
		r.program[at].arg = r.here()
		return nil
	}
	var branches []int32
	for range n.high - n.low {
		branches = append(branches, r.branch(n.lazy, outer))
		if err := r.compile(kid, outer); err != nil {
			return err
		}
	}
	for _, b := range branches {
		r.program[b].arg = r.here()
	}
	return nil
}

// compileInner compiles a look-around or an atomic group.
func (r *Pattern) compileInner(n *node) error {
	op, size := int32(opAtomic), 0
	if n.kind == nodeLook {
		op = opLook
		if n.behind {
			var ok bool
			if size, ok = fixedSize(n.kids[0]); !ok {
				return fmt.Errorf("byte %d: a look-behind of varying length is not supported", n.at)
			}
			op = opBehind
		}
		if n.negative {
			op++
		}
	}
	at := r.emit(op, 0)
	r.program[at].size = int32(size)
	if err := r.compile(n.kids[0], false); err != nil {
		return err
	}
	r.emit(opMatch, 0)
	r.program[at].arg = r.here()
	return nil
}

func canBeEmpty(n *node) bool {
	switch n.kind {
	case nodeSet:
		return false
	case nodeCat:
		for _, k := range n.kids {
			if !canBeEmpty(k) {
				return false
			}
		}
		return true
	case nodeAlt:
		return slices.ContainsFunc(n.kids, canBeEmpty)
	case nodeRepeat:
		return n.low == 0 || canBeEmpty(n.kids[0])
	case nodeAtomic:
		return canBeEmpty(n.kids[0])
	default:
		return true
	}
}

// fixedSize returns the length of n's matches in code points, and false where they differ.
func fixedSize(n *node) (int, bool) {
	switch n.kind {
	case nodeSet:
		return 1, true
	case nodeCat, nodeAtomic:
		sum := 0
		for _, k := range n.kids {
			size, ok := fixedSize(k)
			if !ok {
				return 0, false
			}
			sum += size
		}
		return sum, true
	case nodeAlt:
		size, ok := fixedSize(n.kids[0])
		for _, k := range n.kids[1:] {
			if other, same := fixedSize(k); !same || other != size {
				return 0, false
			}
		}
		return size, ok
	case nodeRepeat:
		size, ok := fixedSize(n.kids[0])
		return size * n.low, ok && n.low == n.high
	default:
		return 0, true
	}
}
