package plan

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
)

// devices names the devices of a location. For example, "device:0 or device:2".
func (a Location) devices() string {
	var at []string
	for i := range 64 {
		if a.Devices&(1<<uint(i)) != 0 {
			at = append(at, tensor.Place{Kind: tensor.Device, ID: int16(i)}.String())
		}
	}
	return strings.Join(at, " or ")
}

// String returns "host" or "device".
func (a Location) String() string {
	if a.OnDevice {
		return "device"
	}
	return "host"
}

// within is the part of a location that requests use: of several devices, those where all device steps can run.
func (p *Plan) within(a Location) Location {
	if a.OnDevice && a.Devices&p.Devices != 0 {
		a.Devices &= p.Devices
	}
	return a
}

// short names a location in one word: "host", "device:1", or "device" for the one of several devices that a request uses.
func (p *Plan) short(a Location) string {
	a = p.within(a)
	if a.OnDevice && (p.Devices == 0 || bits.OnesCount64(a.Devices) == 1) {
		return a.devices()
	}
	return a.String()
}

// PlaceOf returns where the tensor of a slot is written and why. For example, "device:0" and "resnet runs there", or
// "host" and "tokenize gives BYTES".
func (p *Plan) PlaceOf(s Slot) (at, why string) {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		port := slices.Index(n.Out, s)
		switch {
		case port < 0:
		case n.Signature.Outputs[port].DType == tensor.Bytes:
			return "host", n.Name + " gives BYTES"
		case n.Signature.Outputs[port].ShapeTensor:
			return "host", n.Name + " gives extents"
		case n.OnDevice:
			return p.within(n.location()).devices(), n.Name + " runs there" + n.why()
		case n.Inputs.OnDevice:
			return p.within(n.Inputs).devices(), n.Name + " takes its inputs there"
		default:
			return "host", n.Name + " runs there" + n.why()
		}
	}
	return "host", "the request brings it"
}

// atText names where node i runs.
func (p *Plan) atText(i int) string {
	if n := &p.Nodes[i]; n.location().OnDevice {
		return p.within(n.location()).devices()
	}
	return "host"
}

// why is the remark on the side of a node.
func (n *Node) why() string {
	if n.Why == "" {
		return ""
	}
	return " (" + n.Why + ")"
}

// placesText prints where every tensor is written, and the copies, a line each.
func (p *Plan) placesText(b *strings.Builder) {
	if !p.placed() {
		b.WriteString("no copies: every tensor is on the host, where all steps run\n")
		return
	}
	for s := range Slot(p.Slots) {
		at, why := p.PlaceOf(s)
		since := ": "
		if at != "host" {
			since = ", since "
		}
		fmt.Fprintf(b, "edge %s at %s%s%s\n", p.Names[s], at, since, why)
	}
	if p.Devices == 0 {
		b.WriteString("the steps at devices have no device in common\n")
	}
	for i := range p.Copies {
		fmt.Fprintf(b, "copy %s\n", p.CopyText(&p.Copies[i]))
	}
	if len(p.Copies) == 0 {
		b.WriteString("no copies\n")
	}
}

// CopyFor returns the copy that an input of a step needs, or with Node -1 the output at position Port, which it may
// share with other readers at the same location; nil for none.
func (p *Plan) CopyFor(reader InputRef) *Copy {
	var slot Slot
	var at Location
	if reader.Node < 0 {
		slot = p.Outputs[reader.Port]
	} else {
		n := &p.Nodes[reader.Node]
		if slot = n.In[reader.Port]; n.Signature.Inputs[reader.Port].DType == tensor.Bytes {
			return nil
		}
		at = n.location()
	}
	for i := range p.Copies {
		if m := &p.Copies[i]; m.Slot == slot && (m.Reader == reader || !m.From.serves(at) && m.To.serves(at)) {
			return m
		}
	}
	return nil
}

// CopyText describes a copy. For example, "logits device:0 -> host for the response, 4000 bytes per row".
func (p *Plan) CopyText(m *Copy) string {
	reader, why := "the response", m.Why
	if m.Reader.Node >= 0 {
		n := &p.Nodes[m.Reader.Node]
		reader = fmt.Sprintf("step %d input %s", m.Reader.Node, n.Signature.Inputs[m.Reader.Port].Name)
	}
	if why != "" {
		why = ", " + why
	}
	return fmt.Sprintf("%s %s -> %s for %s%s, %s", p.Names[m.Slot], p.short(m.From), p.short(m.To), reader, why, p.sizeText(m.Slot))
}

// sizeText is the size of the tensor of a slot, as far as it is declared.
func (p *Plan) sizeText(s Slot) string {
	n, perRow, fixed := p.Size(s)
	switch {
	case !fixed:
		return "its size varies"
	case perRow:
		return fmt.Sprintf("%d bytes per row", n)
	default:
		return fmt.Sprintf("%d bytes", n)
	}
}

// Size returns the declared size of the tensor of a slot in bytes, of one row when its producer batches. fixed is false
// when a dimension is variable.
func (p *Plan) Size(s Slot) (n int64, perRow, fixed bool) {
	sig, port := p.producer(s)
	if port == nil || port.DType == tensor.Bytes || port.Unchecked {
		return 0, false, false
	}
	n = int64(port.DType.Size())
	for _, d := range port.Dims.Dims() {
		if d < 0 {
			return 0, false, false
		}
		n *= d
	}
	return n, sig.MaxBatch > 0 && !port.Unbatched, true
}

// producer returns the port that writes a slot, with its signature; nil for none.
func (p *Plan) producer(s Slot) (*config.Signature, *config.Port) {
	for i := range p.Nodes {
		if port := slices.Index(p.Nodes[i].Out, s); port >= 0 {
			return p.Nodes[i].Signature, &p.Nodes[i].Signature.Outputs[port]
		}
	}
	if i := slices.Index(p.Inputs, s); i >= 0 {
		return p.Signature, &p.Signature.Inputs[i]
	}
	return nil, nil
}

// copied is the remark on a tensor that is copied to the location where it is read, after a separator.
func (p *Plan) copied(separator string, s Slot, at Location) string {
	for _, m := range p.Copies {
		if m.Slot == s && !m.From.serves(at) && m.To.serves(at) {
			return separator + "copy " + p.short(m.From) + " -> " + p.short(m.To)
		}
	}
	return ""
}
