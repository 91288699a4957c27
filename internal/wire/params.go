package wire

import (
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tutti-server/tutti/core/infer"
)

// Param is an entry of a parameter map. It refers to the message's bytes.
type Param struct {
	infer.Param        // without Key and String
	Name, Text  []byte // Text is the value of a string
	Set         bool   // has a value
}

// Parse reads a map entry.
func (p *Param) Parse(entry []byte) error {
	f := Fields{Rest: entry}
	for f.Next() {
		switch {
		case f.Is(1, protowire.BytesType):
			p.Name = f.Text()
		case f.Is(2, protowire.BytesType):
			if b := f.Bytes(); f.Err == nil {
				f.Err = p.value(b)
			}
		default:
			f.Skip()
		}
	}
	return f.Err
}

// value decodes an InferParameter. The last of several values counts.
func (p *Param) value(b []byte) error {
	f := Fields{Rest: b}
	for f.Next() {
		switch {
		case f.Is(1, protowire.VarintType):
			p.Param = infer.Param{Kind: infer.ParamBool, Bool: f.Varint() != 0}
		case f.Is(2, protowire.VarintType):
			p.Param = infer.Param{Kind: infer.ParamInt, Int: int64(f.Varint())}
		case f.Is(3, protowire.BytesType):
			p.Param, p.Text = infer.Param{Kind: infer.ParamString}, f.Text()
		case f.Is(4, protowire.Fixed64Type):
			p.Param = infer.Param{Kind: infer.ParamDouble, Double: math.Float64frombits(f.Fixed64())}
		case f.Is(5, protowire.VarintType):
			p.Param = infer.Param{Kind: infer.ParamUint, Uint: f.Varint()}
		default:
			f.Skip()
			continue
		}
		p.Set = true
	}
	return f.Err
}
