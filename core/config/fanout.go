package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of fan-outs.
//
//	parameters { key: "step.crop.demux"            value { string_value: "crops, boxes" } }
//	parameters { key: "step.crop.counts"           value { string_value: "n" } }
//	parameters { key: "ensemble.gather"            value { string_value: "{\"texts\": {\"of\": \"text\", \"pad\": \"\"}}" } }
//	parameters { key: "ensemble.max_items"         value { string_value: "1000" } }
//	parameters { key: "ensemble.max_items_in_flight" value { string_value: "4000" } }
const (
	demuxParam    = "demux"
	countsParam   = "counts"
	gatherParam   = "ensemble.gather"
	maxItemsParam = "ensemble.max_items"
	inFlightParam = "ensemble.max_items_in_flight"
)

// The limits of fan-outs, unless the ensemble sets its own.
const (
	DefaultMaxItems      = 4096
	DefaultItemsInFlight = 16384
)

// Demux is an operation that makes each item of a row a row of its own.
type Demux struct {
	// Items are the tensors that it divides, of which each has the same count.
	Items []Items
	// Counts is the tensor that says how many items of a row are real; empty where all are.
	Counts string
}

// Items is one tensor that a Demux divides.
type Items struct {
	// Name is the tensor whose rows are the items.
	Name string
	// Of is the tensor that is divided.
	Of string
	// Shapes is the tensor with the shape of each item, and DType their type, where Of is BYTES with the data of an item in each element.
	// Empty where the first dimension of a row counts the items.
	Shapes string
	DType  tensor.DType
}

// Gather is an operation that makes the items of a row one tensor again.
type Gather struct {
	// Of is the tensor whose rows are items.
	Of string
	// Pad is the value, in JSON, of the items that a row has less than another; nil where all must have the same count.
	Pad json.RawMessage
	// Counts is the tensor that receives the count of each row; may be empty.
	Counts string
}

// ItemLimits returns how many items a request may have, and how many an ensemble may execute at a time.
func ItemLimits(cfg *modelconfig.ModelConfig) (perRequest, inFlight int) {
	limit := func(key string, n int) int {
		if v, err := strconv.Atoi(cfg.GetParameters()[key].GetStringValue()); err == nil {
			n = v
		}
		return n
	}
	return limit(maxItemsParam, DefaultMaxItems), limit(inFlightParam, DefaultItemsInFlight)
}

// Written returns the tensors that an operation writes.
func (o *Operation) Written() []string { return append([]string{o.Out}, o.More...) }

// limit checks a limit of items.
func (b *branches) limit(key string) {
	if n, err := strconv.Atoi(b.value(key)); err != nil || n < 1 {
		b.fail(key, "is %s, expected a number of items, 1 or more", quoteShort(b.value(key)))
	}
}

// demux adds the operation that divides outputs of a step, after all others of the step.
func (b *branches) demux(key string, step int) {
	items, ok := b.items(key, step)
	if !ok {
		return
	}
	op := Operation{Name: strings.TrimPrefix(key, stepPrefix), Field: "parameters." + key, Demux: &Demux{Items: items}}
	for i := range items {
		t := &items[i]
		if t.Of == "" { // in place: the step writes another tensor
			t.Of = b.rename(step, t.Name)
		}
		op.In = append(op.In, t.Of)
		if t.Shapes != "" {
			op.In = append(op.In, t.Shapes)
		}
		op.More = append(op.More, t.Name)
	}
	counts := strings.TrimSuffix(key, demuxParam) + countsParam
	if _, set := b.cfg.GetParameters()[counts]; set {
		op.Demux.Counts = b.value(counts)
		op.In = append(op.In, op.Demux.Counts)
	}
	slices.Sort(op.In)
	op.In = slices.Compact(op.In)
	op.Out, op.More = op.More[0], op.More[1:]
	b.flow.Operations = append(b.flow.Operations, op)
}

// counts refuses the counts of a step without a demux.
func (b *branches) counts(key string) {
	if _, set := b.cfg.GetParameters()[strings.TrimSuffix(key, countsParam)+demuxParam]; !set {
		b.fail(key, "has no effect, expected %s of the same step", strings.TrimSuffix(key, countsParam)+demuxParam)
	}
}

// items reads the value of a demux: the names of outputs, or an object of new tensors and those that they are the items of.
func (b *branches) items(key string, step int) ([]Items, bool) {
	text := strings.TrimSpace(b.value(key))
	if strings.HasPrefix(text, "{") {
		return b.itemObject(key, text)
	}
	written := b.written(step)
	var list []Items
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		switch {
		case !slices.Contains(written, name):
			b.fail(key, "names the tensor '%s', which the step does not write, expected one of %s.%s", name, strings.Join(written, ", "), DidYouMean(name, written))
			return nil, false
		case slices.ContainsFunc(list, func(t Items) bool { return t.Name == name }):
			b.fail(key, "names the tensor '%s' twice", name)
			return nil, false
		}
		list = append(list, Items{Name: name})
	}
	return list, true
}

const itemExample = `{"crop": {"of": "crops", "shapes": "shapes", "type": "TYPE_UINT8"}}`

// itemObject reads a demux that leaves the tensors as they are and writes new ones.
func (b *branches) itemObject(key, text string) ([]Items, bool) {
	all, err := object[json.RawMessage](text)
	if err != nil {
		b.fail(key, "is %s, expected names of outputs or a JSON object of new tensors, for example %s", err, itemExample)
		return nil, false
	}
	var list []Items
	for _, name := range sortedKeys(all) {
		t := Items{Name: name}
		var o struct{ Of, Shapes, Type string }
		if json.Unmarshal(all[name], &t.Of) != nil {
			if err := strict(all[name], &o); err != nil || o.Of == "" || (o.Shapes == "") != (o.Type == "") {
				b.fail(key, "has for '%s' the value %s, expected the name of a tensor, or an object with of, shapes and type, for example %s", name, quoteShort(string(all[name])), itemExample)
				return nil, false
			}
			t.Of, t.Shapes = o.Of, o.Shapes
		}
		if o.Type != "" {
			known := slices.Sorted(maps.Keys(modelconfig.DataType_value))
			n, ok := modelconfig.DataType_value[o.Type]
			if t.DType = tensor.DType(n); !ok || t.DType.Size() == 0 { //nolint:gosec // few types
				b.fail(key, "has for '%s' the type %s, expected a type of fixed size such as TYPE_UINT8.%s", name, quoteShort(o.Type), DidYouMean(o.Type, known))
				return nil, false
			}
		}
		list = append(list, t)
	}
	return list, true
}

// strict reads a JSON value whose members must all be known.
func strict(text json.RawMessage, to any) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// written lists the tensors that a step writes, with those that its values for other rows, its replacements and its alternatives are joined to.
func (b *branches) written(step int) []string {
	list := slices.Collect(maps.Values(b.flow.Steps[step].GetOutputMap()))
	for i := range b.flow.Operations {
		o := &b.flow.Operations[i]
		if !o.joinsStep() {
			continue
		}
		if at := slices.IndexFunc(list, func(t string) bool { return slices.Contains(o.In, t) }); at >= 0 {
			list[at] = o.Out
		}
	}
	slices.Sort(list)
	return list
}

// joinsStep reports whether an operation writes a tensor of a step of the configuration, from what the step or others write in its place.
func (o *Operation) joinsStep() bool { return o.Otherwise != nil || o.Faults || o.Joins != nil }

// rename has what writes a tensor of a step write another one, and returns the new name.
func (b *branches) rename(step int, t string) string {
	s := &b.flow.Steps[step]
	for i := range b.flow.Operations {
		if o := &b.flow.Operations[i]; o.Out == t && o.joinsStep() {
			o.Out = t + " or otherwise of " + s.GetModelName()
			return o.Out
		}
	}
	s.ModelEnsembling_Step = proto.CloneOf(s.ModelEnsembling_Step)
	name := t + " of " + s.GetModelName()
	for port, tensor := range s.GetOutputMap() {
		if tensor == t {
			s.OutputMap[port] = name
		}
	}
	return name
}

const gatherExample = `{"texts": "text"} or {"texts": {"of": "text", "pad": "", "counts": "n"}}`

// gather adds the operations that make items one tensor again.
func (b *branches) gather(key string) {
	all, err := object[json.RawMessage](b.value(key))
	if err != nil {
		b.fail(key, "is %s, expected a JSON object of new tensors and the tensors that they collect, for example %s", err, gatherExample)
		return
	}
	for _, name := range sortedKeys(all) {
		g := &Gather{}
		if json.Unmarshal(all[name], &g.Of) != nil {
			if err := strict(all[name], g); err != nil {
				g.Of = ""
			}
		}
		if g.Of == "" {
			b.fail(key, "has for '%s' the value %s, expected the name of a tensor, or an object with of, pad and counts, for example %s", name, quoteShort(string(all[name])), gatherExample)
			continue
		}
		op := Operation{Name: "gather " + name, Field: "parameters." + key, In: []string{g.Of}, Out: name, Gather: g}
		if g.Counts != "" {
			op.More = []string{g.Counts}
		}
		b.flow.Operations = append(b.flow.Operations, op)
	}
}

// named refuses tensors of fan-outs that nothing writes.
func (b *branches) named() {
	var known []string
	for _, in := range b.cfg.GetInput() {
		known = append(known, in.GetName())
	}
	for i := range b.flow.Steps {
		known = slices.AppendSeq(known, maps.Values(b.flow.Steps[i].GetOutputMap()))
	}
	for i := range b.flow.Operations {
		known = append(known, b.flow.Operations[i].Written()...)
	}
	slices.Sort(known)
	for i := range b.flow.Operations {
		o := &b.flow.Operations[i]
		for _, t := range o.In {
			if _, found := slices.BinarySearch(known, t); !found && (o.Demux != nil || o.Gather != nil || o.Window != nil || o.StreamJoin != nil) && len(b.cfg.GetInput()) > 0 {
				key := strings.TrimPrefix(o.Field, "parameters.")
				b.fail(key, "reads the tensor '%s', which nothing writes.%s", t, DidYouMean(t, known))
			}
		}
	}
}
