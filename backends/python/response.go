package python

import (
	"encoding/binary"
	"math"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// preferred is where a model wants the outputs of its call: preferAny, preferHost, or preferGPU plus the number of a GPU.
type preferred uint16

const (
	preferAny preferred = iota // where the called model leaves them
	preferHost
	preferGPU
)

// gpu returns the wanted GPU, if there is one.
func (p preferred) gpu() (tensor.Place, bool) {
	return tensor.Place{Kind: tensor.Device, ID: int16(p - preferGPU)}, p >= preferGPU //nolint:gosec // checked by placeable
}

// keeps reports whether outputs may stay at devices. A process that the model has forked cannot use them.
func (p preferred) keeps(s *side) bool {
	if p == preferHost || !s.own {
		return false
	}
	_, gpus := s.w.m.b.gpuList()
	return len(gpus) > 0
}

// placeable returns an error when the outputs of a call cannot be where the model wants them.
func (s *side) placeable(p preferred) error {
	at, wanted := p.gpu()
	switch {
	case !wanted:
		return nil
	case p > math.MaxInt16 || s.w.m.b.gpuAt(at) == nil:
		return status.Errorf(status.InvalidArg, "preferred_memory names GPU %d, which this server does not have", p-preferGPU)
	case !s.own:
		return status.Errorf(status.Unsupported, "preferred_memory is on a GPU, which a forked process cannot use")
	}
	return nil
}

// sharedTensor is a tensor of a response that the worker gets in a GPU region.
type sharedTensor struct {
	region *gpuRegion // nil: in the packet
	off    int
}

// sendResponse sends a response, in a file when it is large. Tensors at GPUs, and all numeric ones when want is a GPU, are copied to
// GPU regions before.
func (s *side) sendResponse(id uint32, flags uint16, r *infer.Response, want preferred) error {
	places, err := s.share(r, want)
	if err != nil {
		return err
	}
	b := appendResponse(nil, r, places)
	size := len(b)
	for i := range r.Outputs {
		if places[i].region != nil {
			flags |= flagGPU
		} else {
			size = aligned(size) + r.Outputs[i].Tensor.Len
		}
	}
	if size <= maxBody {
		return s.link.send(kindReply, flags, id, appendData(append(newBody(make([]byte, 0, headBytes+size)), b...), headBytes, r, places))
	}
	return s.link.sendFile(kindReply, flags, id, size, func(mem []byte) { appendData(append(mem[:0], b...), 0, r, places) })
}

// share copies the tensors of a response that the worker gets on GPUs to lent regions, one for each GPU. The worker gives them back.
func (s *side) share(r *infer.Response, want preferred) ([]sharedTensor, error) {
	places := make([]sharedTensor, len(r.Outputs))
	var regions []*gpuRegion
	for i := range r.Outputs {
		at, ok := placeFor(&r.Outputs[i].Tensor, want)
		if !ok || places[i].region != nil {
			continue
		}
		region, err := s.shareAt(at, r, want, places)
		if region != nil {
			regions = append(regions, region)
		}
		if err != nil {
			for _, region := range regions {
				s.w.gpu.giveBack(region.id)
			}
			return nil, err
		}
	}
	return places, nil
}

// placeFor returns the GPU where the worker gets a tensor; false when that is the host.
func placeFor(t *tensor.Tensor, want preferred) (tensor.Place, bool) {
	if !t.Present() || t.Len == 0 || t.DType == tensor.Bytes {
		return tensor.Place{}, false
	}
	if at, wanted := want.gpu(); wanted {
		return at, true
	}
	return t.Buf.Place(), t.Buf.Place().Kind == tensor.Device
}

// shareAt copies the tensors for one GPU to a region.
func (s *side) shareAt(at tensor.Place, r *infer.Response, want preferred, places []sharedTensor) (*gpuRegion, error) {
	n := 0
	for i := range r.Outputs {
		if p, ok := placeFor(&r.Outputs[i].Tensor, want); ok && p == at {
			n += gpuAligned(r.Outputs[i].Tensor.Len)
		}
	}
	g := s.w.gpu
	region, err := g.lend(at, n)
	if err != nil {
		return nil, err
	}
	off, copied := 0, s.w.m.copied
	err = g.onStream(at, func(st tensor.Stream) error {
		for i := range r.Outputs {
			t := &r.Outputs[i].Tensor
			if p, ok := placeFor(t, want); !ok || p != at {
				continue
			}
			if err := region.take(off, t, st); err != nil {
				return err
			}
			if copied != nil {
				copied(r.Outputs[i].Name, t.Buf.Place(), at, t.Len)
			}
			places[i] = sharedTensor{region, off}
			off += gpuAligned(t.Len)
		}
		return nil
	})
	if err == nil {
		err = g.tell(region, s.link)
	}
	return region, err
}

// appendResponse encodes a response. The data of its tensors in the packet must follow, see appendData.
func appendResponse(b []byte, r *infer.Response, places []sharedTensor) []byte {
	n := min(len(r.Outputs), math.MaxUint16)
	extra := appendParams(appendText(nil, ""), r.Params)
	at := 8
	for i := range r.Outputs[:n] {
		extra = appendText(extra, r.Outputs[i].Name)
		at += partBytes + 8*r.Outputs[i].Tensor.Shape.Rank()
	}
	extra = padded(extra, 0)
	at += len(extra)
	b = append(b, stateOK, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(n))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(extra)))
	for i := range r.Outputs[:n] {
		t := &r.Outputs[i].Tensor
		if p := places[i]; p.region != nil {
			b = appendPart(b, named, t, -1, p.region.id, p.off, t.Len)
			continue
		}
		at = aligned(at)
		b = appendPart(b, named, t, -1, 0, at, t.Len)
		at += t.Len
	}
	return append(b, extra...)
}

// appendData appends the data of the tensors in the packet, at offsets relative to base.
func appendData(b []byte, base int, r *infer.Response, places []sharedTensor) []byte {
	for i := range r.Outputs {
		if places[i].region != nil {
			continue
		}
		for (len(b)-base)%align != 0 {
			b = append(b, 0)
		}
		if r.Outputs[i].Tensor.Len > 0 {
			b = append(b, r.Outputs[i].Tensor.Bytes()...)
		}
	}
	return b
}

// borrow handles GPUBORROW: it lends the worker a region for tensors that it will name in a later packet.
func (s *side) borrow(p *packet) error {
	if !s.own {
		return status.Errorf(status.Unsupported, "a forked process cannot use GPU memory")
	}
	r := reader{b: p.body}
	number, n := r.u32(), r.u64()
	if r.bad || number > math.MaxInt16 || n > maxGPURegion {
		return status.Errorf(status.InvalidArg, "unexpected GPU %d or %d bytes", number, n)
	}
	region, err := s.w.gpu.lend(tensor.Place{Kind: tensor.Device, ID: int16(number)}, int(n))
	if err != nil {
		return err
	}
	if err := s.w.gpu.tell(region, s.link); err != nil {
		return err
	}
	b := binary.LittleEndian.AppendUint32(appendError(newBody(nil), nil), region.id)
	if err := s.link.send(kindReply, flagFinal, p.id, b); err != nil {
		return err
	}
	return errReplied
}
