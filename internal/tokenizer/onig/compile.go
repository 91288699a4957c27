// Package onig matches the regular expressions of tokenizer files as Oniguruma does, the engine of the reference
// library: alternatives and repeats by preference, look-arounds, atomic groups and Oniguruma's Unicode classes, without
// captures.
//
// For example, `\s+(?!\S)|\s+` finds " " and " " in "a  b": the first alternative leaves one space for the next word.
//
// Compile parses a pattern (parse.go, sets.go) into a program for a small machine (compile.go). Matches runs it by backtracking
// (match.go). After many steps it remembers the branches that failed, so that time stays linear in the length of the text. A
// construct that the package does not support, such as a back reference, is an error with its name and position. The classes are
// those of package charclass. Decision 019 says why this is not a library.
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
	if first, empty := firstOf(n); !empty {
		set := newRuneSet(union(first))
		r.first = &set
	}
	return r, nil
}

// firstOf returns the code points that a match of n can begin with, and whether it may be empty.
func firstOf(n *node) (set ranges, empty bool) {
	switch n.kind {
	case nodeSet:
		return n.set, false
	case nodeCat:
		for _, k := range n.kids {
			more, empty := firstOf(k)
			if set = slices.Concat(set, more); !empty {
				return set, false
			}
		}
		return set, true
	case nodeAlt:
		for _, k := range n.kids {
			more, none := firstOf(k)
			set, empty = slices.Concat(set, more), empty || none
		}
		return set, empty
	case nodeRepeat, nodeAtomic:
		set, empty = firstOf(n.kids[0])
		return set, empty || n.kind == nodeRepeat && n.low == 0
	default:
		return nil, true
	}
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
	last := len(n.kids) - 1
	for _, k := range n.kids[:last] {
		at := r.branch(false, outer)
		if err := r.compile(k, outer); err != nil {
			return err
		}
		jumps = append(jumps, r.emit(opJump, 0))
		r.program[at].arg = r.here()
	}
	err := r.compile(n.kids[last], outer)
	for _, j := range jumps {
		r.program[j].arg = r.here()
	}
	return err
}

func (r *Pattern) compileRepeat(n *node, outer bool) error {
	kid := n.kids[0]
	if least, _ := sizes(kid); n.high < 0 && least == 0 {
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
			var most int
			if size, most = sizes(n.kids[0]); size != most {
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

// sizes returns the least and the most code points of n's matches, where the most is varying unless it is the least.
func sizes(n *node) (least, most int) {
	const varying = 1 << 30
	switch n.kind {
	case nodeSet:
		return 1, 1
	case nodeCat, nodeAtomic:
		for _, k := range n.kids {
			low, high := sizes(k)
			least, most = least+low, most+high
		}
	case nodeAlt:
		least, most = sizes(n.kids[0])
		for _, k := range n.kids[1:] {
			low, high := sizes(k)
			least, most = min(least, low), max(most, high)
		}
	case nodeRepeat:
		least, most = sizes(n.kids[0])
		least, most = least*n.low, most*n.low
		if n.low != n.high {
			most = varying
		}
	}
	return least, most
}
