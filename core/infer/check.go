package infer

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
)

// IDPrefix returns the prefix of a refused request's error text, which identifies the request to its client.
func IDPrefix(id string) string {
	if id == "" {
		id = "<id_unknown>"
	}
	return "[request id: " + id + "] "
}

// ParseVersion parses a model version as clients write it. An empty string is 0, any version.
func ParseVersion(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err == nil && v > 0 {
		return v, nil
	}
	details := ""
	if err != nil {
		details = " (details: stol)"
	}
	return 0, status.Errorf(status.InvalidArg,
		"failed to get model version from specified version string '%s'%s, version should be an integral value > 0", s, details)
}

// ReservedParam reports whether clients may not set a parameter of this name.
func ReservedParam(key string) bool { return strings.HasPrefix(key, "triton_") }

// ShapeSize returns the bytes of a tensor of fixed-size elements; for BYTES it
// returns -1. Shapes with no representable number of elements are an error.
//
// hot: no allocation on success.
func ShapeSize(input string, d tensor.DType, s tensor.Shape) (int64, error) {
	n := s.Elements()
	if n < 0 {
		return 0, shapeError(input, s)
	}
	if d == tensor.Bytes {
		return -1, nil
	}
	size := int64(d.Size())
	if size == 0 {
		return 0, status.Errorf(status.InvalidArg, "invalid datatype for input %s", input)
	}
	if n > maxTensorBytes/size {
		return 0, status.Errorf(status.InvalidArg, "byte size overflow for input '%s': shape %s of %s", input, s, d)
	}
	return n * size, nil
}

// maxTensorBytes bounds the size of a requested tensor, far beyond any memory.
const maxTensorBytes = 1 << 46

func shapeError(input string, s tensor.Shape) error {
	if slices.ContainsFunc(s.Dims(), func(d int64) bool { return d < 0 }) {
		return status.Errorf(status.InvalidArg, "invalid shape for input '%s': shape %s contains one or more invalid dimensions", input, s)
	}
	return status.Errorf(status.InvalidArg,
		"invalid shape for input '%s': shape %s causes total element count to exceed maximum size of 9223372036854775807", input, s)
}

// WrongSize is the error text for an input whose size does not match its type and shape. Its arguments are the
// input, the model, the expected and the actual size.
const WrongSize = "input byte size mismatch for input '%s' for model '%s'. Expected %d, got %d"

// SizeError returns the error for an input with got bytes, whose shape and type require want.
func (r *Request) SizeError(input string, want, got int64) error {
	return status.Errorf(status.InvalidArg, "%s"+WrongSize, IDPrefix(r.ID), input, r.Model, want, got)
}

// CheckInputs verifies that the memory of every input has the size, or the BYTES elements, that its type and shape
// require. It is the only such check: front ends call it once a request is decoded, and an executor for the requests of
// other callers. A second call returns at once. Of several wrong inputs it names the last, as Triton does. Inputs must
// not change afterwards. The elements of BYTES in device memory are checked by the executor, once it has copied them to the host.
//
// hot: no allocation on success.
func (r *Request) CheckInputs() error {
	if r.checked {
		return nil
	}
	for i := len(r.Inputs) - 1; i >= 0; i-- {
		if err := r.CheckInput(&r.Inputs[i]); err != nil {
			return err
		}
	}
	r.checked = true
	return nil
}

// CheckInput verifies that an input's memory matches its type and shape: the size in bytes, or for BYTES the
// elements and their lengths.
//
// hot: no allocation on success.
func (r *Request) CheckInput(in *Named) error {
	want, err := ShapeSize(in.Name, in.Tensor.DType, in.Tensor.Shape)
	if err != nil {
		return err
	}
	if want >= 0 {
		if int64(in.Tensor.Len) != want {
			return r.SizeError(in.Name, want, int64(in.Tensor.Len))
		}
		return nil
	}
	if in.Tensor.Present() && in.Tensor.Buf.Place().Kind == tensor.Device {
		return nil
	}
	if err := tensor.CheckBytes(in.Tensor.Bytes(), in.Tensor.Shape.Elements()); err != nil {
		return r.bytesError(in.Name, err)
	}
	return nil
}

func (r *Request) bytesError(input string, err error) error {
	var e *tensor.BytesError
	if !errors.As(err, &e) {
		return err
	}
	where := "for inference input '" + input + "' for model '" + r.Model + "'"
	id := IDPrefix(r.ID)
	switch {
	case e.Got < e.Want:
		return status.Errorf(status.InvalidArg, "%sexpected %d string elements %s, got %d", id, e.Want, where, e.Got)
	case e.Got > e.Want:
		return status.Errorf(status.InvalidArg, "%sunexpected number of string elements %d %s, expecting %d", id, e.Got, where, e.Want)
	case e.Need == 0:
		return status.Errorf(status.InvalidArg,
			"%sincomplete string length indicator %s, expecting 4 bytes but only %d bytes available", id, where, e.Left)
	default:
		return status.Errorf(status.InvalidArg,
			"%sincomplete string data %s, expecting string of length %d but only %d bytes available", id, where, e.Need, e.Left)
	}
}

// manyNames is the number of names from which duplicates are found by hashing: comparing pairs would let a hostile
// request cost quadratic time.
const manyNames = 32

// CheckNames refuses a duplicate input or output, and drops all but the first parameter of each key.
//
// hot: no allocation up to 32 names of each sort.
func (r *Request) CheckNames() error {
	if i := repeated(r.Inputs, func(n *Named) string { return n.Name }); i >= 0 {
		return status.Errorf(status.InvalidArg, "%sinput '%s' already exists in request", IDPrefix(r.ID), r.Inputs[i].Name)
	}
	if i := repeated(r.Outputs, func(s *string) string { return *s }); i >= 0 {
		return status.Errorf(status.InvalidArg, "%soutput '%s' already exists in request", IDPrefix(r.ID), r.Outputs[i])
	}
	if repeated(r.Params, func(p *Param) string { return p.Key }) >= 0 {
		seen := make(map[string]struct{}, len(r.Params))
		r.Params = slices.DeleteFunc(r.Params, func(p Param) bool {
			_, ok := seen[p.Key]
			seen[p.Key] = struct{}{}
			return ok
		})
	}
	return nil
}

// repeated returns the index of the first element with the name of an earlier one, or -1.
func repeated[T any](list []T, name func(*T) string) int {
	if len(list) > manyNames {
		seen := make(map[string]struct{}, len(list))
		for i := range list {
			if _, ok := seen[name(&list[i])]; ok {
				return i
			}
			seen[name(&list[i])] = struct{}{}
		}
		return -1
	}
	for i := range list {
		for j := range i {
			if name(&list[i]) == name(&list[j]) {
				return i
			}
		}
	}
	return -1
}

// MaxEntries bounds each list of a request, over every protocol: an entry of two bytes must not cost the server a hundred.
const MaxEntries = 1 << 16

// TooMany returns an error if a list of a request has more than MaxEntries entries; what names them.
func TooMany(what string, n int) error {
	if n <= MaxEntries {
		return nil
	}
	return status.Errorf(status.InvalidArg, "request has more than %d %s", MaxEntries, what)
}
