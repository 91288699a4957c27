package sequence

import (
	stdheap "container/heap"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/queue"
)

// id is a correlation id, a number or a string.
type id struct {
	number uint64
	name   string
}

func idOf(s *infer.Sequence) id { return id{s.ID, s.Name} }

func (i id) none() bool { return i == id{} }

// String returns the id in the form of a STRING control input.
func (i id) String() string {
	if i.name != "" {
		return i.name
	}
	return strconv.FormatUint(i.number, 10)
}

// sequence is a live sequence. It is in the backlog, ready (its next request may execute), running or idle.
type sequence struct {
	id    id
	at    *slot              // nil in the backlog
	queue scheduler.TaskList // its requests, oldest first
	state stage
	// fresh reports that no request has executed yet; ended, that no request can follow the queued ones.
	fresh, ended bool
	key          uint64 // of the shapes of its next request

	priority  uint64 // of its first request
	arrived   uint64 // number of the sequence, in order of arrival
	expires   int64  // when it is dropped from the backlog; 0 for never
	heapIndex int    // in the backlog

	idleSince  int64
	prev, next *sequence // in a chain
}

// stage is the state of a sequence.
type stage uint8

const (
	backlogged stage = iota
	ready
	running
	idle
)

// before orders the backlog: by priority, where 1 is the highest and 0 stands for none, then by arrival.
func (s *sequence) before(o *sequence) bool {
	if s.priority != o.priority {
		return s.priority-1 < o.priority-1 // 0 wraps around: the lowest
	}
	return s.arrived < o.arrived
}

func (s *sequence) index() *int { return &s.heapIndex }

// head returns the request that executes next.
func (s *sequence) head() *scheduler.Task {
	if s.at != nil && s.at.outer != nil {
		return s.at.outer // executed once more
	}
	return s.queue.Head
}

// chain is a doubly linked list of sequences.
type chain struct {
	head, tail *sequence
	n          int
}

func (c *chain) push(s *sequence) {
	s.prev, s.next = c.tail, nil
	if c.tail == nil {
		c.head = s
	} else {
		c.tail.next = s
	}
	c.tail = s
	c.n++
}

func (c *chain) remove(s *sequence) {
	if s.prev == nil {
		c.head = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		c.tail = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	c.n--
}

// slot holds one sequence on an instance.
type slot struct {
	instance  *instance
	number    int
	heapIndex int // among the free slots
	seq       *sequence

	// The request that executes or is to be executed once more, and whether it has the START signal.
	outer        *scheduler.Task
	start, again bool

	task   scheduler.Task // with all ports of the model
	meta   infer.Meta     // of a request that executes several times
	states []tensor.Tensor
	// initial are the initial states of a sequence; borrowed from ports.
	initial  []tensor.Tensor
	hasViews bool // listed in the instance's withViews
	corrid   tensor.Tensor
	outputs  []tensor.Tensor // scratch for a response of a decoupled model
}

// before orders free slots: the lowest number first, one on each instance.
func (s *slot) before(o *slot) bool {
	if s.number != o.number {
		return s.number < o.number
	}
	return s.instance.number < o.instance.number
}

func (s *slot) index() *int { return &s.heapIndex }

// forget releases the tensors of the slot's sequence.
func (s *slot) forget() {
	tensor.ReleaseAll(s.states)
	s.corrid.Release()
}

// instance is a backends.Instance with its slots.
type instance struct {
	number int
	inst   backends.Instance
	// executor is inst, which tells the limiter how long a device took.
	executor backends.Instance
	lease    queue.Lease  // at the instance's limiter
	at       tensor.Place // of the instance
	slots    []*slot
	ready    chain
	busy     bool
	// leaving is set when the instance is removed, which gets no new sequence, and called when the last one has ended.
	leaving func()
	// batch are the slots of the executing batch by row; nil is a placeholder row.
	batch []*slot

	withViews []*slot // slots whose states are views of a batch's memory
	looked    int     // position of the next hasViews to check
	moves     []moving

	placeholders []*scheduler.Task // tasks of placeholder rows, by row
	zeros        []tensor.Tensor   // their inputs
}

// limited is an instance whose limiter is told how long a device took for a batch.
type limited struct {
	backends.Instance
	lease *queue.Lease
}

// Unwrap returns the instance itself.
func (g *limited) Unwrap() backends.Instance { return g.Instance }

// Took implements telemetry.Told.
func (g *limited) Took(ns int64) { g.lease.Took(ns) }

// item is an element of a heap: it has an order and stores its index.
type item[T any] interface {
	before(other T) bool
	index() *int
}

// heap is a binary heap. Its first element in order is at index 0.
type heap[T item[T]] struct{ list []T }

func (h *heap[T]) push(x T)   { stdheap.Push(h, x) }
func (h *heap[T]) remove(x T) { stdheap.Remove(h, *x.index()) }

func (h *heap[T]) pop() T {
	x := h.list[0]
	h.remove(x)
	return x
}

// The methods of container/heap.

func (h *heap[T]) Len() int           { return len(h.list) }
func (h *heap[T]) Less(i, j int) bool { return h.list[i].before(h.list[j]) }

func (h *heap[T]) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	*h.list[i].index(), *h.list[j].index() = i, j
}

func (h *heap[T]) Push(x any) {
	e := x.(T) //nolint:errcheck,forcetypeassert // push's
	*e.index() = len(h.list)
	h.list = append(h.list, e)
}

func (h *heap[T]) Pop() any {
	last := len(h.list) - 1
	x := h.list[last]
	*x.index() = -1
	clear(h.list[last:])
	h.list = h.list[:last]
	return x
}
