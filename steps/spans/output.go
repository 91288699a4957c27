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
	if s.Params["output"] == asJSON {
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

// rows iterates over the rows with their passages.
func (r *run) rows(yield func(row int, list []passage) bool) {
	start := 0
	for row, end := range r.ends {
		if !yield(row, r.list[start:end]) {
			return
		}
		start = end
	}
}

// write writes the passages of r as JSON or as tensors.
func (o *out) write(b *backends.Batch, r *run) error {
	if o.json {
		for _, list := range r.rows {
			r.bytes = appendRow(r.bytes, list, o.labels)
		}
		return steps.Write(b, 0, tensor.Bytes, steps.Shape(b, o.batched, 1), r.bytes)
	}
	width := o.width
	if width == 0 {
		for _, list := range r.rows {
			width = max(width, len(list))
		}
	}
	if err := o.writeNumbers(b, r, width); err != nil {
		return err
	}
	if err := o.writeTexts(b, r, outText, width); err != nil || len(o.labels) == 0 {
		return err
	}
	return o.writeTexts(b, r, outLabel, width)
}

// writeTexts writes the passages' texts or labels, rows filled up with empty ones.
func (o *out) writeTexts(b *backends.Batch, r *run, port, width int) error {
	r.bytes = r.bytes[:0]
	for _, list := range r.rows {
		for i := range list {
			text := list[i].text
			if port == outLabel {
				text = o.labels[list[i].label].name
			}
			r.bytes = tensor.AppendBytes(r.bytes, text)
		}
		for range width - len(list) {
			r.bytes = tensor.AppendBytes(r.bytes, "")
		}
	}
	return steps.Write(b, port, tensor.Bytes, steps.Shape(b, o.batched, int64(width)), r.bytes)
}

// writeNumbers writes counts, starts, ends and scores, rows filled up with 0.
func (o *out) writeNumbers(b *backends.Batch, r *run, width int) error {
	shape, out := steps.Shape(b, o.batched, int64(width)), steps.Outputs{Batch: b}
	counts := steps.Alloc[int32](&out, outCount, tensor.Int32, steps.Shape(b, o.batched, 1))
	starts := steps.Alloc[int32](&out, outStart, tensor.Int32, shape)
	ends := steps.Alloc[int32](&out, outEnd, tensor.Int32, shape)
	scores := steps.Alloc[float32](&out, outScore, tensor.FP32, shape)
	if out.Err != nil {
		return out.Err
	}
	clear(starts)
	clear(ends)
	clear(scores)
	for row, list := range r.rows {
		counts[row] = int32(len(list))
		for i := range list {
			at := row*width + i
			starts[at], ends[at], scores[at] = list[i].start, list[i].end, list[i].score
		}
	}
	return nil
}

// appendRow appends a BYTES element that is the JSON array of a row's passages, without labels where there are none.
func appendRow(dst []byte, row []passage, labels []label) []byte {
	head := len(dst)
	dst = append(tensor.AppendBytes(dst, ""), '[')
	start := len(dst) - 1
	for i := range row {
		p := &row[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, '{')
		if len(labels) > 0 {
			dst = append(append(append(dst, `"label":`...), labels[p.label].quoted...), ',')
		}
		dst = strconv.AppendFloat(append(dst, `"score":`...), float64(p.score), 'g', -1, 32)
		dst = jsontext.Append(append(dst, `,"text":`...), p.text)
		dst = strconv.AppendInt(append(dst, `,"start":`...), int64(p.start), 10)
		dst = strconv.AppendInt(append(dst, `,"end":`...), int64(p.end), 10)
		dst = append(dst, '}')
	}
	dst = append(dst, ']')
	binary.LittleEndian.PutUint32(dst[head:], uint32(len(dst)-start))
	return dst
}
