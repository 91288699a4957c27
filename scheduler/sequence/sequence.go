package sequence

import (
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/scheduler"
)

// id is a correlation id, a number or a name.
type id struct {
	number uint64
	name   string
}

func idOf(s *infer.Sequence) id { return id{s.ID, s.Name} }

func (i id) none() bool { return i == id{} }

// String returns the id as a model with a STRING control gets it.
func (i id) String() string {
	if i.name != "" {
		return i.name
	}
	return strconv.FormatUint(i.number, 10)
}

// sequence is a sequence that is not over. It is in the backlog, ready (its next
// request may run), running or idle.
type sequence struct {
	id    id
	at    *slot              // nil in the backlog
	queue scheduler.TaskList // its requests, oldest first
	state stage
	// fresh: its first request has not run. ended: nothing can follow what is queued.
	fresh, ended bool
	key          uint64 // of the shapes of its next request

	priority uint64 // of its first request
	arrived  uint64 // its place among all sequences
	expires  int64  // when the backlog gives it up; 0 never
	place    int    // in the backlog

	idleSince  int64
	prev, next *sequence // in a chain
}

// stage is where a sequence is.
type stage uint8

const (
	backlogged stage = iota
	ready
	running
	idle
)

// before puts the sequences of the backlog in order: by priority, of which 1 is the
// highest and 0 is none, then as they came.
func (s *sequence) before(o *sequence) bool {
	if s.priority != o.priority {
		return s.priority-1 < o.priority-1 // 0 wraps around: the lowest
	}
	return s.arrived < o.arrived
}

func (s *sequence) put(i int)  { s.place = i }
func (s *sequence) index() int { return s.place }

// head returns the request that runs next.
func (s *sequence) head() *scheduler.Task {
	if s.at != nil && s.at.outer != nil {
		return s.at.outer // once more
	}
	return s.queue.Head
}

// chain is a list of sequences in order.
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

// slot is the place of one sequence on an instance.
type slot struct {
	lane   *lane
	number int
	place  int // among the free slots
	seq    *sequence

	// While the sequence is running, or to be run once more: the request, and whether it
	// has the START signal.
	outer        *scheduler.Task
	start, again bool

	work   scheduler.Task // of all the model's ports
	meta   infer.Meta     // of a request that runs several times
	states []tensor.Tensor
	// initial are the states of every sequence that starts, the ports'; borrowed.
	initial []tensor.Tensor
	viewer  bool // among the lane's viewers
	corrid  tensor.Tensor
	answer  []tensor.Tensor // memory for a decoupled model's answers
}

// before: the lowest slots are taken first, one on each instance.
func (s *slot) before(o *slot) bool {
	if s.number != o.number {
		return s.number < o.number
	}
	return s.lane.number < o.lane.number
}

func (s *slot) put(i int)  { s.place = i }
func (s *slot) index() int { return s.place }

// forget gives up what the slot knows of its sequence.
func (s *slot) forget() {
	tensor.ReleaseAll(s.states)
	s.corrid.Release()
}

// lane is an instance with its slots.
type lane struct {
	number int
	inst   backends.Instance
	door   scheduler.Lease // what the instance passes before a batch
	at     tensor.Place    // of the instance
	slots  []*slot
	ready  chain
	busy   bool
	// leaving is set once the instance is removed: it tells the owner when no sequence is
	// left. No other sequence comes.
	leaving func()
	// batch are the slots of the batch under way by row; nil is a row for nobody.
	batch []*slot

	viewers []*slot // those whose states are views of a batch's
	looked  int     // up to where they were looked at
	moves   []moving

	nulls []*scheduler.Task // rows for nobody, by row
	zeros []tensor.Tensor   // their inputs
}
