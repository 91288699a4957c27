package tritonlib

import (
	"context"
	"sync/atomic"
	"time"
	"unsafe"
)

// slot is a place in a range for a batch in flight. One execution uses it at a time.
type slot struct {
	of       *process
	index    int
	mem      []byte
	ready    chan struct{} // has a value when there may be events
	sleeping atomic.Bool   // the execution waits for ready
	timer    *time.Timer
	list     []uint64 // offsets of the events that were taken

	run execution
}

func newSlot(p *process, i int) *slot {
	at := atSlots + i*slotSize
	s := &slot{of: p, index: i, mem: p.Mem[at : at+slotSize : at+slotSize], ready: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	s.timer.Stop()
	return s
}

// acquire returns a slot that no execution uses, or nil when ctx is done before there is one.
func (p *process) acquire(ctx context.Context) *slot {
	select {
	case p.used <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	s := p.idle[n]
	p.idle = p.idle[:n]
	return s
}

// giveBack gives a slot back.
func (p *process) giveBack(s *slot) {
	p.mu.Lock()
	p.idle = append(p.idle, s)
	p.mu.Unlock()
	<-p.used
}

// request returns the words for the requests.
func (s *slot) request() words { return words{list: wordsOf(s.mem[slotRequest:])} }

// round returns the number of the execution.
func (s *slot) round() uint32 { return counter(s.mem, slotRound).Load() }

// start has an instance execute the batch in the slot. The instance's thread must not execute another one.
func (s *slot) start(instance int) {
	box := s.of.Mem[atMailbox+instance*mailboxSize:]
	counter(box, 4).Store(uint32(s.index)) //nolint:gosec // below mostSlots
	started, asleep := counter(box, 0), counter(box, 64)
	started.Add(1)
	if asleep.Load() != 0 {
		wake(started)
	}
}

const (
	// spinTime is how long an execution looks for events before it sleeps, as the thread of an instance looks for an execution. It is a time and
	// not a number of looks, of which processors differ in how many they make while a short execution takes.
	spinTime = 20 * time.Microsecond
	// looks is how often it looks before it reads the clock.
	looks = 256
)

// await waits until there is an event, the process has ended, or the time of watchEvery is over. It sleeps at once where patient is set. It
// reports whether it has slept.
//
// hot: no system call when the process is quick.
func (s *slot) await(patient bool) (slept bool) {
	events := first(s.mem)
	if !patient {
		for began := time.Now(); time.Since(began) < spinTime; {
			for range looks {
				if events.Load() != 0 {
					return false
				}
			}
		}
	}
	waiting := counter(s.mem, slotWaiting)
	s.sleeping.Store(true)
	waiting.Store(1)
	if events.Load() == 0 && s.of.Alive() {
		s.timer.Reset(watchEvery)
		select {
		case <-s.ready:
		case <-s.timer.C:
		}
		s.timer.Stop()
	}
	waiting.Store(0)
	s.sleeping.Store(false)
	return true
}

// signal wakes the execution if it waits.
func (s *slot) signal() {
	if !s.sleeping.Load() {
		return
	}
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// take returns the offsets of the events since the last call, oldest first. They are valid until the next call. An offset that is not one of a
// block ends the list and kills the process.
func (s *slot) take() []uint64 {
	s.list = s.list[:0]
	p := s.of
	for at := first(s.mem).Swap(0); at != 0; {
		e := p.event(at)
		if e == nil || len(s.list) > len(p.Mem)/blockHead {
			p.Kill("it wrote an event at an unusable position")
			break
		}
		s.list = append(s.list, at)
		at = e[0]
	}
	n := len(s.list)
	for i := range n / 2 {
		s.list[i], s.list[n-1-i] = s.list[n-1-i], s.list[i]
	}
	if n > 0 {
		before := counter(s.mem, slotPending).Add(-uint32(n)) + uint32(n) //nolint:gosec // modular
		taken := counter(s.mem, slotTaken)
		taken.Add(1)
		if before >= mostPending {
			wake(taken)
		}
	}
	return s.list
}

// usable reports whether a block of n bytes may be at an offset.
func (p *process) usable(at, n uint64) bool {
	return at%8 == 0 && at >= uint64(p.heap)+blockHead && at <= uint64(len(p.Mem)) && n <= uint64(len(p.Mem))-at //nolint:gosec // not negative
}

// event returns the words of an event, or nil for an unusable offset.
func (p *process) event(at uint64) []uint64 {
	if !p.usable(at, eventBody*8) {
		return nil
	}
	e := wordsOf(p.Mem[at:])
	if size := e[5]; !p.usable(at, eventBody*8) || size > uint64(len(e)-eventBody)*8 {
		return nil
	} else { //nolint:revive // size is read once: the process may change it
		return e[: eventBody+size/8 : eventBody+size/8]
	}
}

// free gives a block back to the process.
func (p *process) free(at uint64) {
	if !p.usable(at, 0) {
		return
	}
	next := (*uint64)(unsafe.Pointer(&p.Mem[at-blockHead+8]))
	for head := first(p.Mem); ; {
		after := head.Load()
		*next = after
		if head.CompareAndSwap(after, at) {
			return
		}
	}
}

// pump wakes executions that sleep when their slots have events. It ends with the process.
func (p *process) pump() {
	defer close(p.pumped)
	notify, asleep := counter(p.Mem, atNotify), counter(p.Mem, atAsleep)
	for {
		v := notify.Load()
		for _, s := range p.slots {
			if s.sleeping.Load() && (first(s.mem).Load() != 0 || p.exited.Load()) {
				s.signal()
			}
		}
		if p.exited.Load() {
			return
		}
		asleep.Store(1)
		if notify.Load() == v {
			sleep(notify, v)
		}
		asleep.Store(0)
	}
}
