package exec

import (
	"slices"
	"strings"
	"sync"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
)

// begun is a stream that begins in the runs of an executor.
type begun struct {
	x *Executor
	// at is its position in inner.
	at int
	// waits are the nodes that wait for the tensors which it shares, each with the node that writes one.
	waits []waiting
	// feeds are the operations that its runs feed.
	feeds []feedOf
	// deeper reports that a decoupled step runs in it, or in a stream that is made of it.
	deeper bool
	// joined reports that it waits for other streams: it feeds a join.
	joined bool
	// joins is the operation that makes it of other streams, nil for none; windows the same for one that makes windows.
	joins, windows *plan.Node
	// ports has, per side of that operation, one of its ports.
	ports []int
	// inputs are the streams whose pieces are requests; nil where the operation makes no windows of the request's tensors.
	inputs *inputStreams
}

// waiting is a node that waits for a shared tensor. writer is -1 for a tensor of the request.
type waiting struct{ node, writer int32 }

// feedOf is one side of an operation that makes the stream at inner[to].
type feedOf struct{ to, side int }

// newSegments returns the executor of the first segment, with those of the others behind it.
func newSegments(s *Settings) *Executor {
	segments := s.Plan.Segments
	list := make([]*Executor, len(segments))
	for i := range segments {
		seg := &segments[i]
		targets := make([]scheduler.Scheduler, len(seg.Numbers))
		for n, number := range seg.Numbers {
			targets[n] = s.Targets[number]
		}
		d := segmentPosition{segment: seg, stream: int32(i), origin: seg.Operator} //nolint:gosec // as many as steps
		if seg.Operator == plan.None && seg.Parent >= 0 {
			d.origin = segments[seg.Parent].Numbers[seg.Producer]
		}
		if seg.Parent >= 0 {
			d.source = &s.Plan.Nodes[d.origin]
		}
		x := newExecutor(s, seg.Plan, targets, seg.Numbers, d)
		list[i] = x
	}
	for i, x := range list {
		x.begins, x.awaiting = slices.Repeat([]int32{-1}, len(x.plan.Nodes)), make([]int32, len(x.plan.Nodes))
		for _, inner := range list {
			if inner.segment.Parent == int32(i) { //nolint:gosec // as many as steps
				x.addInner(inner, list)
			}
		}
		for n := range x.results { // they depend on the streams
			x.results[n] = x.facets(int32(n)) //nolint:gosec // at most maxSteps
		}
	}
	for _, x := range slices.Backward(list) {
		x.lookDeeper()
	}
	list[0].whole = s.Plan
	return list[0]
}

// addInner adds a stream that begins in the runs of x.
func (x *Executor) addInner(inner *Executor, list []*Executor) {
	seg := inner.segment
	b := &begun{x: inner, at: len(x.inner)}
	x.inner = append(x.inner, b)
	if seg.Operator == plan.None {
		x.begins[seg.Producer] = int32(b.at) //nolint:gosec // few
	}
	for _, in := range seg.Shared {
		for _, n := range seg.Begin {
			b.waits = append(b.waits, waiting{n, in.Writer})
			x.awaiting[n]++
		}
	}
	if inner.source.Operation != nil && inner.source.Operation.StreamJoin != nil {
		b.joins = inner.source
	} else if inner.source.Operation != nil && inner.source.Operation.Window != nil {
		b.windows = inner.source
	}
	for side, from := range seg.Sides {
		for _, n := range list[from].plan.Nodes {
			if op := n.Operation; op != nil && op.Feed != nil && op.Feed.Stream == inner.stream {
				b.ports = append(b.ports, int(op.Feed.Ports[0]))
			}
		}
		if list[from] == x {
			if x.stream == 0 {
				b.inputs = newInputStreams()
			}
			continue
		}
		for _, other := range x.inner {
			if other.x == list[from] {
				other.feeds = append(other.feeds, feedOf{b.at, side})
				other.joined = other.joined || b.joins != nil
			}
		}
	}
}

// lookDeeper notes which streams have decoupled steps behind them.
func (x *Executor) lookDeeper() {
	for _, b := range slices.Backward(x.inner) {
		b.deeper = slices.ContainsFunc(b.x.inner, func(i *begun) bool { return i.x.segment.Operator == plan.None || i.deeper })
		for _, f := range b.feeds {
			b.deeper = b.deeper || x.inner[f.to].deeper
		}
	}
}

// streamState is a stream of a run.
type streamState struct {
	children
	count int32         // sub-runs that it has had
	room  chan struct{} // holds a token when another sub-run may have become possible
	// ticket is the place of the request in its input stream; zero without one.
	ticket ticket
	op     *operator // what makes it; nil where a decoupled step does
}

func newStreams(x *Executor) []streamState {
	list := make([]streamState, len(x.inner))
	for i, b := range x.inner {
		list[i].room = make(chan struct{}, 1)
		if b.joins != nil || b.windows != nil {
			list[i].op = newOperator(b)
		}
	}
	return list
}

// endStreams forgets the streams of a run that is over.
func (r *run) endStreams() {
	for i := range r.sub.streams {
		s := &r.sub.streams[i]
		s.count = 0
		if s.op != nil {
			s.op.reset()
		}
		select {
		case <-s.room:
		default:
		}
	}
}

// operator is the state of an operation that makes a stream of others. Feeds put items into it from several goroutines. One of them at a
// time takes out what is complete, in order.
type operator struct {
	mu     sync.Mutex
	busy   bool   // a goroutine takes items out
	ended  bool   // nothing follows
	sides  []side // per stream that is read
	window windows
}

// side are the items of one of the streams that an operation reads.
type side struct {
	early map[int32][]tensor.Tensor // by position in the stream: items that wait for those before
	next  int32                     // the position that follows
	end   int32                     // how many there are, -1 while that is not known
	ready [][]tensor.Tensor         // items without a partner, in order
	last  []tensor.Tensor           // of a join with the latest item
}

func newOperator(b *begun) *operator {
	o := &operator{sides: make([]side, len(b.ports))}
	for i := range o.sides {
		o.sides[i] = side{early: map[int32][]tensor.Tensor{}, end: -1}
	}
	return o
}

// reset releases what is left, for the next run.
func (o *operator) reset() {
	for i := range o.sides {
		s := &o.sides[i]
		for _, item := range s.early {
			tensor.ReleaseAll(item)
		}
		clear(s.early)
		for _, item := range s.ready {
			tensor.ReleaseAll(item)
		}
		tensor.ReleaseAll(s.last)
		*s = side{early: s.early, end: -1}
	}
	o.window.reset()
	o.busy, o.ended = false, false
}

// waits returns how many items of a side wait for those of others.
func (o *operator) waits(of int) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.sides[of].early) + len(o.sides[of].ready)
}

// over reports whether no item of a side follows.
func (s *side) over() bool { return s.end >= 0 && s.next >= s.end && len(s.ready) == 0 }

// feed brings the tensors of node n to the operation that reads them.
func (r *run) feed(n, after int32, loop *scheduler.RunLoop) (staged int32) {
	node := &r.x.plan.Nodes[n]
	f := node.Operation.Feed
	owner, position := r, int32(0)
	if !f.Whole {
		owner, position = r.sub.parent, r.sub.position
	}
	at := owner.x.innerOf(f.Stream)
	item := make([]tensor.Tensor, len(owner.x.inner[at].x.source.In))
	if err := r.feedTensors(node, item); err != nil {
		tensor.ReleaseAll(item)
		r.fail(n, err)
		return 0
	}
	if owner.sub.streams[at].ticket.of != nil {
		owner.feedPiece(at, item, loop)
		return 0
	}
	o := owner.sub.streams[at].op
	o.mu.Lock()
	o.sides[f.Side].early[position] = item
	if f.Whole {
		o.sides[f.Side].end = 1
	}
	o.mu.Unlock()
	owner.advance(at, after, loop)
	return 0
}

// feedTensors moves the inputs of a feed to their ports in item. Windows are made on the host.
func (r *run) feedTensors(node *plan.Node, item []tensor.Tensor) error {
	for i, port := range node.Operation.Feed.Ports {
		t := &item[port]
		if err := r.operand(node, i, t); err != nil {
			return err
		}
		if node.Operation.Window == nil || !t.Present() {
			continue
		}
		if err := r.toHost(t, node.Signature.Inputs[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// innerOf returns the position in inner of a stream of the plan.
func (x *Executor) innerOf(stream int32) int {
	return slices.IndexFunc(x.inner, func(b *begun) bool { return b.x.stream == stream })
}

// advance starts a sub-run for each tensor that the operation of a stream can make. The caller keeps r active.
func (r *run) advance(at int, after int32, loop *scheduler.RunLoop) {
	b, o := r.x.inner[at], r.sub.streams[at].op
	o.mu.Lock()
	if o.busy { // that goroutine sees what is new
		o.mu.Unlock()
		return
	}
	o.busy = true
	for r.root.failure.Load() == nil {
		out, err := b.take(o, r.x.alloc)
		if err != nil {
			r.failOf(b.x.source, err)
			break
		}
		if out == nil {
			break
		}
		o.mu.Unlock()
		c := r.nextSubRun(at, out, nil)
		c.holders.Store(1)
		c.start(loop)
		o.mu.Lock()
	}
	ends := !o.ended && o.over()
	o.ended = o.ended || ends
	o.busy = false
	o.mu.Unlock()
	r.signal()
	if ends {
		r.streamEnded(at, after, loop)
	}
}

// streamEnded tells the operations that read a stream how many items it has had.
func (r *run) streamEnded(at int, after int32, loop *scheduler.RunLoop) {
	for _, f := range r.x.inner[at].feeds {
		r.root.sub.mu.Lock()
		count := r.sub.streams[at].count
		r.root.sub.mu.Unlock()
		o := r.sub.streams[f.to].op
		o.mu.Lock()
		o.sides[f.side].end = count
		o.mu.Unlock()
		r.advance(f.to, after, loop)
	}
}

// signal lets the steps that wait for room look again.
func (r *run) signal() {
	for i := range r.sub.streams {
		select {
		case r.sub.streams[i].room <- struct{}{}:
		default:
		}
	}
}

// wakeProducers lets the decoupled steps that wait for room see that the request has failed.
func (r *run) wakeProducers() {
	for c := r; c != nil && c.sub != nil; c = c.sub.parent {
		c.signal()
	}
}

// over reports whether all sides have ended; mu is held.
func (o *operator) over() bool {
	return !slices.ContainsFunc(o.sides, func(s side) bool { return !s.over() }) && o.window.empty()
}

// take returns the tensors of the next sub-run, nil without one; mu is held.
func (b *begun) take(o *operator, alloc tensor.Allocator) ([]tensor.Tensor, error) {
	switch {
	case b.windows != nil:
		return b.takeWindow(o, alloc)
	case b.joins.Operation.StreamJoin.Latest:
		return b.takeLatest(o)
	default:
		return b.takePair(o)
	}
}

// arrive moves the items that are next in order to those without a partner.
func (s *side) arrive() {
	for item, there := s.early[s.next]; there; item, there = s.early[s.next] {
		delete(s.early, s.next)
		s.next++
		s.ready = append(s.ready, item)
	}
}

// pop returns the first item without a partner.
func (s *side) pop() []tensor.Tensor {
	item := s.ready[0]
	s.ready = slices.Delete(s.ready, 0, 1)
	return item
}

// takePair returns the items of the same position.
func (b *begun) takePair(o *operator) ([]tensor.Tensor, error) {
	complete, over := true, false
	for i := range o.sides {
		s := &o.sides[i]
		s.arrive()
		complete = complete && len(s.ready) > 0
		over = over || s.over()
	}
	if complete {
		out := o.sides[0].pop()
		for i := range o.sides[1:] {
			merge(out, o.sides[i+1].pop())
		}
		return out, nil
	}
	if !over {
		return nil, nil
	}
	return nil, b.leftOver(o)
}

// takeLatest returns the next item of the first side, with the latest ones of the others.
func (b *begun) takeLatest(o *operator) ([]tensor.Tensor, error) {
	waits, over := false, false
	for i := range o.sides {
		s := &o.sides[i]
		s.arrive()
		if i == 0 {
			continue
		}
		for len(s.ready) > 0 {
			tensor.ReleaseAll(s.last)
			s.last = s.pop()
		}
		waits = waits || s.last == nil
		over = over || s.last == nil && s.over()
	}
	switch first := &o.sides[0]; {
	case len(first.ready) == 0:
		return nil, nil
	case over:
		return nil, b.leftOver(o)
	case waits:
		return nil, nil
	default:
		out := first.pop()
		for i := range o.sides[1:] {
			for port := range o.sides[i+1].last {
				if t := &o.sides[i+1].last[port]; t.Present() {
					out[port] = t.Retain()
				}
			}
		}
		return out, nil
	}
}

// leftOver ends a join whose items have no partner: they are left out, or an error.
func (b *begun) leftOver(o *operator) error {
	short, long := -1, -1
	for i := range o.sides {
		switch s := &o.sides[i]; {
		case len(s.ready) > 0:
			long = i
		case s.over():
			short = i
		}
	}
	if long < 0 || short < 0 {
		return nil
	}
	if !b.joins.Operation.StreamJoin.Drop {
		s := &o.sides[short]
		return status.Errorf(status.InvalidArg, "the stream of '%s' ended after %d responses, and that of '%s' has sent another one, for which '%s' has no partner; set step.%s.uneven to drop to leave such responses out",
			b.tensorOf(short), s.end, b.tensorOf(long), b.joins.Name, b.step())
	}
	for i := range o.sides {
		for s := &o.sides[i]; len(s.ready) > 0; {
			tensor.ReleaseAll(s.pop())
		}
	}
	return nil
}

// tensorOf returns the name of a tensor of a side.
func (b *begun) tensorOf(of int) string {
	return b.x.source.Signature.Inputs[b.ports[of]].Name
}

// merge moves the tensors of an item into another one.
func merge(into, from []tensor.Tensor) {
	for i := range from {
		if from[i].Present() {
			into[i] = from[i].Move()
		}
	}
}

// step returns the name by which parameters call the step that reads the stream.
func (b *begun) step() string {
	name := b.x.source.Name
	return name[:max(strings.LastIndexByte(name, '.'), 0)]
}
