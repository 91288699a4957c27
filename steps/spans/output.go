package spans

import (
	"encoding/binary"
	"strconv"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/jsontext"
	"github.com/tutti-server/tutti/steps"
)

// passage is a part of a text that was found.
type passage struct {
	text       []byte
	start, end int32 // in the unit of the parameter
	label      int32
	score      float32
}

// out says how passages become outputs.
type out struct {
	json, batched bool
	labels        []label // none: passages have no label
	width         int     // passages a row in tensors; 0: as many as the longest row has
}

// The outputs as tensors. Those of a step without labels lack outLabel.
const (
	outCount = iota
	outText
	outStart
	outEnd
	outScore
	outLabel
)

// outPorts are the outputs of a step.
func outPorts(s *steps.Settings, name string, labelled bool, width int64) []config.Port {
	if s.Params[paramOutput] == asJSON {
		return []config.Port{{Name: name, DType: tensor.Bytes, Dims: tensor.Of(1)}}
	}
	row := tensor.Of(width)
	ports := []config.Port{
		outCount: {Name: "count", DType: tensor.Int32, Dims: tensor.Of(1)},
		outText:  {Name: "text", DType: tensor.Bytes, Dims: row},
		outStart: {Name: "start", DType: tensor.Int32, Dims: row},
		outEnd:   {Name: "end", DType: tensor.Int32, Dims: row},
		outScore: {Name: "score", DType: tensor.FP32, Dims: row},
	}
	if labelled {
		ports = append(ports, config.Port{Name: "label", DType: tensor.Bytes, Dims: row})
	}
	return ports
}

// found holds the passages of a batch.
type found struct {
	list  []passage
	ends  []int // where each row ends in list
	bytes []byte
}

func (f *found) reset() { f.list, f.ends, f.bytes = f.list[:0], f.ends[:0], f.bytes[:0] }

// endRow ends a row that begins at start. A row that failed becomes empty.
func (f *found) endRow(start int, failed bool) {
	if failed {
		f.list = f.list[:start]
	}
	f.ends = append(f.ends, len(f.list))
}

// forget lets go of the inputs' memory.
func (f *found) forget() { clear(f.list[:cap(f.list)]) }

func (o *out) write(b *backends.Batch, f *found) error {
	if o.json {
		return o.writeJSON(b, f)
	}
	width := o.width
	if width == 0 {
		start := 0
		for _, end := range f.ends {
			width, start = max(width, end-start), end
		}
	}
	if err := o.writeNumbers(b, f, width); err != nil {
		return err
	}
	if err := o.writeTexts(b, f, outText, width); err != nil || len(o.labels) == 0 {
		return err
	}
	return o.writeTexts(b, f, outLabel, width)
}

// shape is that of an output of so many elements a row.
func (o *out) shape(b *backends.Batch, width int) tensor.Shape {
	if o.batched {
		return tensor.Of(int64(b.Rows), int64(width))
	}
	return tensor.Of(int64(width))
}

func (o *out) writeJSON(b *backends.Batch, f *found) error {
	start := 0
	for _, end := range f.ends {
		f.bytes = appendRow(f.bytes, f.list[start:end], o.labels)
		start = end
	}
	return o.copyBytes(b, f, 0, 1)
}

func (o *out) copyBytes(b *backends.Batch, f *found, port, width int) error {
	t, err := b.AllocBytes(port, o.shape(b, width), len(f.bytes))
	if err != nil {
		return err
	}
	copy(t.Bytes(), f.bytes)
	return nil
}

// writeTexts writes the passages' texts or labels, rows filled up with empty ones.
func (o *out) writeTexts(b *backends.Batch, f *found, port, width int) error {
	start := 0
	f.bytes = f.bytes[:0]
	for _, end := range f.ends {
		for i := range f.list[start:end] {
			p := &f.list[start+i]
			if port == outLabel {
				f.bytes = tensor.AppendBytes(f.bytes, o.labels[p.label].name)
			} else {
				f.bytes = tensor.AppendBytes(f.bytes, p.text)
			}
		}
		for range width - (end - start) {
			f.bytes = tensor.AppendBytes(f.bytes, "")
		}
		start = end
	}
	return o.copyBytes(b, f, port, width)
}

// writeNumbers writes counts, starts, ends and scores, rows filled up with 0.
func (o *out) writeNumbers(b *backends.Batch, f *found, width int) error {
	count, err := b.Alloc(outCount, tensor.Int32, o.shape(b, 1))
	if err != nil {
		return err
	}
	shape := o.shape(b, width)
	for port, d := range [...]tensor.DType{outStart: tensor.Int32, outEnd: tensor.Int32, outScore: tensor.FP32} {
		if port < outStart {
			continue
		}
		t, err := b.Alloc(port, d, shape)
		if err != nil {
			return err
		}
		clear(t.Bytes())
	}
	counts, scores := tensor.Slice[int32](count), tensor.Slice[float32](&b.Out[outScore])
	starts, ends := tensor.Slice[int32](&b.Out[outStart]), tensor.Slice[int32](&b.Out[outEnd])
	first := 0
	for row, end := range f.ends {
		counts[row] = int32(end - first)
		for i, p := range f.list[first:end] {
			at := row*width + i
			starts[at], ends[at], scores[at] = p.start, p.end, p.score
		}
		first = end
	}
	return nil
}

// appendPassage appends p as a JSON object; label, already quoted, is left out where it is empty.
func appendPassage(dst []byte, p *passage, label []byte) []byte {
	dst = append(dst, '{')
	if len(label) > 0 {
		dst = append(append(append(dst, `"label":`...), label...), ',')
	}
	dst = append(dst, `"score":`...)
	dst = strconv.AppendFloat(dst, float64(p.score), 'g', -1, 32)
	dst = append(dst, `,"text":`...)
	dst = jsontext.Append(dst, p.text)
	dst = append(dst, `,"start":`...)
	dst = strconv.AppendInt(dst, int64(p.start), 10)
	dst = append(dst, `,"end":`...)
	dst = strconv.AppendInt(dst, int64(p.end), 10)
	return append(dst, '}')
}

// appendRow appends a BYTES element that is the JSON array of a row's passages.
func appendRow(dst []byte, row []passage, labels []label) []byte {
	head := len(dst)
	dst = append(tensor.AppendBytes(dst, ""), '[')
	for i := range row {
		if i > 0 {
			dst = append(dst, ',')
		}
		var quoted []byte
		if len(labels) > 0 {
			quoted = labels[row[i].label].quoted
		}
		dst = appendPassage(dst, &row[i], quoted)
	}
	dst = append(dst, ']')
	start := head + tensor.EncodedLen(0)
	binary.LittleEndian.PutUint32(dst[head:], uint32(len(dst)-start))
	return dst
}
