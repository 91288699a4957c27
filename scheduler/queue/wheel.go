package queue

import "math/bits"

// wheel holds entries until they are due. It is a hierarchical timing wheel (Varghese and Lauck
// 1987): adding and removing an entry costs the same however many there are. An entry comes out at
// the end of its tick, never before it is due.
type wheel struct {
	now   int64 // the tick up to which it has been advanced
	n     int
	slots [wheelLevels][wheelSlots]*entry
	used  [wheelLevels]uint64 // which slots hold entries
}

const (
	wheelLevels = 6
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	// tickBits makes a tick about a millisecond; the last level spans two years.
	tickBits = 20
	farthest = 1<<(wheelBits*wheelLevels) - 1
	nowhere  = -1
)

// tickOf returns the tick at whose end ns has passed.
func tickOf(ns int64) int64 { return (ns-1)>>tickBits + 1 }

// add inserts e, which advance returns once e.due has passed.
func (h *wheel) add(e *entry, now int64) {
	if h.n == 0 {
		h.now = now >> tickBits
	}
	h.n++
	h.insert(e)
}

func (h *wheel) insert(e *entry) {
	tick := min(max(tickOf(e.due), h.now+1), h.now+farthest)
	level := (bits.Len64(uint64(tick-h.now)) - 1) / wheelBits
	slot := tick >> (level * wheelBits) & (wheelSlots - 1)
	head := &h.slots[level][slot]
	e.slot = int16(level*wheelSlots) + int16(slot)
	e.before, e.after = nil, *head
	if *head != nil {
		(*head).before = e
	}
	*head = e
	h.used[level] |= 1 << slot
}

// remove takes e out, if it is in the wheel.
func (h *wheel) remove(e *entry) {
	if e.slot == nowhere {
		return
	}
	level, slot := e.slot/wheelSlots, e.slot%wheelSlots
	if e.after != nil {
		e.after.before = e.before
	}
	if e.before != nil {
		e.before.after = e.after
	} else if h.slots[level][slot] = e.after; e.after == nil {
		h.used[level] &^= 1 << slot
	}
	e.before, e.after, e.slot = nil, nil, nowhere
	h.n--
}

// advance takes out the entries that are due by now, linked by after.
func (h *wheel) advance(now int64) (due *entry) {
	from, to := h.now, now>>tickBits
	if to <= from {
		return nil
	}
	h.now = to
	for level := range wheelLevels {
		shift := level * wheelBits
		first, last := from>>shift, to>>shift
		for p := max(first, last-wheelSlots) + 1; p <= last; p++ {
			slot := p & (wheelSlots - 1)
			chain := h.slots[level][slot]
			h.slots[level][slot] = nil
			h.used[level] &^= 1 << slot
			for chain != nil {
				e := chain
				chain = e.after
				if tickOf(e.due) > to {
					h.insert(e)
					continue
				}
				h.n--
				e.slot, e.before, e.after = nowhere, nil, due
				due = e
			}
		}
	}
	return due
}

// next returns when to advance again, in ns; ok is false when the wheel is empty.
func (h *wheel) next() (at int64, ok bool) {
	tick := int64(0)
	for level, used := range h.used {
		if used == 0 {
			continue
		}
		shift := level * wheelBits
		p := h.now>>shift + 1
		ahead := bits.TrailingZeros64(bits.RotateLeft64(used, -int(p&(wheelSlots-1))))
		if t := (p + int64(ahead)) << shift; !ok || t < tick {
			tick, ok = t, true
		}
	}
	return tick << tickBits, ok
}
