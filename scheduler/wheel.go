package scheduler

import "math/bits"

// wheel remembers when works are due to be looked at: a hierarchical timing wheel
// (Varghese and Lauck 1987), so that adding and removing one costs the same however
// many wait. A work is due at the end of its tick, never before its time.
type wheel struct {
	now   int64 // the tick up to which it has been advanced
	n     int
	slots [wheelLevels][wheelSlots]*Task
	used  [wheelLevels]uint64 // which slots hold works
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

// add has w come out when w.queued.at.due has passed.
func (h *wheel) add(w *Task, now int64) {
	if h.n == 0 {
		h.now = now >> tickBits
	}
	h.n++
	h.insert(w)
}

func (h *wheel) insert(w *Task) {
	tick := min(max(tickOf(w.queued.at.due), h.now+1), h.now+farthest)
	level := (bits.Len64(uint64(tick-h.now)) - 1) / wheelBits
	slot := tick >> (level * wheelBits) & (wheelSlots - 1)
	head := &h.slots[level][slot]
	w.queued.at.slot = int16(level*wheelSlots) + int16(slot)
	w.queued.at.before, w.queued.at.after = nil, *head
	if *head != nil {
		(*head).queued.at.before = w
	}
	*head = w
	h.used[level] |= 1 << slot
}

// remove forgets w, if it waits here.
func (h *wheel) remove(w *Task) {
	if w.queued.at.slot == nowhere {
		return
	}
	level, slot := w.queued.at.slot/wheelSlots, w.queued.at.slot%wheelSlots
	if w.queued.at.after != nil {
		w.queued.at.after.queued.at.before = w.queued.at.before
	}
	if w.queued.at.before != nil {
		w.queued.at.before.queued.at.after = w.queued.at.after
	} else if h.slots[level][slot] = w.queued.at.after; w.queued.at.after == nil {
		h.used[level] &^= 1 << slot
	}
	w.queued.at.before, w.queued.at.after, w.queued.at.slot = nil, nil, nowhere
	h.n--
}

// advance takes out the works that are due by now, as a chain linked by at.after.
func (h *wheel) advance(now int64) (due *Task) {
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
				w := chain
				chain = w.queued.at.after
				if tickOf(w.queued.at.due) > to {
					h.insert(w)
					continue
				}
				h.n--
				w.queued.at.slot, w.queued.at.before, w.queued.at.after = nowhere, nil, due
				due = w
			}
		}
	}
	return due
}

// next returns when to advance again, in ns; ok is false when nothing waits.
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
