package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/dataset"
)

// inputFiles reads the files of the flags of infer. It reads stdin at most once.
type inputFiles struct {
	stdin io.Reader
	used  bool
}

// stdinName stands for stdin among the names of files.
const stdinName = "-"

func (f *inputFiles) readFile(name string) ([]byte, error) {
	if name != stdinName {
		return os.ReadFile(name)
	}
	if f.used {
		return nil, errors.New("stdin can be read once only, expected files for the other inputs")
	}
	f.used = true
	return io.ReadAll(f.stdin)
}

// read sets the inputs of the request: those of --data, and those of --input, which take precedence.
func (a *inferCall) read(md *infer.Metadata) error {
	files := &inputFiles{stdin: os.Stdin}
	if a.data != "" {
		data, err := files.readFile(a.data)
		if err == nil {
			err = a.readData(data, md)
		}
		if err != nil {
			return fmt.Errorf("--data '%s': %w", a.data, err)
		}
	}
	for _, arg := range a.inputs {
		t, err := files.parse(arg, md)
		if err != nil {
			return err
		}
		a.req.Inputs = slices.DeleteFunc(a.req.Inputs, func(old client.Tensor) bool { return old.Name == t.Name })
		a.req.Inputs = append(a.req.Inputs, t)
	}
	return nil
}

// inputOf returns the declared input of a name.
func inputOf(md *infer.Metadata, name string) (infer.TensorMetadata, error) {
	var names []string
	for _, in := range md.Inputs {
		if in.Name == name {
			return in, nil
		}
		names = append(names, in.Name)
	}
	return infer.TensorMetadata{}, usagef("model '%s' has no input '%s', expected one of: %s", md.Name, name, strings.Join(names, ", "))
}

// fileInput reads the value of an input from a file: an array of numpy, a JSON array, the content as one element of BYTES, or the bytes
// of the elements of another type.
func (f *inputFiles) fileInput(in infer.TensorMetadata, file string) (client.Tensor, error) {
	data, err := f.readFile(file)
	if err != nil {
		return client.Tensor{}, err
	}
	d := tensor.ParseDType(in.Datatype)
	switch {
	case d == tensor.Bytes:
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), data), nil
	case dataset.IsArrays(data):
		list, err := dataset.ReadArrays(data)
		if err != nil {
			return client.Tensor{}, fmt.Errorf("file '%s': %w", file, err)
		}
		return arrayFor(in, file, list)
	case strings.EqualFold(filepath.Ext(file), ".json"):
		t, err := parseValue(in, string(bytes.TrimSpace(data)))
		if err != nil {
			err = fmt.Errorf("file '%s': %w", file, err)
		}
		return t, err
	case d.Size() == 0:
		return client.Tensor{}, fmt.Errorf("unknown type %s", in.Datatype)
	}
	if kind := http.DetectContentType(data); strings.HasPrefix(kind, "image/") {
		return client.Tensor{}, fmt.Errorf("file '%s' is an image (%s), expected elements of %s: send it to an ensemble whose first step is decode_resize", file, kind, in.Datatype)
	}
	shape := shapeOf(in.Shape, nil, len(data)/d.Size())
	if n := tensor.Of(shape...).Elements() * int64(d.Size()); n != int64(len(data)) {
		return client.Tensor{}, fmt.Errorf("file '%s' has %d bytes, expected %s %s: %d bytes for shape %s", file, len(data), in.Datatype, tensor.Of(in.Shape...), n, tensor.Of(shape...))
	}
	return client.Tensor{Name: in.Name, DType: d, Shape: shape, Data: data}, nil
}

// arrayFor returns the array for an input: the only one, or the one of its name.
func arrayFor(in infer.TensorMetadata, file string, list []dataset.Array) (client.Tensor, error) {
	i := 0
	if len(list) > 1 {
		i = slices.IndexFunc(list, func(a dataset.Array) bool { return a.Name == in.Name })
	}
	if i < 0 {
		return client.Tensor{}, fmt.Errorf("file '%s' has the arrays %s, expected one that is called '%s'", file, arrayNames(list), in.Name)
	}
	t := client.Tensor{Name: in.Name, DType: list[i].DType, Shape: list[i].Shape, Data: list[i].Data}
	if err := agree(in, &t); err != nil {
		return t, fmt.Errorf("file '%s': %w", file, err)
	}
	return t, nil
}

func arrayNames(list []dataset.Array) string {
	names := make([]string, len(list))
	for i, a := range list {
		names[i] = a.Name
	}
	return strings.Join(names, ", ")
}

// agree compares a tensor with the declaration of its input. A tensor without the batch dimension gets one of 1.
func agree(in infer.TensorMetadata, t *client.Tensor) error {
	if want := tensor.ParseDType(in.Datatype); t.DType != want {
		return fmt.Errorf("found elements of %s, expected %s", t.DType, want)
	}
	if len(t.Shape) == len(in.Shape)-1 && in.Shape[0] == -1 && within(t.Shape, in.Shape[1:]) {
		t.Shape = append([]int64{1}, t.Shape...)
	}
	if !within(t.Shape, in.Shape) {
		return fmt.Errorf("found the shape %s, expected %s", tensor.Of(t.Shape...), tensor.Of(in.Shape...))
	}
	return nil
}

// within reports whether a shape fits a declared one. -1 is any extent.
func within(shape, declared []int64) bool {
	return slices.EqualFunc(shape, declared, func(n, d int64) bool { return d == -1 || n == d })
}

// readData reads the content of --data.
func (a *inferCall) readData(data []byte, md *infer.Metadata) error {
	if !dataset.IsArrays(data) {
		return a.readRequest(data, md)
	}
	list, err := dataset.ReadArrays(data)
	if err != nil {
		return err
	}
	for _, x := range list {
		if x.Name == "" {
			if len(md.Inputs) != 1 {
				return fmt.Errorf("a .npy has one array, and model '%s' has %d inputs: expected a .npz with arrays of their names, or --input NAME=@FILE", md.Name, len(md.Inputs))
			}
			x.Name = md.Inputs[0].Name
		}
		in, err := inputOf(md, x.Name)
		if err != nil {
			return err
		}
		t := client.Tensor{Name: x.Name, DType: x.DType, Shape: x.Shape, Data: x.Data}
		if err := agree(in, &t); err != nil {
			return fmt.Errorf("array '%s': %w", x.Name, err)
		}
		a.req.Inputs = append(a.req.Inputs, t)
	}
	return nil
}

// bodyInput is an input of a request in the protocol's JSON form.
type bodyInput struct {
	Name       string          `json:"name"`
	Datatype   string          `json:"datatype"`
	Shape      []int64         `json:"shape"`
	Data       json.RawMessage `json:"data"`
	Parameters struct {
		Size   *int   `json:"binary_data_size"`
		Region string `json:"shared_memory_region"`
	} `json:"parameters"`
}

// readRequest reads a request in the protocol's JSON form, which binary tensors may follow.
func (a *inferCall) readRequest(data []byte, md *infer.Metadata) error {
	var body struct {
		ID      string      `json:"id"`
		Inputs  []bodyInput `json:"inputs"`
		Outputs []struct {
			Name string `json:"name"`
		} `json:"outputs"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&body); err != nil {
		return fmt.Errorf("expected a request as JSON, {\"inputs\": [...]}, or arrays of numpy: %w", err)
	}
	if len(body.Inputs) == 0 {
		return errors.New("the request has no inputs, expected {\"inputs\": [{\"name\", \"datatype\", \"shape\", \"data\"}]}")
	}
	tail := data[d.InputOffset():]
	for i := range body.Inputs {
		t, rest, err := body.Inputs[i].tensor(tail, md)
		if err != nil {
			return fmt.Errorf("input '%s': %w", body.Inputs[i].Name, err)
		}
		a.req.Inputs, tail = append(a.req.Inputs, t), rest
	}
	if rest := bytes.TrimSpace(tail); len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the request and are of no input", len(rest))
	}
	if a.req.ID == "" {
		a.req.ID = body.ID
	}
	for _, out := range body.Outputs {
		if !slices.Contains(a.req.Outputs, out.Name) {
			a.req.Outputs = append(a.req.Outputs, out.Name)
		}
	}
	return nil
}

// tensor returns the tensor of an input, and the rest of the binary data.
func (b *bodyInput) tensor(tail []byte, md *infer.Metadata) (t client.Tensor, rest []byte, err error) {
	in, err := inputOf(md, b.Name)
	if err != nil {
		return t, tail, err
	}
	t = client.Tensor{Name: b.Name, DType: tensor.ParseDType(b.Datatype), Shape: b.Shape}
	switch {
	case b.Parameters.Region != "":
		return t, tail, errors.New("it is in shared memory, expected its data")
	case t.DType != tensor.ParseDType(in.Datatype):
		return t, tail, fmt.Errorf("found datatype '%s', expected %s", b.Datatype, in.Datatype)
	case !within(b.Shape, in.Shape):
		return t, tail, fmt.Errorf("found the shape %s, expected %s", tensor.Of(b.Shape...), tensor.Of(in.Shape...))
	case b.Parameters.Size != nil:
		n := *b.Parameters.Size
		if n < 0 || n > len(tail) {
			return t, tail, fmt.Errorf("it has %d bytes, but %d are left in the file", n, len(tail))
		}
		t.Data = tail[:n:n]
		return t, tail[n:], nil
	case len(b.Data) == 0:
		return t, tail, errors.New("it has no data")
	}
	flat, err := parseValue(infer.TensorMetadata{Name: b.Name, Datatype: b.Datatype, Shape: b.Shape}, string(b.Data))
	if err != nil {
		return t, tail, err
	}
	if !slices.Equal(flat.Shape, b.Shape) || tensor.Of(b.Shape...).Elements() != elements(&flat) {
		return t, tail, fmt.Errorf("found %d elements, expected %d for the shape %v", elements(&flat), tensor.Of(b.Shape...).Elements(), b.Shape)
	}
	t.Data = flat.Data
	return t, tail, nil
}

// elements returns the number of elements of a tensor.
func elements(t *client.Tensor) int64 {
	if t.DType == tensor.Bytes {
		list, _ := t.Strings() // it was made from strings
		return int64(len(list))
	}
	return int64(len(t.Data) / t.DType.Size())
}
