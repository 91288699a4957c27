package tensorop

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/steps"
)

// operation is one value of parameter "op".
type operation struct {
	name string
	// params are the parameters it reads, besides "op".
	params []string
	// least and most are the limits of the number of inputs.
	least, most int
	build       func(*spec) error
}

// spec is an operation while it is built: the configuration, then the outputs and the runner.
type spec struct {
	*operation
	s     *steps.Settings
	in    []config.Port
	batch int // 1 where the model batches: the number of dimensions before those of a row

	out []config.Port
	run runner
}

func (s *spec) param(key string) string { return s.s.Params[key] }

// errorf returns an error that names the operation and the model.
func (s *spec) errorf(format string, args ...any) error {
	return fmt.Errorf("operation '%s' of model '%s': %w", s.name, s.s.Model, fmt.Errorf(format, args...))
}

// errType reports that input i does not have the expected type.
func (s *spec) errType(i int, expected string) error {
	return s.errorf("input '%s' is %s, expected %s", s.in[i].Name, s.in[i].DType.ConfigName(), expected)
}

// output adds an output, with the name that config.pbtxt gives it.
func (s *spec) output(d tensor.DType, dims tensor.Shape) {
	p := config.Port{Name: "OUTPUT", DType: d, Dims: dims}
	i := len(s.out)
	if i < len(s.s.Outputs) {
		p.Name = s.s.Outputs[i].Name
	}
	s.out = append(s.out, p)
}

// dtype reads parameter key as a type.
func (s *spec) dtype(key string, byDefault tensor.DType) (tensor.DType, error) {
	text := s.param(key)
	if text == "" && byDefault != tensor.Invalid {
		return byDefault, nil
	}
	name := strings.TrimPrefix(text, "TYPE_")
	if name == "STRING" {
		name = "BYTES"
	}
	if d := tensor.ParseDType(name); d != tensor.Invalid {
		return d, nil
	}
	return 0, s.errorf("parameter '%s' is '%s', expected a type such as FP32 or INT64", key, text)
}

// rank returns the number of dimensions of a row of the first input.
func (s *spec) rank() int { return s.in[0].Dims.Rank() }

// axis reads parameter "axis" as one of rank axes; a negative one counts from the end.
func (s *spec) axis(rank, byDefault int) (int, error) {
	text := s.param("axis")
	if text == "" {
		text = strconv.Itoa(byDefault)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < -rank || n >= rank {
		return 0, s.errorf("parameter 'axis' is '%s', expected an axis of %d dimensions", text, rank)
	}
	if n < 0 {
		n += rank
	}
	return n, nil
}

// ints reads parameter key as integers separated by commas, for example "1, -1" or "[1, -1]".
func (s *spec) ints(key string) ([]int, error) {
	text := strings.TrimSpace(s.param(key))
	if strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]") {
		text = strings.TrimSpace(text[1 : len(text)-1])
	}
	if text == "" {
		return nil, nil
	}
	var out []int
	for f := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(f), 10, 32)
		if err != nil {
			return nil, s.errorf("parameter '%s' is '%s', expected integers with commas between them", key, s.param(key))
		}
		out = append(out, int(n))
	}
	return out, nil
}

// axes reads parameter key as different axes; negative ones count from the end.
func (s *spec) axes(key string, rank int) ([]int, error) {
	list, err := s.ints(key)
	if err != nil {
		return nil, err
	}
	for i, n := range list {
		if n < 0 {
			n += rank
		}
		if n < 0 || n >= rank || slices.Contains(list[:i], n) {
			return nil, s.errorf("parameter '%s' is '%s', expected different axes of %d dimensions", key, s.param(key), rank)
		}
		list[i] = n
	}
	return list, nil
}

// flag reads parameter key as true or false, the default.
func (s *spec) flag(key string) (bool, error) {
	switch s.param(key) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	default:
		return false, s.errorf("parameter '%s' is '%s', expected true or false", key, s.param(key))
	}
}

// same returns an error unless all inputs from i on have the same type.
func (s *spec) same(i int) error {
	for _, p := range s.in[i:] {
		if p.DType != s.in[i].DType {
			return s.errorf("input '%s' is %s, expected %s as input '%s'", p.Name, p.DType.ConfigName(), s.in[i].DType.ConfigName(), s.in[i].Name)
		}
	}
	return nil
}

// joined returns the dims that numpy broadcasts a and b to, where -1 is any extent. For
// example, [-1, 1] and [4] give [-1, 4].
func (s *spec) joined(a, b tensor.Shape) (tensor.Shape, error) {
	if a.Rank() < b.Rank() {
		a, b = b, a
	}
	out := a
	for i := 1; i <= b.Rank(); i++ {
		m, n := a.Dim(a.Rank()-i), b.Dim(b.Rank()-i)
		switch {
		case n == 1 || m == n:
		case m == 1 || m < 0:
			out.SetDim(a.Rank()-i, n)
		case n < 0:
		default:
			return out, s.errorf("dims %s and %s cannot be broadcast together", a, b)
		}
	}
	return out, nil
}
