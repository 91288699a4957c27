package plan

import (
	"fmt"
	"slices"

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
	// Why is empty for a copy to where the reader runs; else it says why a reader that runs elsewhere needs the copy.
	Why string
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
		if !p.Nodes[i].Edge {
			p.pickSide(i)
		}
	}
	p.placeEdges()
	for i := range p.Nodes {
		if n := &p.Nodes[i]; n.Signature.AnyPlace { // once more: its producers have their sides now
			n.Inputs = Location{}
			p.pickSide(i)
		}
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
		for n, number := range t.Numbers {
			t.Plan.Nodes[n].OnDevice, t.Plan.Nodes[n].Inputs = p.Nodes[number].OnDevice, p.Nodes[number].Inputs
		}
	}
	return c.checkResident()
}

// pickSide decides whether node i runs on a device, and notes why.
func (p *Plan) pickSide(i int) {
	n := &p.Nodes[i]
	if n.Signature.AnyPlace {
		for port, s := range n.In { // the producers come before
			if s == None || n.Signature.Inputs[port].OnHost() || n.Inputs.OnDevice {
				continue
			}
			n.Inputs = p.origin(s)
		}
		n.Why = "it takes inputs where they are"
		return
	}
	host, device := n.sides()
	if !host || !device {
		n.OnDevice = device
		return
	}
	there, here := p.copiesFor(i, true), p.copiesFor(i, false)
	n.OnDevice = there <= here
	if n.OnDevice {
		here, there = there, here
	}
	n.Why = fmt.Sprintf("copies needed here: %d, on its other side: %d", here, there)
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
		if s != None && !n.Signature.Inputs[port].OnHost() && p.origin(s).OnDevice != onDevice {
			count++
		}
	}
	for port, s := range n.Out {
		if s == None || n.Signature.Outputs[port].OnHost() {
			continue
		}
		for _, u := range p.Consumers[s] {
			if p.Nodes[u.Node].Signature.AnyPlace {
				continue
			}
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
		if port := slices.Index(n.Out, s); port >= 0 && !n.Signature.Outputs[port].OnHost() {
			return n.location()
		}
	}
	return Location{}
}

// location returns where the node runs.
func (n *Node) location() Location {
	if !n.OnDevice {
		return n.Inputs
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
	read := func(at Location, by InputRef, why string) {
		if !slices.ContainsFunc(there, func(x Location) bool { return x.serves(at) }) {
			there = append(there, at)
			p.Copies = append(p.Copies, Copy{Slot: s, From: from, To: at, Reader: by, Why: why})
		}
	}
	for _, u := range uses {
		n := &p.Nodes[u.Node]
		switch {
		case n.Signature.AnyPlace:
		case n.Signature.Inputs[u.Port].OnHost():
			read(Location{}, u, "which is read on the host")
		default:
			read(n.location(), u, "")
		}
	}
	if slices.Contains(p.Outputs, s) {
		read(Location{}, InputRef{Node: -1}, "")
	}
}

// placed reports whether any step runs on a device.
func (p *Plan) placed() bool {
	return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.OnDevice })
}
