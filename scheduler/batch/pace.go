package batch

import (
	"slices"
	"sync"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/tensor"
)

// paces has the last batch of each instance at a device. It is safe for concurrent use.
type paces struct {
	mu   sync.Mutex
	list []pace // guarded by mu
}

// pace is the end of an instance's last batch in its stream.
type pace struct {
	stream tensor.Stream
	end    tensor.Event
}

// Behind notes the end of a batch that the instance has put into its stream, and returns the end of the batch before it if the device
// has not reached that yet; nil for an instance on the host. An instance that is not free before then is at most one batch ahead of its
// device, so that requests wait in the queue, where they join batches and keep their priorities, and not in the stream.
//
// hot: no allocation.
func (r *Runner) Behind(inst backends.Instance) tensor.Event {
	if r.s.Mover.Idle() {
		return nil
	}
	s := backends.StreamOf(inst)
	if s == nil {
		return nil
	}
	end := s.Record()
	p := &r.paces
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.list, func(x pace) bool { return x.stream == s })
	if i < 0 {
		p.list = append(p.list, pace{s, end})
		return nil
	}
	before := p.list[i].end
	p.list[i].end = end
	if before.Done() {
		return nil
	}
	return before
}

// forget removes an instance.
func (p *paces) forget(inst backends.Instance) {
	s := backends.StreamOf(inst)
	if s == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(x pace) bool { return x.stream == s })
}
