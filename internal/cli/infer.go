package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/client"
	coreinfer "github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/internal/tracing"
)

// inferCall is one request of the command infer.
type inferCall struct {
	*program
	c      client.Manager
	req    client.Request
	inputs list
	trace  tracing.Context
	why    *inspector // why, unless nil, explains the time of the request
}

// infer sends a request to a running server and prints each response and the time of each step.
func (p *program) infer(ctx context.Context, args []string) error {
	fs := p.flags("infer")
	url, connect := urlFlag(fs, "http://, https://, grpc:// or grpcs://"), &connection{}
	connect.flags(fs)
	a := &inferCall{program: p, trace: tracing.NewContext(tracing.RetainState)}
	var outputs list
	fs.Var(&a.inputs, "input", "`NAME=VALUE`: VALUE is text, a number, a JSON array, or @FILE for the bytes of a file; may be repeated")
	fs.Var(&outputs, "output", "`name` of an output to request; may be repeated; by default all")
	fs.StringVar(&a.req.Version, "version", "", "model `version`; by default the server chooses")
	fs.StringVar(&a.req.ID, "id", "", "request `id`")
	why := fs.Bool("why", false, "explain the time of the request, as tutti why does; over HTTP only")
	rest, err := arguments(fs, args, 1, 1, "the name of one model")
	if err != nil {
		return err
	}
	a.req.Model, a.req.Outputs = rest[0], outputs
	a.req.TraceParent, a.req.TraceState = a.trace.Parent(), a.trace.State
	if *why {
		if a.why, err = connect.inspector(*url); err != nil {
			return fmt.Errorf("%w; without --why the trace id is printed, for tutti why --url http://HOST:PORT", err)
		}
	}
	if a.c, err = connect.dial(*url); err != nil {
		return err
	}
	return errors.Join(connect.explain(ctx, *url, a.run(ctx)), a.c.Close())
}

func (a *inferCall) run(ctx context.Context) error {
	md, err := a.c.Metadata(ctx, a.req.Model)
	if err != nil {
		return explainModel(ctx, a.c, a.req.Model, err)
	}
	for _, arg := range a.inputs {
		t, err := parseInput(arg, md)
		if err != nil {
			return err
		}
		a.req.Inputs = append(a.req.Inputs, t)
	}
	t, err := a.request(ctx, a.c, &a.req)
	if _, refused := errors.AsType[*client.Error](err); err != nil && !refused {
		return err
	}
	if err == nil {
		fmt.Fprintf(a.stderr, "answered in %s, trace %s\n", micros(t.took), a.trace.ID)
	}
	if err == nil && len(t.models) > 0 {
		table.Right(a.stderr, "", t.rows(a.req.Model, planOrder(ctx, a.c, a.req.Model)))
	}
	if a.why != nil {
		fmt.Fprintln(a.stderr)
		err = errors.Join(err, a.why.await(ctx, a.stderr, a.trace.ID.String()))
	}
	return err
}

// request sends the request and prints the response, or the responses of a decoupled model as they come.
func (p *program) request(ctx context.Context, c client.Client, req *client.Request) (*timing, error) {
	several, err := c.Decoupled(ctx, req.Model, req.Version)
	if _, refused := errors.AsType[*client.Error](err); err != nil && !refused { // not every server has model metadata
		return nil, err
	}
	if !several {
		t, err := timedInfer(ctx, c, req)
		if err == nil {
			err = writeResponse(p.stdout, t.resp)
		}
		return t, err
	}
	s, ok := c.(client.Streamer)
	if !ok {
		return nil, fmt.Errorf("model '%s' is decoupled: it answers a request any number of times, "+
			"expected --url grpc://HOST:PORT, grpcs:// with TLS (over HTTP, POST to /v2/models/%[1]s/generate_stream)", req.Model)
	}
	return measure(ctx, c, req.Model, func() (*client.Response, error) {
		return nil, s.Stream(ctx, req, func(resp *client.Response) error { return writeResponse(p.stdout, resp) })
	})
}

// writeResponse prints a response as JSON with a line per output. It omits elements that JSON cannot hold.
func writeResponse(w io.Writer, resp *client.Response) error {
	head, err := json.Marshal(struct {
		ID      string `json:"id,omitempty"`
		Model   string `json:"model_name"`
		Version string `json:"model_version"`
	}{resp.ID, resp.Model, resp.Version})
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

// parseInput converts an argument NAME=VALUE to a tensor of the model's declared type. For example: INPUT0=[1,2,3].
func parseInput(arg string, md *coreinfer.Metadata) (client.Tensor, error) {
	name, value, ok := strings.Cut(arg, "=")
	if !ok {
		return client.Tensor{}, usagef("--input is '%s', expected NAME=VALUE", arg)
	}
	var names []string
	for _, in := range md.Inputs {
		if in.Name == name {
			t, err := parseValue(in, value)
			if err != nil {
				err = fmt.Errorf("input '%s': %w", name, err)
			}
			return t, err
		}
		names = append(names, in.Name)
	}
	return client.Tensor{}, usagef("model '%s' has no input '%s', expected one of: %s", md.Name, name, strings.Join(names, ", "))
}

func parseValue(in coreinfer.TensorMetadata, value string) (client.Tensor, error) {
	if file, ok := strings.CutPrefix(value, "@"); ok {
		return fileInput(in, file)
	}
	if d := tensor.ParseDType(in.Datatype); d == tensor.FP16 || d == tensor.BF16 {
		return client.Tensor{}, fmt.Errorf("values of %s have no text form, expected @FILE with their bytes", in.Datatype)
	}
	text := in.Datatype == tensor.Bytes.String()
	data := []byte(value)
	form, is := elementOf(in.Datatype)
	switch {
	case text && (!strings.HasPrefix(value, "[") || !json.Valid(data)):
		return client.Text(in.Name, shapeOf(in.Shape, nil, 1), value), nil
	case !strings.HasPrefix(value, "["):
		if data = []byte("[" + value + "]"); !json.Valid(data) {
			return client.Tensor{}, fmt.Errorf("'%s' is no value of %s, expected %s, a JSON array of such, or @FILE", value, in.Datatype, form)
		}
	}
	leaves, nested, err := flatten(data)
	if err != nil {
		return client.Tensor{}, err
	}
	for i, x := range leaves {
		if !is(x) {
			found, _ := json.Marshal(x) //nolint:errchkjson // it was decoded from JSON
			return client.Tensor{}, fmt.Errorf("element %d is %s, expected %s (%s)", i, found, form, in.Datatype)
		}
	}
	whole, err := json.Marshal(map[string]any{"name": in.Name, "datatype": in.Datatype, "shape": shapeOf(in.Shape, nested, len(leaves)), "data": leaves})
	if err != nil {
		return client.Tensor{}, err
	}
	var t client.Tensor
	return t, json.Unmarshal(whole, &t)
}

// fileInput reads a file as one element of BYTES, or as the elements of another type.
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
		return client.Tensor{}, fmt.Errorf("unknown type %s", in.Datatype)
	}
	return client.Tensor{Name: in.Name, DType: d, Shape: shapeOf(in.Shape, nil, len(data)/d.Size()), Data: data}, nil
}

// flatten returns the elements of a nested JSON array. nested has the extent of each level; all arrays of a level
// must have the same.
func flatten(data []byte) (leaves []any, nested []int64, err error) {
	var tree []any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	switch err := d.Decode(&tree); {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, nil, errors.New("the value is no JSON array: it ends before its last ']'")
	case err != nil:
		return nil, nil, fmt.Errorf("the value is no JSON array: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("the value is no JSON array: something follows its last ']'")
	}
	leaves = []any{}
	nested, err = appendLeaves(tree, 0, nil, &leaves)
	return leaves, nested, err
}

// appendLeaves appends the elements below level, and to nested the extents of levels that are new.
func appendLeaves(level []any, depth int, nested []int64, leaves *[]any) ([]int64, error) {
	if depth == len(nested) {
		nested = append(nested, int64(len(level)))
	}
	if int64(len(level)) != nested[depth] {
		return nil, fmt.Errorf("arrays beside each other have %d and %d elements, expected as many in each", nested[depth], len(level))
	}
	for _, x := range level {
		inner, ok := x.([]any)
		switch {
		case !ok && depth+1 < len(nested):
			return nil, errors.New("an element stands beside an array, expected only arrays there")
		case !ok:
			*leaves = append(*leaves, x)
			continue
		case depth+1 == len(nested) && len(*leaves) > 0:
			return nil, errors.New("an array stands beside an element, expected only elements there")
		}
		var err error
		if nested, err = appendLeaves(inner, depth+1, nested, leaves); err != nil {
			return nil, err
		}
	}
	return nested, nil
}

// elementOf returns the JSON form of an element of a data type, for errors, and a function that checks an element.
func elementOf(datatype string) (form string, is func(x any) bool) {
	d := tensor.ParseDType(datatype)
	bits := d.Size() * 8
	number := func(parse func(s string) error) func(x any) bool {
		return func(x any) bool {
			n, ok := x.(json.Number)
			return ok && parse(n.String()) == nil
		}
	}
	switch d {
	case tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64:
		form = fmt.Sprintf("a whole number from %d to %d", int64(-1)<<(bits-1), int64(1)<<(bits-1)-1)
		return form, number(func(s string) error { _, err := strconv.ParseInt(s, 10, bits); return err })
	case tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		form = fmt.Sprintf("a whole number from 0 to %d", ^uint64(0)>>(64-bits))
		return form, number(func(s string) error { _, err := strconv.ParseUint(s, 10, bits); return err })
	case tensor.FP32, tensor.FP64:
		return "a number", number(func(s string) error { _, err := strconv.ParseFloat(s, bits); return err })
	case tensor.Bool:
		return "true or false", func(x any) bool { _, ok := x.(bool); return ok }
	case tensor.Bytes:
		return "a text in quotes", func(x any) bool { _, ok := x.(string); return ok }
	}
	return "nothing", func(any) bool { return false }
}

// shapeOf returns the shape of n elements: nested if it has as many dimensions as the input, otherwise the declared
// shape, in which the last variable dimension has the remaining extent and other variable dimensions are 1.
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
