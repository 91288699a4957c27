package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/client"
	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/internal/tracing"
)

// inferCall is one request of the command infer.
type inferCall struct {
	*program
	c      client.Manager
	req    client.Request
	inputs list
	data   string // the file with all inputs, unless empty
	trace  tracing.Context
	out    *output
	why    *inspector // why, unless nil, explains the time of the request
}

// infer sends a request to a running server and prints each response and the time of each step.
func (p *program) infer(ctx context.Context, args []string) error {
	fs := p.flags("infer")
	url, connect := urlFlag(fs, "http://, https://, grpc:// or grpcs://"), &connection{}
	connect.flags(fs)
	a := &inferCall{program: p, trace: tracing.NewContext(tracing.RetainState)}
	var outputs list
	fs.Var(&a.inputs, "input", "`NAME=VALUE`: VALUE is text, a number, a JSON array, or @FILE: an array of numpy (.npy), a JSON array (.json), or the bytes; @- is stdin; may be repeated")
	fs.StringVar(&a.data, "data", "", "`file` with the inputs: a request in the protocol's JSON form, or arrays of numpy (.npz); - is stdin")
	fs.Var(&outputs, "output", "`name` of an output to request; may be repeated; by default all")
	fs.StringVar(&a.req.Version, "version", "", "model `version`; by default the server chooses")
	fs.StringVar(&a.req.ID, "id", "", "request `id`")
	why := fs.Bool("why", false, "explain the time of the request, as tutti why does; over HTTP only")
	a.out = outputFlag(fs, formatJSON, formatYAML, formatTable)
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
	if err := a.read(md); err != nil {
		return err
	}
	t, err := a.request(ctx, a.c, &a.req)
	if _, refused := errors.AsType[*client.Error](err); err != nil && !refused {
		return err
	}
	if err == nil {
		fmt.Fprintf(a.stderr, "response in %s, trace %s\n", micros(t.took), a.trace.ID)
	}
	if err == nil && len(t.models) > 0 {
		table.Right(a.stderr, "", t.rows(a.req.Model, planOrder(ctx, a.c, a.req.Model)))
	}
	if a.why != nil {
		fmt.Fprintln(a.stderr)
		err = errors.Join(err, a.why.await(ctx, a.stderr, a.trace.ID.String()))
	}
	return withInputs(err, &a.req, md)
}

// withInputs returns the error of a request that the server refused, with the flags to write if it had no inputs.
func withInputs(err error, req *client.Request, md *infer.Metadata) error {
	refusal, refused := errors.AsType[*client.Error](err)
	if !refused || len(req.Inputs) > 0 || len(md.Inputs) == 0 || refusalStatus(refusal.Status) != exitFailure {
		return err
	}
	var t strings.Builder
	for _, in := range md.Inputs {
		fmt.Fprintf(&t, " --input %s=VALUE (%s %s)", in.Name, in.Datatype, brackets(in.Shape, len(in.Shape)))
	}
	return &failure{exitUsage, errorWith(err, "\nexpected"+t.String()+", or --data FILE")}
}

// request sends the request and prints the response, or the responses of a decoupled model as they come.
func (a *inferCall) request(ctx context.Context, c client.Client, req *client.Request) (*timing, error) {
	several, err := c.Decoupled(ctx, req.Model, req.Version)
	if _, refused := errors.AsType[*client.Error](err); err != nil && !refused { // not every server has model metadata
		return nil, err
	}
	if !several {
		t, err := timedInfer(ctx, c, req)
		if err == nil {
			err = a.write(t.resp)
		}
		return t, err
	}
	s, ok := c.(client.Streamer)
	if !ok {
		return nil, fmt.Errorf("model '%s' is decoupled: a request has any number of responses, "+
			"expected --url grpc://HOST:PORT, grpcs:// with TLS (over HTTP, POST to /v2/models/%[1]s/generate_stream)", req.Model)
	}
	return measure(ctx, c, req.Model, func() (*client.Response, error) {
		return nil, s.Stream(ctx, req, func(resp *client.Response) error { return a.write(resp) })
	})
}

// write prints a response.
func (a *inferCall) write(resp *client.Response) error {
	var b bytes.Buffer
	switch a.out.format {
	case formatYAML:
		if err := writeResponse(&b, resp); err != nil {
			return err
		}
		if _, err := io.WriteString(a.stdout, "---\n"); err != nil { // a decoupled model sends several
			return err
		}
		return writeYAML(a.stdout, json.RawMessage(b.Bytes()))
	case formatTable:
		rows := [][]string{{"OUTPUT", "DATATYPE", "SHAPE", "VALUES"}}
		for i := range resp.Outputs {
			out := &resp.Outputs[i]
			rows = append(rows, []string{out.Name, out.DType.String(), brackets(out.Shape, len(out.Shape)), strings.ReplaceAll(shortData(out), "\n", `\n`)})
		}
		table.Left(a.stdout, rows)
		if routes := routesOf(resp); len(routes) > 1 {
			fmt.Fprintln(a.stdout)
			table.Left(a.stdout, routes)
		}
		return nil
	}
	return writeResponse(a.stdout, resp)
}

// routesOf returns the rows of a table of the routes of a response, the head included: which model executed each step that is divided.
func routesOf(resp *client.Response) [][]string {
	rows := [][]string{{"ROUTE", "EXECUTED BY"}}
	for _, key := range slices.Sorted(maps.Keys(resp.Parameters)) {
		if step, ok := strings.CutPrefix(key, "route."); ok {
			rows = append(rows, []string{step, fmt.Sprint(resp.Parameters[key])})
		}
	}
	return rows
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
