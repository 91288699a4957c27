package sequence

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// ports maps the tensors of requests, controls and states to the ports of a model.
type ports struct {
	model string
	alloc tensor.Allocator
	// in is the model's input for each public input, out the model's output for each public output.
	in, out  []int
	controls []control
	corrid   int // input for the correlation id, -1 for none
	corridAs tensor.DType
	states   []state
	initial  []tensor.Tensor // of the states, by their order
	row      []int64         // the batch dimension of one row, nil for a model that does not batch
	one      tensor.Shape    // shape of a control input
}

// control is an input that carries a signal.
type control struct {
	port  int
	kind  modelconfig.ModelSequenceBatching_Control_Kind
	value [2]tensor.Tensor // false and true
}

// state is an output that becomes the input of the sequence's next request.
type state struct {
	in, out int
	// over lets the output use the input's memory, which therefore belongs to the slot alone.
	over bool
	// shown reports that the state is a public output too.
	shown bool
}

// Signals of requests.
const (
	kindStart  = modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_START
	kindReady  = modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_READY
	kindEnd    = modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_END
	kindCorrid = modelconfig.ModelSequenceBatching_Control_CONTROL_SEQUENCE_CORRID
)

// newPorts resolves the ports that the configuration names. A port that the model does not have is an error.
func newPorts(s *Settings) (*ports, error) {
	p := &ports{model: s.Signature.Model, alloc: s.Alloc, corrid: -1}
	if s.Signature.MaxBatch > 0 {
		p.row = []int64{1}
	}
	p.one = tensor.Of(append(slices.Clip(p.row), 1)...)
	for i := range s.Public.Inputs {
		p.in = append(p.in, s.Signature.Input(s.Public.Inputs[i].Name))
	}
	for i := range s.Public.Outputs {
		p.out = append(p.out, s.Signature.Output(s.Public.Outputs[i].Name))
	}
	if slices.Contains(p.in, -1) || slices.Contains(p.out, -1) {
		return nil, status.Errorf(status.Internal, "the public signature of model '%s' is no part of its own", p.model)
	}
	batching := s.Config.GetSequenceBatching()
	for _, in := range batching.GetControlInput() {
		for _, c := range in.GetControl() {
			if err := p.addControl(s.Signature, in.GetName(), c); err != nil {
				p.release()
				return nil, err
			}
		}
	}
	for _, st := range batching.GetState() {
		if err := p.addState(s, st); err != nil {
			p.release()
			return nil, err
		}
	}
	return p, nil
}

func (p *ports) addControl(sig *config.Signature, name string, c *modelconfig.ModelSequenceBatching_Control) error {
	port := sig.Input(name)
	if port < 0 {
		return config.MissingSequenceTensor(p.model, "control", "input", name)
	}
	if c.GetKind() == kindCorrid {
		p.corrid, p.corridAs = port, tensor.DType(c.GetDataType()) //nolint:gosec // the numbers are the same
		return nil
	}
	added := control{port: port, kind: c.GetKind()}
	for i := range added.value {
		d, bits := signal(c, i)
		t, err := tensor.New(p.alloc, d, p.one)
		if err != nil {
			added.value[0].Release()
			return err
		}
		copy(t.Bytes(), binary.LittleEndian.AppendUint32(nil, bits))
		added.value[i] = t
	}
	p.controls = append(p.controls, added)
	return nil
}

// signal returns the value of a control for false (0) or true (1).
func signal(c *modelconfig.ModelSequenceBatching_Control, i int) (tensor.DType, uint32) {
	switch {
	case len(c.GetInt32FalseTrue()) == 2:
		return tensor.Int32, uint32(c.GetInt32FalseTrue()[i]) //nolint:gosec // its bits are meant
	case len(c.GetFp32FalseTrue()) == 2:
		return tensor.FP32, math.Float32bits(c.GetFp32FalseTrue()[i])
	case len(c.GetBoolFalseTrue()) == 2 && c.GetBoolFalseTrue()[i]:
		return tensor.Bool, 1
	default:
		return tensor.Bool, 0
	}
}

func (p *ports) addState(s *Settings, st *modelconfig.ModelSequenceBatching_State) error {
	in, out := s.Signature.Input(st.GetInputName()), s.Signature.Output(st.GetOutputName())
	if in < 0 {
		return config.MissingSequenceTensor(p.model, "state", "input", st.GetInputName())
	}
	if out < 0 {
		return config.MissingSequenceTensor(p.model, "state", "output", st.GetOutputName())
	}
	port := &s.Signature.Inputs[in]
	dims := slices.Clone(port.Dims.Dims())
	for i, d := range dims {
		dims[i] = max(d, -d) // a variable extent is 1 at first
	}
	var file string
	if initial := st.GetInitialState(); len(initial) == 1 {
		dims, file = initial[0].GetDims(), initial[0].GetDataFile()
	}
	t, err := p.initialState(s, st.GetInputName(), port.DType, dims, file)
	if err == nil && !port.Accepts(&t.Shape, s.Signature.MaxBatch) {
		err = status.Errorf(status.InvalidArg, "initial state of state input '%s' of model '%s' has shape %s, expected %s",
			st.GetInputName(), p.model, tensor.Of(dims...), port.Dims)
		t.Release()
	}
	if err != nil {
		return err
	}
	p.states = append(p.states, state{
		in: in, out: out, over: st.GetUseSameBufferForInputOutput(), shown: slices.Contains(p.out, out),
	})
	p.initial = append(p.initial, t)
	return nil
}

// initialState returns zeros, or the content of the file.
func (p *ports) initialState(s *Settings, name string, d tensor.DType, dims []int64, file string) (tensor.Tensor, error) {
	shape := tensor.Of(slices.Concat(p.row, dims)...)
	n, size := shape.Elements(), int64(max(d.Size(), 1))
	if d == tensor.Bytes {
		size = emptyText
	}
	if n < 0 || n > maxState/size {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg, "initial state of state input '%s' of model '%s' has shape %s, expected at most %d bytes",
			name, p.model, shape, maxState)
	}
	if file == "" {
		return zero(p.alloc, d, shape)
	}
	data, err := s.ReadFile(file)
	if err != nil {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg, "failed to open text file for read %s: %w", file, err)
	}
	if d == tensor.Bytes {
		if err := tensor.CheckBytes(data, n); err != nil {
			return tensor.Tensor{}, fmt.Errorf("initial state of state input '%s' of model '%s' from %s: %w", name, p.model, file, err)
		}
		size, n = 1, int64(len(data))
	}
	if int64(len(data)) != n*size {
		return tensor.Tensor{}, status.Errorf(status.InvalidArg,
			"initial_state setting expects %d bytes, but the data provided from %sonly has %d bytes.", n*size, file, len(data))
	}
	t, err := allocate(p.alloc, d, shape, len(data))
	if err == nil {
		copy(t.Bytes(), data)
	}
	return t, err
}

// InPlace returns batch.Settings.InPlace for the states with use_same_buffer_for_input_output; nil without any.
func InPlace(cfg *modelconfig.ModelConfig, sig *config.Signature) []int32 {
	var over []int32
	for _, st := range cfg.GetSequenceBatching().GetState() {
		in, out := sig.Input(st.GetInputName()), sig.Output(st.GetOutputName())
		if !st.GetUseSameBufferForInputOutput() || in < 0 || out < 0 {
			continue
		}
		if over == nil {
			over = make([]int32, len(sig.Outputs))
		}
		over[out] = int32(in) + 1 //nolint:gosec // a position
	}
	return over
}

const (
	// maxState bounds the bytes of an initial state.
	maxState = 1 << 30
	// emptyText is the encoded size of an empty string.
	emptyText = 4
)

// allocate returns an uninitialized tensor; n is its size for BYTES.
func allocate(a tensor.Allocator, d tensor.DType, s tensor.Shape, n int) (tensor.Tensor, error) {
	if d == tensor.Bytes {
		return tensor.NewBytes(a, s, n)
	}
	return tensor.New(a, d, s)
}

// zero returns a tensor of zeros, or of empty strings.
func zero(a tensor.Allocator, d tensor.DType, s tensor.Shape) (tensor.Tensor, error) {
	t, err := allocate(a, d, s, int(s.Elements())*emptyText)
	if err == nil {
		clear(t.Bytes())
	}
	return t, err
}

// checkID returns an error for an id that the control input cannot carry: 3000000000 or "user-7" in an INT32.
func (p *ports) checkID(key id) error {
	if p.corrid < 0 || p.corridAs == tensor.Bytes {
		return nil
	}
	limit := uint64(math.MaxUint64)
	switch p.corridAs {
	case tensor.Int64:
		limit = math.MaxInt64
	case tensor.Uint32:
		limit = math.MaxUint32
	case tensor.Int32:
		limit = math.MaxInt32
	}
	if key.name != "" || key.number > limit {
		return status.Errorf(status.InvalidArg, "inference request to model '%s' has correlation ID '%s', expected a number up to %d: control %s is %s",
			p.model, key, limit, kindCorrid, p.corridAs.ConfigName())
	}
	return nil
}

// correlation returns an id as the tensor of the control input.
func (p *ports) correlation(key id) (tensor.Tensor, error) {
	if p.corridAs == tensor.Bytes {
		text := key.String()
		t, err := tensor.NewBytes(p.alloc, p.one, tensor.EncodedLen(len(text)))
		if err == nil {
			tensor.AppendBytes(t.Bytes()[:0], text)
		}
		return t, err
	}
	t, err := tensor.New(p.alloc, p.corridAs, p.one)
	if err == nil {
		var bits [8]byte
		binary.LittleEndian.PutUint64(bits[:], key.number)
		copy(t.Bytes(), bits[:])
	}
	return t, err
}

func (p *ports) release() {
	for i := range p.controls {
		tensor.ReleaseAll(p.controls[i].value[:])
	}
	tensor.ReleaseAll(p.initial)
}
