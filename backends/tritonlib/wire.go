package tritonlib

import (
	"math"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// Offsets and sizes of a range, equal to those in host.h.
const (
	atNotify     = 64
	atAsleep     = 128
	atMailbox    = 4096
	mailboxSize  = 128
	mostInstance = 1024
	atSlots      = atMailbox + mailboxSize*mostInstance
	slotWaiting  = 64
	slotPending  = 68
	slotTaken    = 72
	slotRound    = 76
	slotRequest  = 128
	blockHead    = 64
	mostPending  = 512
)

// Sizes of slots. A range has as many as fit into an eighth of it.
const (
	slotSize  = 128 << 10
	mostSlots = 256
	leastSlot = 2
)

// Kinds of events.
const (
	eventExecuted = 1 + iota
	eventResponse
	eventReleased
	eventState
	eventActivity
	eventAbandoned
)

// eventBody is the number of words of an event before its own.
const eventBody = 6

// Flags of responses and releases, as in Triton's API.
const (
	flagFinal      = 1
	flagReschedule = 2
)

// Flags of requests: those of Triton's API, and flagTraced.
const (
	flagStart  = 1
	flagEnd    = 2
	flagTraced = 1 << 8
)

// Types of parameters in Triton's API.
const (
	paramString = iota
	paramInt
	paramBool
	paramDouble
	paramBytes
)

// maxRank bounds the dimensions of a tensor.
const maxRank = 64

// words reads or writes words one after another. Beyond the end it sets over, reads 0 and writes nothing.
//
// A request in a slot has the words: 0, later 1 when it is cancelled; flags; correlation id; timeout; the texts of the id and of the correlation id;
// the requested outputs: their number and positions; the inputs: their number, then for each its position, type, offset in the shared memory,
// length, rank and dimensions; the parameters: their number, then for each its key, type and value. A text has its length in bytes, then
// the bytes and at least one 0, up to a whole word.
//
// The body of a response has 0 or one more than the code of an error, its text, then the outputs: their number, then for each its name, type,
// block, length, rank and dimensions; then parameters. That of a state has one output, that of an activity its name, and that of the return of
// Execute the text of its error.
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

// count reads a number of things, each of which has a word at least.
func (w *words) count() int {
	n := w.next()
	if n > uint64(len(w.list)-w.at) {
		w.over = true
		return 0
	}
	return int(n) //nolint:gosec // a length
}

func (w *words) putText(s string) {
	n := len(s)/8 + 1
	if w.put(uint64(len(s))); n > len(w.list)-w.at {
		w.over = true
		return
	}
	w.list[w.at+n-1] = 0
	if len(s) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&w.list[w.at])), n*8), s)
	}
	w.at += n
}

func (w *words) text() string { return strings.Clone(w.view()) }

// view is text without a copy: it is valid until the event is freed, and changes if the process changes it.
func (w *words) view() string {
	size := w.next()
	n := size/8 + 1
	if n > uint64(len(w.list)-w.at) {
		w.over = true
		return ""
	}
	s := unsafe.String((*byte)(unsafe.Pointer(&w.list[w.at])), size)
	w.at += int(n) //nolint:gosec // within the list
	return s
}

// shape reads a rank and as many dimensions.
func (w *words) shape() tensor.Shape {
	rank := w.count()
	if rank > maxRank {
		w.over = true
		return tensor.Shape{}
	}
	var dims [maxRank]int64
	for i := range rank {
		dims[i] = int64(w.next()) //nolint:gosec // the same bits
	}
	return tensor.Of(dims[:rank]...)
}

func (w *words) putParams(list infer.Params) {
	w.put(uint64(len(list)))
	for i := range list {
		p := &list[i]
		w.putText(p.Key)
		switch p.Kind {
		case infer.ParamBool:
			w.put(paramBool)
			if p.Bool {
				w.put(1)
			} else {
				w.put(0)
			}
		case infer.ParamInt:
			w.put(paramInt)
			w.put(uint64(p.Int)) //nolint:gosec // the same bits
		case infer.ParamUint:
			w.put(paramInt)
			w.put(p.Uint)
		case infer.ParamDouble:
			w.put(paramDouble)
			w.put(math.Float64bits(p.Double))
		default:
			w.put(paramString)
			w.putText(p.String)
		}
	}
}

func (w *words) params() (list infer.Params) {
	for range w.count() {
		p := infer.Param{Key: w.text()}
		switch w.next() {
		case paramInt:
			p.Kind, p.Int = infer.ParamInt, int64(w.next()) //nolint:gosec // the same bits
		case paramBool:
			p.Kind, p.Bool = infer.ParamBool, w.next() != 0
		case paramDouble:
			p.Kind, p.Double = infer.ParamDouble, math.Float64frombits(w.next())
		default:
			p.Kind, p.String = infer.ParamString, w.text()
		}
		list = append(list, p)
	}
	return list
}

// output is an output of a response: a block of the range.
type output struct {
	name  string // a view
	dtype tensor.DType
	block uint64
	size  uint64
	shape tensor.Shape
}

func (w *words) output() (o output) {
	o.name, o.dtype = w.view(), tensor.DType(min(w.next(), math.MaxUint8)) //nolint:gosec // bounded
	o.block, o.size, o.shape = w.next(), w.next(), w.shape()
	return o
}

// codeOf returns the code of an error from one more than that of Triton's API.
func codeOf(v uint64) status.Code {
	if v == 0 || v > uint64(status.Cancelled)+1 {
		return status.Unknown
	}
	return status.Code(v - 1) //nolint:gosec // bounded
}

// counter returns the counter at an offset of memory.
func counter(mem []byte, at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&mem[at])) }

// first returns the offset at the start of memory: of the first block that is freed in a range, of the last event in a slot.
func first(mem []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&mem[0])) }

func wordsOf(mem []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(mem))), len(mem)/8)
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

// slotsOf returns how many slots a range has.
func slotsOf(size int) int { return max(leastSlot, min(mostSlots, size/8/slotSize)) }

// watchEvery is how often a waiting execution looks whether its requests are cancelled.
const watchEvery = 10 * time.Millisecond

// giveUpAfter is how long a process may hold requests that are all cancelled.
const giveUpAfter = 30 * time.Second
