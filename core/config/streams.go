package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// The parameters of streams. A stream is what depends on the responses of one decoupled step.
//
//	parameters { key: "step.transcribe.window"    value { string_value: "16000" } }
//	parameters { key: "step.transcribe.stride"    value { string_value: "8000" } }
//	parameters { key: "step.transcribe.window_of" value { string_value: "audio" } }
//	parameters { key: "step.transcribe.tail"      value { string_value: "pad" } }
//	parameters { key: "step.describe.join"        value { string_value: "frame, text" } }
//	parameters { key: "step.describe.join_by"     value { string_value: "latest" } }
//	parameters { key: "step.describe.ahead"       value { string_value: "64" } }
//	parameters { key: "step.describe.uneven"      value { string_value: "drop" } }
//	parameters { key: "ensemble.early_outputs"    value { string_value: "true" } }
const (
	windowParam   = "window"
	strideParam   = "stride"
	windowOfParam = "window_of"
	tailParam     = "tail"

	joinParam   = "join"
	joinByParam = "join_by"
	aheadParam  = "ahead"
	unevenParam = "uneven"

	earlyParam = "ensemble.early_outputs"
)

var streamParams = []string{aheadParam, joinByParam, joinParam, strideParam, tailParam, unevenParam, windowOfParam, windowParam}

// DefaultAhead is how many responses one stream of a join may be ahead of another, unless the step sets its own.
const DefaultAhead = 1024

// maxPositions bounds the positions of a window.
const maxPositions = 1 << 30

// Tail is what becomes of the positions at the end of a stream that do not fill a window.
type Tail string

// The tails.
const (
	TailSend Tail = "send" // they are a shorter window
	TailPad  Tail = "pad"  // they are a window, which zeros or empty strings fill
	TailDrop Tail = "drop" // they are left out
)

// Window is an operation that makes windows of a stream: each has the next Size positions of a tensor's first dimension, Stride after the
// begin of the one before.
type Window struct {
	Size, Stride int
	Tail         Tail
}

// StreamJoin is an operation that makes one stream of several.
type StreamJoin struct {
	// Latest reports that each response of the first tensor's stream comes with the latest one of the others. Else the responses of equal
	// position belong together.
	Latest bool
	// Ahead is how many responses one stream may be ahead of another.
	Ahead int
	// Drop reports that responses without a partner are left out. Else they fail the request.
	Drop bool
}

// windows adds the operation that makes windows of what step i reads.
func (b *branches) windows(key string, i int) {
	prefix := strings.TrimSuffix(key, windowParam)
	w := &Window{Tail: TailSend}
	var ok bool
	if w.Size, ok = b.count(key, maxPositions); !ok {
		return
	}
	w.Stride = w.Size
	if b.has(prefix + strideParam) {
		if w.Stride, ok = b.count(prefix+strideParam, w.Size); !ok {
			return
		}
	}
	if b.has(prefix + tailParam) {
		tails := []string{string(TailDrop), string(TailPad), string(TailSend)}
		if w.Tail = Tail(b.value(prefix + tailParam)); !slices.Contains(tails, string(w.Tail)) {
			b.fail(prefix+tailParam, "is %s, expected one of %s.%s", quoteShort(string(w.Tail)), strings.Join(tails, ", "), DidYouMean(string(w.Tail), tails))
			return
		}
	}
	reads := slices.Compact(slices.Sorted(maps.Values(b.flow.Steps[i].GetInputMap())))
	if b.has(prefix + windowOfParam) {
		if reads, ok = b.reads(prefix+windowOfParam, i); !ok {
			return
		}
	}
	b.operator(key, i, reads, Operation{Window: w})
}

// joins adds the operation that makes one stream of those that step i reads.
func (b *branches) joins(key string, i int) {
	prefix := strings.TrimSuffix(key, joinParam)
	j := &StreamJoin{Ahead: DefaultAhead}
	reads, ok := b.reads(key, i)
	if !ok {
		return
	}
	if len(reads) < 2 {
		b.fail(key, "names one tensor, expected the tensors of two streams or more")
		return
	}
	if b.has(prefix + joinByParam) {
		by := b.value(prefix + joinByParam)
		if by != "index" && by != "latest" {
			b.fail(prefix+joinByParam, "is %s, expected 'index' or 'latest'.%s", quoteShort(by), DidYouMean(by, []string{"index", "latest"}))
			return
		}
		j.Latest = by == "latest"
	}
	if b.has(prefix + aheadParam) {
		if j.Ahead, ok = b.count(prefix+aheadParam, maxPositions); !ok {
			return
		}
	}
	if b.has(prefix + unevenParam) {
		uneven := b.value(prefix + unevenParam)
		if uneven != "error" && uneven != "drop" {
			b.fail(prefix+unevenParam, "is %s, expected 'error' or 'drop'.%s", quoteShort(uneven), DidYouMean(uneven, []string{"error", "drop"}))
			return
		}
		j.Drop = uneven == "drop"
	}
	b.operator(key, i, reads, Operation{StreamJoin: j})
}

// operator puts an operation between step i and the tensors that it reads.
func (b *branches) operator(key string, i int, reads []string, op Operation) {
	s := &b.flow.Steps[i]
	s.ModelEnsembling_Step = proto.CloneOf(s.ModelEnsembling_Step)
	op.Name, op.Field = strings.TrimPrefix(key, stepPrefix), "parameters."+key
	for _, t := range reads {
		name := t
		for _, o := range b.flow.Operations { // a window of it that was added before
			if o.Window != nil && o.Name == strings.TrimSuffix(op.Name, joinParam)+windowParam && slices.Contains(o.In, t) {
				name = o.Written()[slices.Index(o.In, t)]
			}
		}
		out := t + " of " + op.Name
		for port, read := range s.GetInputMap() {
			if read == name {
				s.InputMap[port] = out
			}
		}
		op.In, op.More = append(op.In, name), append(op.More, out)
	}
	op.Out, op.More = op.More[0], op.More[1:]
	b.flow.Operations = append(b.flow.Operations, op)
}

// reads reads a list of tensors that step i reads.
func (b *branches) reads(key string, i int) ([]string, bool) {
	known := slices.Compact(slices.Sorted(maps.Values(b.inputs[i])))
	var list []string
	for name := range strings.SplitSeq(b.value(key), ",") {
		name = strings.TrimSpace(name)
		switch {
		case !slices.Contains(known, name):
			b.fail(key, "names the tensor '%s', which the step does not read, expected one of %s.%s", name, strings.Join(known, ", "), DidYouMean(name, known))
			return nil, false
		case slices.Contains(list, name):
			b.fail(key, "names the tensor '%s' twice", name)
			return nil, false
		}
		list = append(list, name)
	}
	return list, true
}

// count reads a number from 1 to most.
func (b *branches) count(key string, most int) (int, bool) {
	n, err := strconv.Atoi(b.value(key))
	if err != nil || n < 1 || n > most {
		b.fail(key, "is %s, expected a number from 1 to %d", quoteShort(b.value(key)), most)
		return 0, false
	}
	return n, true
}

func (b *branches) has(key string) bool {
	_, set := b.cfg.GetParameters()[key]
	return set
}

// stream notes the parameter what of step i about streams. Windows and joins are added when all other parameters have been read.
func (b *branches) stream(key, what string, i int) {
	switch what {
	case windowParam:
		b.streamed = append(b.streamed, func() { b.windows(key, i) })
		return
	case joinParam:
		b.joined = append(b.joined, func() { b.joins(key, i) })
		return
	}
	needs := joinParam
	if slices.Contains([]string{strideParam, tailParam, windowOfParam}, what) {
		needs = windowParam
	}
	if needs = strings.TrimSuffix(key, what) + needs; !b.has(needs) {
		b.fail(key, "has no effect, expected %s of the same step", needs)
	}
}

// early reads whether outputs are sent as soon as they are known.
func (b *branches) early() {
	v := b.value(earlyParam)
	if v != "true" && v != "false" {
		b.fail(earlyParam, "is %s, expected 'true' or 'false'", quoteShort(v))
	}
}

// EarlyOutputs reports whether an ensemble sends its outputs as soon as they are known, where the client accepts several responses.
func EarlyOutputs(cfg *modelconfig.ModelConfig) bool {
	return cfg.GetParameters()[earlyParam].GetStringValue() == "true"
}
