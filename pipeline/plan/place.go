package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/tensor"
)

// Site is where a step runs.
type Site uint8

// The sites.
const (
	OnHost Site = iota
	OnDevice
)

// Spot is where a tensor is, or is read: on the host, or at one of several devices.
type Spot struct {
	Site
	// Devices holds a bit for each device that may be the one; 0 on the host.
	Devices uint64
}

// Move is a copy of a tensor to where steps read it, or to the host for the answer.
// Readers at one place share it.
type Move struct {
	Slot     Slot
	From, To Spot
	// Use is the first input that reads it there; a Node of -1 stands for the answer.
	Use Use
}

// place decides where the steps of models with instances at several kinds of places
// run, so that as few tensors as possible are copied, finds the devices where all steps
// at devices can be, and lists the copies that are left. A tensor lives where its
// producer puts it; BYTES are on the host always.
func (c *compiler) place() error {
	p := c.plan
	if !slices.ContainsFunc(p.Nodes, func(n Node) bool { return len(n.Places) > 0 }) {
		return nil
	}
	for i := range p.Nodes {
		p.Nodes[i].Site = p.site(i)
	}
	p.Devices = p.devices()
	for s, uses := range p.Consumers {
		p.moves(Slot(s), uses)
	}
	for i := range p.Parts {
		p.Parts[i].settle(p)
	}
	return nil
}

// settle has a part's steps run where those of the whole plan do.
func (t *Part) settle(p *Plan) {
	t.Plan.Devices = p.Devices
	for i := range t.Plan.Nodes {
		t.Plan.Nodes[i].Site = p.Nodes[t.First+int32(i)].Site
	}
}

// kinds reports which sites a model has.
func (n *Node) kinds() (host, device bool) {
	if len(n.Places) == 0 {
		return true, false
	}
	for _, at := range n.Places {
		host = host || at.Kind != tensor.Device
		device = device || at.Kind == tensor.Device
	}
	return host, device
}

// site returns where node i runs; nodes before it are decided.
func (p *Plan) site(i int) Site {
	host, device := p.Nodes[i].kinds()
	switch {
	case !device:
		return OnHost
	case !host:
		return OnDevice
	}
	if p.crossings(i, OnDevice) <= p.crossings(i, OnHost) {
		return OnDevice
	}
	return OnHost
}

// crossings counts the tensors of node i that are copied if it runs at a site. Of what
// reads its outputs only steps with one choice count.
func (p *Plan) crossings(i int, at Site) int {
	n, count := &p.Nodes[i], 0
	for port, s := range n.In {
		if s != None && n.Signature.Inputs[port].DType != tensor.Bytes && p.home(s).Site != at {
			count++
		}
	}
	for port, s := range n.Out {
		if s == None || n.Signature.Outputs[port].DType == tensor.Bytes {
			continue
		}
		for _, u := range p.Consumers[s] {
			host, device := p.Nodes[u.Node].kinds()
			if at == OnHost && !host || at == OnDevice && !device {
				count++
			}
		}
		if at == OnDevice && slices.Contains(p.Outputs, s) {
			count++
		}
	}
	return count
}

// home returns where a slot's tensor is when it is made.
func (p *Plan) home(s Slot) Spot {
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if port := slices.Index(n.Out, s); port >= 0 && n.Signature.Outputs[port].DType != tensor.Bytes {
			return n.spot()
		}
	}
	return Spot{}
}

// spot returns where the node runs.
func (n *Node) spot() Spot {
	if n.Site != OnDevice {
		return Spot{}
	}
	spot := Spot{Site: OnDevice}
	for _, at := range n.Places {
		if at.Kind == tensor.Device && at.ID >= 0 && at.ID < 64 {
			spot.Devices |= 1 << uint(at.ID)
		}
	}
	return spot
}

// serves reports whether what is at a is where b reads it. A request keeps to one
// device as far as it can, so that a device that both may be at is the same one.
func (a Spot) serves(b Spot) bool {
	return a.Site == b.Site && (a.Devices == b.Devices || a.Devices&b.Devices != 0)
}

// devices returns those where every step that runs at a device can.
func (p *Plan) devices() uint64 {
	all, some := ^uint64(0), false
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if n.Site != OnDevice {
			continue
		}
		some = true
		all &= n.spot().Devices
	}
	if !some {
		return 0
	}
	return all
}

// moves adds the copies of one slot, one for each other place that reads it.
func (p *Plan) moves(s Slot, uses []Use) {
	from := p.home(s)
	there := []Spot{from}
	read := func(at Spot, by Use) {
		if !slices.ContainsFunc(there, func(x Spot) bool { return x.serves(at) }) {
			there = append(there, at)
			p.Moves = append(p.Moves, Move{Slot: s, From: from, To: at, Use: by})
		}
	}
	for _, u := range uses {
		if n := &p.Nodes[u.Node]; n.Signature.Inputs[u.Port].DType != tensor.Bytes {
			read(n.spot(), u)
		}
	}
	if slices.Contains(p.Outputs, s) {
		read(Spot{}, Use{Node: -1})
	}
}

// placed reports whether any step runs at a device.
func (p *Plan) placed() bool {
	return slices.ContainsFunc(p.Nodes, func(n Node) bool { return n.Site == OnDevice })
}

// siteText says where a step runs, nothing where that is the host as ever.
func (n *Node) siteText() string {
	if n.Site != OnDevice {
		return ""
	}
	return n.spot().devices()
}

// devices names the devices of a spot.
func (a Spot) devices() string {
	var at []string
	for i := range 64 {
		if a.Devices&(1<<uint(i)) != 0 {
			at = append(at, tensor.Place{Kind: tensor.Device, ID: int16(i)}.String())
		}
	}
	return strings.Join(at, " or ")
}

// spotText names a spot, the devices where they are not the same for all steps.
func (p *Plan) spotText(a Spot) string {
	if a.Site == OnDevice && p.Devices == 0 {
		return a.devices()
	}
	return a.String()
}

// String returns the site's name.
func (s Site) String() string {
	if s == OnDevice {
		return "device"
	}
	return "host"
}

// movesText prints the copies, a line each.
func (p *Plan) movesText(b *strings.Builder) {
	if !p.placed() {
		return
	}
	if p.Devices == 0 {
		b.WriteString("the steps at devices have no device in common\n")
	}
	for _, m := range p.Moves {
		fmt.Fprintf(b, "move %s from %s to %s for %s\n", p.Names[m.Slot], p.spotText(m.From), p.spotText(m.To), p.reader(m))
	}
	if len(p.Moves) == 0 {
		b.WriteString("no moves\n")
	}
}

// reader names who needs a move.
func (p *Plan) reader(m Move) string {
	if m.Use.Node < 0 {
		return "the answer"
	}
	n := &p.Nodes[m.Use.Node]
	return fmt.Sprintf("step %d input %s", m.Use.Node, n.Signature.Inputs[m.Use.Port].Name)
}

// moved says of a tensor that is read at a spot that it is copied.
func (p *Plan) moved(s Slot, at Spot) string {
	for _, m := range p.Moves {
		if m.Slot == s && !m.From.serves(at) && m.To.serves(at) {
			return "copied to the " + at.String()
		}
	}
	return ""
}
