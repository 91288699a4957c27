package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// Location is where a step reads or writes a tensor. The zero Location is the host.
type Location struct {
	// OnDevice reports that the tensor is in the memory of a device.
	OnDevice bool
	// Devices holds a bit for each device that it may be; 0 on the host. For example, 0b101 is device 0 or device 2.
	Devices uint64
}

// Copy is a copy of a tensor to where steps read it, or to the host for the response. Readers there share it.
type Copy struct {
	Slot     Slot
	From, To Location
	// Reader is the first input that reads it there; a Node of -1 is the response.
	Reader InputRef
}

// place decides which steps run on a device. A model may have instances on the host and on devices; place picks the
// side for which fewer tensors are copied. It then finds the devices where all steps on devices can run, and lists the
// copies that remain. A tensor is where its producer writes it; BYTES tensors are always on the host.
func (c *compiler) place() error {
	p := c.plan
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return len(n.Places) > 0 }) {
		return nil
	}
	for i := range p.Nodes {
		host, device := p.Nodes[i].sides()
		p.Nodes[i].OnDevice = device && (!host || p.copiesFor(i, true) <= p.copiesFor(i, false))
	}
	if p.placed() {
		p.Devices = ^uint64(0)
		for i := range p.Nodes {
			if n := &p.Nodes[i]; n.OnDevice {
				p.Devices &= n.location().Devices
			}
		}
	}
	for s, uses := range p.Consumers {
		p.addCopies(Slot(s), uses)
	}
	for i := range p.Segments {
		t := &p.Segments[i] // its steps have the locations that the whole plan has for them
		t.Plan.Devices = p.Devices
		for n := range t.Plan.Nodes {
			t.Plan.Nodes[n].OnDevice = p.Nodes[t.First+int32(n)].OnDevice
		}
	}
	return nil
}

// sides reports whether a model has instances on the host and on devices.
func (n *Node) sides() (host, device bool) {
	if len(n.Places) == 0 {
		return true, false
	}
	for _, at := range n.Places {
		host = host || at.Kind != tensor.Device
		device = device || at.Kind == tensor.Device
	}
	return host, device
}

// copiesFor counts the tensors of node i to copy if it runs there. Of its readers those with one choice count.
func (p *Plan) copiesFor(i int, onDevice bool) int {
	n, count := &p.Nodes[i], 0
	for port, s := range n.In {
		if s != None && n.Signature.Inputs[port].DType != tensor.Bytes && p.origin(s).OnDevice != onDevice {
			count++
		}
	}
	for port, s := range n.Out {
		if s == None || n.Signature.Outputs[port].DType == tensor.Bytes {
			continue
		}
		for _, u := range p.Consumers[s] {
			host, device := p.Nodes[u.Node].sides()
			if onDevice && !device || !onDevice && !host {
				count++
			}
		}
		if onDevice && slices.Contains(p.Outputs, s) {
			count++
		}
	}
	return count
}

// origin returns where the producer of a slot writes its tensor.
func (p *Plan) origin(s Slot) Location {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if port := slices.Index(n.Out, s); port >= 0 && n.Signature.Outputs[port].DType != tensor.Bytes {
			return n.location()
		}
	}
	return Location{}
}

// location returns where the node runs.
func (n *Node) location() Location {
	if !n.OnDevice {
		return Location{}
	}
	l := Location{OnDevice: true}
	for _, at := range n.Places {
		if at.Kind == tensor.Device && at.ID >= 0 && at.ID < 64 {
			l.Devices |= 1 << uint(at.ID)
		}
	}
	return l
}

// serves reports whether a tensor at a can be read at b without a copy, as steps of a request share a device.
func (a Location) serves(b Location) bool {
	return a.OnDevice == b.OnDevice && (a.Devices == b.Devices || a.Devices&b.Devices != 0)
}

// addCopies adds the copies of one slot, one for each other location that reads it.
func (p *Plan) addCopies(s Slot, uses []InputRef) {
	from := p.origin(s)
	there := []Location{from}
	read := func(at Location, by InputRef) {
		if !slices.ContainsFunc(there, func(x Location) bool { return x.serves(at) }) {
			there = append(there, at)
			p.Copies = append(p.Copies, Copy{Slot: s, From: from, To: at, Reader: by})
		}
	}
	for _, u := range uses {
		if n := &p.Nodes[u.Node]; n.Signature.Inputs[u.Port].DType != tensor.Bytes {
			read(n.location(), u)
		}
	}
	if slices.Contains(p.Outputs, s) {
		read(Location{}, InputRef{Node: -1})
	}
}

// placed reports whether any step runs on a device.
func (p *Plan) placed() bool {
	return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.OnDevice })
}

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

// locationText names a location, with its devices where they differ between steps.
func (p *Plan) locationText(a Location) string {
	if a.OnDevice && p.Devices == 0 {
		return a.devices()
	}
	return a.String()
}

// String returns "host" or "device".
func (a Location) String() string {
	if a.OnDevice {
		return "device"
	}
	return "host"
}

// copiesText prints the copies, one per line.
func (p *Plan) copiesText(b *strings.Builder) {
	if !p.placed() {
		return
	}
	if p.Devices == 0 {
		b.WriteString("the steps at devices have no device in common\n")
	}
	for _, m := range p.Copies {
		reader := "the answer"
		if m.Reader.Node >= 0 {
			reader = fmt.Sprintf("step %d input %s", m.Reader.Node, p.Nodes[m.Reader.Node].Signature.Inputs[m.Reader.Port].Name)
		}
		fmt.Fprintf(b, "move %s from %s to %s for %s\n", p.Names[m.Slot], p.locationText(m.From), p.locationText(m.To), reader)
	}
	if len(p.Copies) == 0 {
		b.WriteString("no moves\n")
	}
}

// copied is the remark on a tensor that is copied to the location where it is read, after a separator.
func (p *Plan) copied(separator string, s Slot, at Location) string {
	for _, m := range p.Copies {
		if m.Slot == s && !m.From.serves(at) && m.To.serves(at) {
			return separator + "copied to the " + at.String()
		}
	}
	return ""
}
