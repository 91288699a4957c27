package onig

import (
	"errors"
	"unicode/utf8"
)

// ErrSlow is the error for a text on which a pattern takes too many steps.
var ErrSlow = errors.New("the text takes the tokenizer's pattern too many steps")

// Steps that a text may take before failed branches are remembered, and at most.
const (
	freeSteps, freeStepsPerByte = 1 << 12, 64
	maxSteps, maxStepsPerByte   = 1 << 20, 1 << 12
)

// Matches appends the start and the end of each match in b, from left to right, to dst. b must be valid UTF-8. It returns ErrSlow
// when the text takes more steps than a multiple of its length; dst then has the matches up to there.
func (r *Pattern) Matches(s *Scratch, b []byte, dst [][2]int32) ([][2]int32, error) {
	s.steps, s.memo, s.bad = 0, false, false
	from, last := int32(0), int32(-1)
	for int(from) <= len(b) {
		start, end := r.find(s, b, from)
		if start < 0 {
			break
		}
		if start == last && end == last { // an empty match right after a match does not count
			if int(from) >= len(b) {
				break
			}
			from = start + widthAt(b, start)
			continue
		}
		dst = append(dst, [2]int32{start, end})
		from, last = end, end
	}
	if s.bad {
		return dst, ErrSlow
	}
	return dst, nil
}

// widthAt returns the length of the code point at a position in bytes, 1 at the end.
func widthAt(b []byte, at int32) int32 {
	if int(at) >= len(b) {
		return 1
	}
	_, n := decodeRune(b[at:])
	return n
}

// find returns the first match from a position on, with a negative start when there is none.
func (r *Pattern) find(s *Scratch, b []byte, from int32) (start, end int32) {
	for at := from; int(at) <= len(b); at += widthAt(b, at) {
		if r.first != nil {
			if int(at) == len(b) {
				return -1, -1
			}
			if c, _ := decodeRune(b[at:]); !r.first.Has(c) {
				continue
			}
		}
		if end := r.run(s, b, 0, at); end >= 0 {
			r.forget(s, end)
			return at, end
		}
		if s.bad {
			break
		}
	}
	return -1, -1
}

// forget drops the failed branches of the position where the next match begins, since those there may not have failed.
func (r *Pattern) forget(s *Scratch, pos int32) {
	if !s.memo {
		return
	}
	for m := range int64(r.memos) {
		bit := int64(pos)*int64(r.memos) + m
		s.failed[bit>>6] &^= 1 << (bit & 63)
	}
}

// remember starts to remember failed branches.
func (r *Pattern) remember(s *Scratch, b []byte) {
	words := (int64(len(b)+1)*int64(r.memos) + 63) / 64
	if int64(cap(s.failed)) < words {
		s.failed = make([]uint64, words)
	}
	s.failed = s.failed[:words]
	clear(s.failed)
	s.memo = true
}

// run matches the program from pc on at a position. It returns the end of the match, negative for none.
func (r *Pattern) run(s *Scratch, b []byte, pc, pos int32) int32 {
	base := len(s.stack)
	for {
		s.steps++
		if !s.memo && s.steps > freeSteps+freeStepsPerByte*len(b) {
			r.remember(s, b)
		}
		if s.steps > maxSteps+maxStepsPerByte*len(b) {
			s.bad, s.stack = true, s.stack[:base]
			return -1
		}
		in := &r.program[pc]
		ok := true
		switch in.op {
		case opMatch:
			s.stack = s.stack[:base]
			return pos
		case opSet:
			ok = int(pos) < len(b)
			if ok {
				c, n := decodeRune(b[pos:])
				ok = r.sets[in.arg].Has(c)
				pos += n
			}
			pc++
		case opJump:
			pc = in.arg
		case opAssert:
			ok = r.assert(b, pos, in.arg)
			pc++
		case opSplit, opLazy:
			if ok = !r.tried(s, in.memo, pos); ok {
				next, other := pc+1, in.arg
				if in.op == opLazy {
					next, other = other, next
				}
				s.stack = append(s.stack, state{other, pos})
				pc = next
			}
		default:
			var end int32
			end, ok = r.inner(s, b, in, pc, pos)
			pc, pos = in.arg, end
		}
		if ok {
			continue
		}
		if len(s.stack) == base {
			return -1
		}
		top := s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		pc, pos = top.pc, top.pos
	}
}

// tried reports whether a branch was tried at this position before, and marks it.
func (r *Pattern) tried(s *Scratch, memo, pos int32) bool {
	if !s.memo || memo < 0 {
		return false
	}
	bit := int64(pos)*int64(r.memos) + int64(memo)
	was := s.failed[bit>>6]>>(bit&63)&1 != 0
	s.failed[bit>>6] |= 1 << (bit & 63)
	return was
}

// inner runs a look-around or an atomic group. It returns where matching goes on and whether it holds.
func (r *Pattern) inner(s *Scratch, b []byte, in *instruction, pc, pos int32) (int32, bool) {
	switch in.op {
	case opAtomic:
		end := r.run(s, b, pc+1, pos)
		return end, end >= 0
	case opLook, opNotLook:
		return pos, (r.run(s, b, pc+1, pos) >= 0) == (in.op == opLook)
	}
	start := pos
	for range in.size {
		_, n := utf8.DecodeLastRune(b[:start])
		if n == 0 {
			return pos, in.op == opNotBehind
		}
		start -= int32(n)
	}
	return pos, (r.run(s, b, pc+1, start) >= 0) == (in.op == opBehind)
}

func (r *Pattern) assert(b []byte, pos, kind int32) bool {
	end := int32(len(b))
	switch kind {
	case atLineStart:
		return pos == 0 || b[pos-1] == '\n'
	case atLineEnd:
		return pos == end || b[pos] == '\n'
	case atTextStart:
		return pos == 0
	case atTextEnd:
		return pos == end
	case atLastLine:
		return pos == end || pos == end-1 && b[pos] == '\n'
	}
	before, n := utf8.DecodeLastRune(b[:pos])
	left := n > 0 && r.words.Has(before)
	right := false
	if pos < end {
		after, _ := decodeRune(b[pos:])
		right = r.words.Has(after)
	}
	return (left != right) == (kind == atWordEdge)
}

// decodeRune is the first code point of b, which is valid UTF-8 and not empty.
func decodeRune(b []byte) (rune, int32) {
	if b[0] < utf8.RuneSelf {
		return rune(b[0]), 1
	}
	r, n := utf8.DecodeRune(b)
	return r, int32(n)
}
