package isolate

import (
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// The start of a child's range: four counters, each in a cache line of its own, then the words of a request and of a response.
const (
	controlSize = 1 << 20
	atStarted   = 0    // the number of the execution that the server has started
	atEnded     = 64   // the number of the last one that the child has ended
	atAsleep    = 128  // 1 while the child waits for atStarted
	atWaiting   = 192  // 1 while the server waits for atEnded
	atCancel    = 256  // the number of an execution that is cancelled
	atRequest   = 4096 // then the response, in the second half
	atResponse  = controlSize / 2

	// gone is atEnded of a process that has exited. No execution has this number.
	gone = ^uint32(0)
	// mostFreed is the number of outputs that a request frees.
	mostFreed = 4096
	// spins is how often a side looks at a counter before it sleeps: some microseconds.
	spins = 1500
)

// States of an output in a response.
const (
	outAbsent = iota
	outInRange
	outOfInput
)

// control is the memory through which a batch is passed.
//
// A request has the words: rows, number of freed outputs, their slots, then for each input 0 if it is absent, or its type plus one, offset,
// length, rank and dimensions. A response has 0 and for each output its state; after outInRange: slot, type, offset, length, rank,
// dimensions; after outOfInput: input, type, offset in it, length, rank, dimensions. Or it has 1 and an error: its code, delay and
// predicted finish, and the length of a text with it: lines with reason and step, then the error's own text.
type control struct{ mem []byte }

func (c control) counter(at int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&c.mem[at]))
}

func (c control) words(from, to int) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(&c.mem[from])), (to-from)/8)
}

func (c control) request() words  { return words{list: c.words(atRequest, atResponse)} }
func (c control) response() words { return words{list: c.words(atResponse, controlSize)} }

// words reads or writes words one after another. Beyond the end it sets over, reads 0 and writes nothing.
type words struct {
	list []uint64
	at   int
	over bool
}

func (w *words) put(v uint64) {
	if w.at >= len(w.list) {
		w.over = true
		return
	}
	w.list[w.at] = v
	w.at++
}

func (w *words) next() uint64 {
	if w.at >= len(w.list) {
		w.over = true
		return 0
	}
	w.at++
	return w.list[w.at-1]
}

func (w *words) putText(s string) {
	room := (len(w.list) - w.at - 1) * 8
	if room < 0 {
		w.over = true
		return
	}
	s = s[:min(len(s), room)]
	w.put(uint64(len(s)))
	if len(s) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&w.list[w.at])), room), s)
	}
}

func (w *words) text() string {
	n := w.next()
	if n > uint64(len(w.list)-w.at)*8 {
		w.over = true
		return ""
	}
	if n == 0 {
		return ""
	}
	return string(unsafe.Slice((*byte)(unsafe.Pointer(&w.list[w.at])), n))
}

// putError writes an error, after which nothing may follow.
func (w *words) putError(err error) {
	d := status.DetailsOf(err)
	if !d.Own {
		d.Reason = ""
	}
	w.put(uint64(status.CodeOf(err)))
	w.put(uint64(d.RetryAfter)) //nolint:gosec // not negative
	w.put(uint64(d.Finish))     //nolint:gosec // not negative
	w.putText(string(d.Reason) + "\n" + strings.ReplaceAll(d.Step, "\n", " ") + "\n" + status.Text(err))
}

// longest bounds the times of a child's errors.
const longest = uint64(24 * time.Hour)

// error reads what putError has written. A child is not trusted.
func (w *words) error() error {
	e := &status.Error{Code: status.Code(w.next())}      //nolint:gosec // any number has a meaning
	e.RetryAfter = time.Duration(min(w.next(), longest)) //nolint:gosec // less than a day
	e.Finish = time.Duration(min(w.next(), longest))     //nolint:gosec // less than a day
	reason, rest, _ := strings.Cut(w.text(), "\n")
	step, text, _ := strings.Cut(rest, "\n")
	e.Reason, e.Step, e.Msg = status.ParseReason(reason), strings.ToValidUTF8(step, "\uFFFD"), text
	return e
}

// maxRank bounds the dimensions that a child may send.
const maxRank = 64

// putTensor writes a tensor of which the words before say where it is.
func (w *words) putTensor(d tensor.DType, off, n int, s *tensor.Shape) {
	w.put(uint64(d))
	w.put(uint64(off)) //nolint:gosec // not negative
	w.put(uint64(n))   //nolint:gosec // not negative
	w.put(uint64(s.Rank()))
	for _, dim := range s.Dims() {
		w.put(uint64(dim)) //nolint:gosec // the same bits
	}
}

// tensor reads what putTensor has written. The lengths are as they were sent.
func (w *words) tensor() (d tensor.DType, off, n uint64, s tensor.Shape) {
	d, off, n = tensor.DType(w.next()), w.next(), w.next() //nolint:gosec // checked by users
	rank := w.next()
	if rank > maxRank {
		w.over = true
		return d, off, n, s
	}
	var dims [maxRank]int64
	for i := range rank {
		dims[i] = int64(w.next()) //nolint:gosec // the same bits
	}
	return d, off, n, tensor.Of(dims[:rank]...)
}

// Operations of futex(2) between processes.
const (
	futexWait = 0
	futexWake = 1
)

// sleep waits while the counter has a value. It may return early.
func sleep(c *atomic.Uint32, value uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(c)), futexWait, uintptr(value), 0, 0, 0)
}

// wake wakes all that sleep on a counter. It does not block.
func wake(c *atomic.Uint32) {
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(c)), futexWake, 1<<30, 0, 0, 0)
}

// await waits until the counter has another value than old, and returns it. asleep says to the other side that it must wake this one.
//
// hot: no system call when the other side is quick.
func await(c, asleep *atomic.Uint32, old uint32) uint32 {
	for range spins {
		if v := c.Load(); v != old {
			return v
		}
	}
	for {
		asleep.Store(1)
		if v := c.Load(); v != old {
			asleep.Store(0)
			return v
		}
		sleep(c, old)
	}
}

// announce sets a counter and wakes the other side if it sleeps.
func announce(c, asleep *atomic.Uint32, v uint32) {
	c.Store(v)
	if asleep.Load() != 0 {
		asleep.Store(0)
		wake(c)
	}
}

// errTooLarge refuses a batch whose description does not fit.
func errTooLarge(model string) error {
	return status.Errorf(status.Unsupported, "model '%s': the batch has more tensors or dimensions than isolation supports", model)
}
