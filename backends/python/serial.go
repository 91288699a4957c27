package python

import (
	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/status"
)

// beginSerial is begin for requests that the worker executes one after the other. It leaves out those that exceed serialBytes together with
// the ones before.
func (x *instance) beginSerial(b *backends.Batch) error {
	n, count := 0, 0
	for ; count < len(b.Requests) && (count == 0 || n < serialBytes); count++ {
		q, before := &b.Requests[count], n
		if len(q.In) != len(x.m.sig.Inputs) {
			return status.Errorf(status.Internal, "model '%s': expected a request of %d inputs, got %d", x.m.sig.Model, len(x.m.sig.Inputs), len(q.In))
		}
		for k := range q.In {
			if err := x.acceptInput(&q.In[k], k); err != nil {
				return err
			}
			if q.In[k].Present() {
				n = aligned(n + q.In[k].Len)
			}
		}
		if count > 0 && n > serialBytes {
			n = before
			break
		}
	}
	within := x.m.serialTime
	if count == 1 {
		within = 0
	}
	in, err := x.beginBody(count, n, within)
	if err != nil {
		return err
	}
	off := 0
	for i := range b.Requests {
		if i >= count {
			b.Requests[i].Unexecuted = true
			continue
		}
		off = x.appendSerial(&b.Requests[i], in, off)
	}
	return nil
}

// sent returns how many requests of a batch EXECUTE has.
func sent(b *backends.Batch) int {
	n := len(b.Requests)
	for b.Serial && n > 0 && b.Requests[n-1].Unexecuted {
		n--
	}
	return n
}

// appendSerial encodes a request whose inputs it copies to the region from an offset on. It returns the next free offset.
func (x *instance) appendSerial(q *backends.Request, in *region, off int) int {
	w, meta, present := x.w, q.Meta, 0
	if meta == nil {
		meta = &noMeta
	}
	for k := range q.In {
		if q.In[k].Present() {
			present++
		}
	}
	at := len(w.body)
	w.body = appendRequest(w.body, meta, present)
	for k := range q.In {
		t := &q.In[k]
		if !t.Present() {
			continue
		}
		if t.Len > 0 {
			copy(in.mem[off:], t.Bytes())
		}
		w.body = appendPart(w.body, k, t, -1, 0, off, t.Len)
		off = aligned(off + t.Len)
	}
	w.body = appendExtra(w.body, at, meta, q)
	return off
}
