package tutti

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"tutti/client"
	coreinfer "tutti/core/infer"
	"tutti/core/tensor"
)

const inferUsage = "[--url URL] MODEL --input NAME=VALUE ..."

// infer asks a running server and prints its answer, or all of them, and the time per step.
func (p *program) infer(ctx context.Context, args []string) error {
	fs := p.flags("infer", inferUsage)
	url := fs.String("url", "http://127.0.0.1:8000", "`URL` of the server, http:// or grpc://")
	var inputs, outputs list
	fs.Var(&inputs, "input", "`NAME=VALUE`: VALUE is text, a number, a JSON array, or @FILE for the bytes of a file; may be repeated")
	fs.Var(&outputs, "output", "`name` of an output to ask for; may be repeated; all when left out")
	req := client.Request{}
	fs.StringVar(&req.Version, "version", "", "model `version`, the latest when left out")
	fs.StringVar(&req.ID, "id", "", "request `id`")
	rest, err := parse(fs, args)
	switch {
	case err != nil:
		return err
	case len(rest) != 1:
		return usagef("expected the name of one model: tutti infer %s", inferUsage)
	}
	req.Model, req.Outputs = rest[0], outputs
	c, err := client.Dial(*url)
	if err != nil {
		return &usageError{err}
	}
	return errors.Join(p.askOnce(ctx, c, &req, inputs), c.Close())
}

func (p *program) askOnce(ctx context.Context, c client.Client, req *client.Request, inputs []string) error {
	md, err := c.Metadata(ctx, req.Model)
	if err != nil {
		return err
	}
	for _, arg := range inputs {
		t, err := parseInput(arg, md)
		if err != nil {
			return err
		}
		req.Inputs = append(req.Inputs, t)
	}
	t, err := p.answer(ctx, c, req)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stderr, "answered in %s\n", micros(t.took))
	writeColumns(p.stderr, "", t.rows(req.Model, nil))
	return nil
}

// answer prints the answer to a request, or each as it comes where there may be several.
func (p *program) answer(ctx context.Context, c client.Client, req *client.Request) (*timed, error) {
	several, err := c.Decoupled(ctx, req.Model, req.Version)
	if _, refused := errors.AsType[*client.Error](err); err != nil && !refused { // not every server tells
		return nil, err
	}
	if !several {
		t, err := ask(ctx, c, req)
		if err == nil {
			err = writeAnswer(p.stdout, t.resp)
		}
		return t, err
	}
	s, ok := c.(client.Streamer)
	if !ok {
		return nil, fmt.Errorf("model '%s' is decoupled: it answers a request any number of times, "+
			"expected --url grpc://HOST:PORT (over HTTP, POST to /v2/models/%[1]s/generate_stream)", req.Model)
	}
	return measure(ctx, c, req.Model, func() (*client.Response, error) {
		return nil, s.Stream(ctx, req, func(resp *client.Response) error { return writeAnswer(p.stdout, resp) })
	})
}

// parseInput makes the tensor of an argument NAME=VALUE as the model declares it.
func parseInput(arg string, md *coreinfer.Metadata) (client.Tensor, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return client.Tensor{}, usagef("--input is '%s', expected NAME=VALUE", arg)
	}
	var names []string
	for _, in := range md.Inputs {
		if in.Name == name {
			return parseValue(in, value)
		}
		names = append(names, in.Name)
	}
	return client.Tensor{}, fmt.Errorf("model '%s' has no input '%s', expected one of: %s", md.Name, name, strings.Join(names, ", "))
}

func parseValue(in coreinfer.TensorMetadata, value string) (client.Tensor, error) {
	if file, ok := strings.CutPrefix(value, "@"); ok {
		return fileInput(in, file)
	}
	text := in.Datatype == tensor.Bytes.String()
	data := []byte(value)
	switch {
	case text && (!strings.HasPrefix(value, "[") || !json.Valid(data)):
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), value), nil
	case !strings.HasPrefix(value, "["):
		data = []byte("[" + value + "]")
	}
	flat, nested, n, err := flatten(data)
	if err != nil {
		return client.Tensor{}, fmt.Errorf("input '%s': %w", in.Name, err)
	}
	shape := shapeOf(in.Shape, nested, n)
	whole, err := json.Marshal(map[string]any{"name": in.Name, "datatype": in.Datatype, "shape": shape, "data": json.RawMessage(flat)})
	if err != nil {
		return client.Tensor{}, err
	}
	var t client.Tensor
	return t, json.Unmarshal(whole, &t)
}

// fileInput makes one BYTES element, or the elements of another type, of a file.
func fileInput(in coreinfer.TensorMetadata, file string) (client.Tensor, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return client.Tensor{}, err
	}
	if in.Datatype == tensor.Bytes.String() {
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), data), nil
	}
	d := tensor.ParseDType(in.Datatype)
	if d.Size() == 0 {
		return client.Tensor{}, fmt.Errorf("input '%s' has unknown type %s", in.Name, in.Datatype)
	}
	return client.Tensor{Name: in.Name, DType: d, Shape: shapeOf(in.Shape, nil, len(data)/d.Size()), Data: data}, nil
}

// flatten takes the inner brackets out of a JSON array. nested is the extent of each
// level of the first elements.
func flatten(data []byte) (flat []byte, nested []int64, n int, err error) {
	var tree []any
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return nil, nil, 0, fmt.Errorf("the value is no JSON array: %w", err)
	}
	leaves := []any{}
	var walk func(level []any, depth int)
	walk = func(level []any, depth int) {
		if depth == len(nested) {
			nested = append(nested, int64(len(level)))
		}
		for _, x := range level {
			if inner, ok := x.([]any); ok {
				walk(inner, depth+1)
			} else {
				leaves = append(leaves, x)
			}
		}
	}
	walk(tree, 0)
	flat, err = json.Marshal(leaves)
	return flat, nested, len(leaves), err
}

// shapeOf returns the shape of n elements: as they are nested when that has as many
// dimensions as the input, else as declared, where the last variable dimension takes
// what the others leave and they are 1.
func shapeOf(declared, nested []int64, n int) []int64 {
	if len(nested) == len(declared) {
		return nested
	}
	shape := append([]int64{}, declared...)
	last, known := -1, int64(1)
	for i, d := range shape {
		if d >= 0 {
			known *= d
			continue
		}
		shape[i], last = 1, i
	}
	if last >= 0 && known > 0 {
		shape[last] = int64(n) / known
	}
	return shape
}

// jsonBody returns a request as JSON, without the elements' binary form.
func jsonBody(req *client.Request) ([]byte, error) {
	inputs := make([]*client.Tensor, len(req.Inputs))
	for i := range req.Inputs {
		inputs[i] = &req.Inputs[i]
	}
	return json.Marshal(map[string]any{"inputs": inputs})
}

// writeAnswer prints an answer as JSON with a line per output. Elements that JSON
// cannot hold are left out.
func writeAnswer(w io.Writer, resp *client.Response) error {
	head, err := json.Marshal(map[string]string{"model_name": resp.Model, "model_version": resp.Version, "id": resp.ID})
	if err != nil {
		return err
	}
	lines := make([]string, len(resp.Outputs))
	for i := range resp.Outputs {
		out := &resp.Outputs[i]
		line, err := json.Marshal(out)
		if err != nil {
			line, err = json.Marshal(map[string]any{
				"name": out.Name, "datatype": out.DType.String(), "shape": out.Shape, "bytes": len(out.Data),
			})
		}
		if err != nil {
			return err
		}
		lines[i] = "  " + string(line)
	}
	_, err = fmt.Fprintf(w, "%s, \"outputs\": [\n%s\n]}\n", bytes.TrimSuffix(head, []byte("}")), strings.Join(lines, ",\n"))
	return err
}
