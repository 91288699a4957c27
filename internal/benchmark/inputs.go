package benchmark

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/load"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Describe returns the description of a model from its metadata, and from its configuration unless that is nil.
func Describe(md *infer.Metadata, cfg *modelconfig.ModelConfig) *infer.Description {
	d := &infer.Description{Model: md.Name, MaxBatch: int(cfg.GetMaxBatchSize())}
	optional := map[string]bool{}
	if cfg != nil {
		for _, p := range config.SignatureOf(cfg).Inputs {
			optional[p.Name] = p.Optional
		}
	}
	port := func(t *infer.TensorMetadata) infer.Port {
		return infer.Port{Name: t.Name, DType: tensor.ParseDType(t.Datatype), Shape: tensor.Of(t.Shape...), Optional: optional[t.Name]}
	}
	for i := range md.Inputs {
		d.Inputs = append(d.Inputs, port(&md.Inputs[i]))
	}
	for i := range md.Outputs {
		d.Outputs = append(d.Outputs, port(&md.Outputs[i]))
	}
	return d
}

// Random describes random inputs. The zero value of a field selects its default.
type Random struct {
	// Batch is the number of rows of a request, 1 by default. Only models that batch take more.
	Batch int
	// Shapes has the shapes of inputs, without the batch dimension. A variable extent that it does not name is 1.
	Shapes map[string][]int64
	// TextLength is the number of letters of each text, 16 by default.
	TextLength int
	// Count is the number of different requests, 8 by default; fewer if they are large.
	Count int
	// Seed makes the values repeatable.
	Seed uint64
}

// largestInputs bounds the memory of random requests.
const largestInputs = 256 << 20

// Requests returns requests with random tensors for the required inputs: real numbers from 0 to 1, integers from 0 to 99,
// texts of small letters. All request all outputs by name.
func (o *Random) Requests(d *infer.Description) ([]load.Request, error) {
	batch, count := max(o.Batch, 1), o.Count
	if count <= 0 {
		count = 8
	}
	if batch > max(d.MaxBatch, 1) {
		return nil, fmt.Errorf("a request of %d rows is larger than max_batch_size %d of model '%s'", batch, d.MaxBatch, d.Model)
	}
	for name := range o.Shapes {
		if !slices.ContainsFunc(d.Inputs, func(p infer.Port) bool { return p.Name == name }) {
			return nil, fmt.Errorf("model '%s' has no input '%s' for a shape, expected one of: %s", d.Model, name, portNames(d.Inputs))
		}
	}
	random := rand.New(rand.NewPCG(o.Seed, 1)) //nolint:gosec // the same values in every run are wanted
	var list []load.Request
	for size := 0; len(list) < count && (len(list) == 0 || size < largestInputs); {
		r := load.Request{Model: d.Model, Outputs: outputNames(d)}
		for i := range d.Inputs {
			p := &d.Inputs[i]
			if p.Optional && o.Shapes[p.Name] == nil {
				continue
			}
			t, err := o.tensor(random, d, p, int64(batch))
			if err != nil {
				return nil, err
			}
			size += len(t.Data)
			r.Inputs = append(r.Inputs, t)
		}
		list = append(list, r)
	}
	return list, nil
}

func outputNames(d *infer.Description) []string {
	var names []string
	for i := range d.Outputs {
		names = append(names, d.Outputs[i].Name)
	}
	return names
}

func portNames(ports []infer.Port) string {
	var names []string
	for i := range ports {
		names = append(names, ports[i].Name)
	}
	return strings.Join(names, ", ")
}

// tensor returns a random tensor for an input.
func (o *Random) tensor(random *rand.Rand, d *infer.Description, p *infer.Port, batch int64) (load.Tensor, error) {
	shape := slices.Clone(p.Shape.Dims())
	row := shape
	if d.MaxBatch > 0 && len(shape) > 0 {
		shape[0], row = batch, shape[1:]
	}
	given := o.Shapes[p.Name]
	if given != nil && len(given) != len(row) {
		return load.Tensor{}, fmt.Errorf("the shape %v of input '%s' has %d dimensions, expected %d as in %v (without the batch dimension)",
			given, p.Name, len(given), len(row), row)
	}
	for i := range row {
		switch {
		case given != nil && row[i] >= 0 && row[i] != given[i]:
			return load.Tensor{}, fmt.Errorf("the shape %v of input '%s' does not fit %v of model '%s'", given, p.Name, row, d.Model)
		case given != nil:
			row[i] = given[i]
		case row[i] < 0:
			row[i] = 1
		}
	}
	n := tensor.Of(shape...).Elements()
	if n < 0 || n*int64(max(p.DType.Size(), o.letters()+4)) > largestInputs {
		return load.Tensor{}, fmt.Errorf("input '%s' of the shape %v has more than %d MiB", p.Name, shape, largestInputs>>20)
	}
	t := load.Tensor{Name: p.Name, Datatype: p.DType.String(), Shape: shape}
	for range n {
		var err error
		if t.Data, err = o.element(random, t.Data, p.DType); err != nil {
			return t, fmt.Errorf("input '%s': %w", p.Name, err)
		}
	}
	return t, nil
}

func (o *Random) letters() int {
	if o.TextLength > 0 {
		return o.TextLength
	}
	return 16
}

// element appends a random element.
func (o *Random) element(random *rand.Rand, data []byte, d tensor.DType) ([]byte, error) {
	le := binary.LittleEndian
	switch d {
	case tensor.Bytes:
		text := make([]byte, o.letters())
		for i := range text {
			text[i] = 'a' + byte(random.IntN(26))
		}
		return tensor.AppendBytes(data, text), nil
	case tensor.Bool:
		return append(data, byte(random.IntN(2))), nil
	case tensor.FP64:
		return le.AppendUint64(data, math.Float64bits(random.Float64())), nil
	case tensor.FP32:
		return le.AppendUint32(data, math.Float32bits(random.Float32())), nil
	case tensor.BF16:
		return le.AppendUint16(data, uint16(math.Float32bits(random.Float32())>>16)), nil //nolint:gosec // 16 bits are left
	case tensor.FP16: // from 0.5 to 1
		return le.AppendUint16(data, 0x3800|uint16(random.IntN(1<<10))), nil //nolint:gosec // 10 bits
	case tensor.Int8, tensor.Uint8, tensor.Int16, tensor.Uint16, tensor.Int32, tensor.Uint32, tensor.Int64, tensor.Uint64:
		var b [8]byte
		b[0] = byte(random.IntN(100))
		return append(data, b[:d.Size()]...), nil
	}
	return nil, fmt.Errorf("there are no random values of the type %s; pass the inputs in a file", d)
}
