package exec

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/pipeline/plan"
)

// Early outputs. With ensemble.early_outputs a request whose sink takes several responses gets one for each step that writes outputs, as soon as
// they are known. A sub-run sends one response with the outputs of its own stream, in the order of that stream; streams do not wait for
// each other.
//
// For example, of detect -> describe, whose outputs are boxes and text, the boxes are sent while describe runs.

// early is the state of a request with early outputs; it is the root's.
type early struct {
	on   bool
	mu   sync.Mutex
	sent plan.NodeSet // outputs, by position in the signature
}

// begin notes whether a request gets its outputs early.
func (e *early) begin(p *plan.Plan, req *infer.Request) {
	if e.on = p.Early && req.Early; !e.on {
		return
	}
	if e.sent == nil {
		e.sent = plan.NewNodeSet(len(p.Outputs))
	}
	clear(e.sent)
}

// outputsOf returns the requested outputs that are in the slots.
func (r *run) outputsOf(slots []plan.Slot) (list []int32) {
	for _, o := range r.ownOutputs() {
		if slices.Contains(slots, r.x.plan.Outputs[o]) {
			list = append(list, o)
		}
	}
	return list
}

// ownOutputs returns the requested outputs of the run's stream.
func (r *run) ownOutputs() (list []int32) {
	for _, o := range r.outputs {
		if r.x.plan.Outputs[o] != plan.None {
			list = append(list, o)
		}
	}
	return list
}

// sendEarly sends the outputs that are in the slots, which are known now. Those of a sub-run are sent when it has all of its own.
func (r *run) sendEarly(slots []plan.Slot) {
	list := r.outputsOf(slots)
	if len(list) == 0 || r.root.failure.Load() != nil {
		return
	}
	if r.root != r {
		if r.sub.unknown.Add(-int32(len(list))) == 0 { //nolint:gosec // few
			r.respondEarly()
		}
		return
	}
	resp, err := r.responseOf(list)
	if err != nil {
		r.failWith(&failure{err: err, node: -1})
		return
	}
	r.early.mu.Lock()
	defer r.early.mu.Unlock()
	for _, o := range list {
		r.early.sent.Add(o)
	}
	r.sendResponse(resp, false)
}

// beginEarly counts the outputs of a sub-run, and sends them when they are what it begins with.
func (r *run) beginEarly() {
	own := r.ownOutputs()
	r.sub.unknown.Store(int32(len(own))) //nolint:gosec // few
	if len(own) == 0 {
		r.respondEarly()
		return
	}
	r.sendEarly(r.x.entries)
}

// respondEarly sends the response of a sub-run when it is the next one of its stream, with those after it that are ready.
func (r *run) respondEarly() {
	root := r.root
	own := r.ownOutputs()
	var resp *infer.Response
	if len(own) > 0 {
		var err error
		if resp, err = r.responseOf(own); err != nil {
			r.failWith(&failure{err: err, node: -1})
			return
		}
	}
	root.sub.mu.Lock() // Sink.Send does not wait
	defer root.sub.mu.Unlock()
	r.sub.resp, r.sub.ready = resp, true
	s := &r.sub.parent.sub.streams[r.sub.at]
	for c := s.unsent; c != nil && c.sub.ready && root.failure.Load() == nil; c = s.unsent {
		s.unsent = c.sub.next
		if c.sub.resp != nil {
			root.early.mu.Lock()
			root.sendResponse(c.sub.resp, false)
			root.early.mu.Unlock()
			c.sub.resp = nil
		}
	}
}

// respondLast sends the outputs that were not sent early. A request that has had them all ends without a final response.
func (r *run) respondLast() error {
	list := slices.DeleteFunc(r.ownOutputs(), r.early.sent.Contains)
	if len(list) == 0 && (len(r.outputs) > 0 || r.sub != nil) {
		return nil
	}
	resp, err := r.responseOf(list)
	if err == nil {
		r.sendResponse(resp, true)
	}
	return err
}
