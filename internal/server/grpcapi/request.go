package grpcapi

import (
	"cmp"
	"context"
	"math"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/internal/wire"
)

// decoder converts a message into a request.
type decoder struct {
	svc      *service
	msg      *message
	req      *infer.Request
	about    *infer.Description
	id       string
	received tracing.Interval // when it was read
	raw      int              // number of used raw contents
	// emptyFinal is the value of the parameter with that name.
	emptyFinal bool
}

// decode reads the message and frees its buffers. Without an error the caller owns the request. An unknown or
// unready model is reported before errors in the request, as clients expect.
//
// hot: no allocation in steady state but of the client's own strings.
func (d *decoder) decode(ctx context.Context, unary bool) error {
	defer d.msg.free()
	d.req = infer.NewRequest()
	err := d.read(ctx, unary)
	d.received.End()
	d.req.Origin = tracing.Origin{Read: d.received, Start: tracing.GRPCWaitReadStart, Done: tracing.GRPCWaitReadEnd}
	d.readTraceContext(ctx)
	if d.svc.set.Shares != nil {
		d.req.SetClient(cmp.Or(d.msg.charge.Client(), d.svc.clientOf(ctx)))
	}
	d.req.SetBackground(metadata.ValueFromIncomingContext(ctx, infer.BackgroundHeader))
	if limit := metadata.ValueFromIncomingContext(ctx, infer.TimeLimitHeader); err == nil && limit != nil {
		err = d.req.SetTimeLimit(limit, telemetry.Now())
	}
	if err == nil {
		return nil
	}
	d.refuse(err)
	if err == wire.ErrMalformed { //nolint:errorlint // never wrapped
		err = grpcstatus.Error(codes.Internal, "grpc: failed to unmarshal the received message: proto: "+wire.ErrMalformed.Error()) // as grpc does
	}
	return err
}

// refuse discards the request and records it in a trace.
func (d *decoder) refuse(err error) {
	if d.svc.set.Tracer.On() {
		version := int64(0)
		if d.about != nil {
			version = d.about.Version
		}
		d.svc.set.Tracer.RecordRefusal(string(d.msg.model), version, string(d.msg.id), &d.req.Origin, err)
	}
	d.req.Release()
	d.req = nil
}

// read builds the request from the message.
func (d *decoder) read(ctx context.Context, unary bool) error {
	if err := d.msg.scan(); err != nil {
		return err
	}
	if err := d.model(ctx); err != nil {
		return err
	}
	if unary && d.about.Decoupled {
		return status.Errorf(status.Unsupported, "ModelInfer RPC doesn't support models with decoupled transaction policy")
	}
	if err := d.requestParams(); err != nil {
		return err
	}
	if err := d.forward(ctx); err != nil {
		return err
	}
	for _, b := range d.msg.inputs {
		if err := d.input(b); err != nil {
			return err
		}
	}
	for _, b := range d.msg.outputs {
		if err := d.output(b); err != nil {
			return err
		}
	}
	if err := d.req.CheckNames(); err != nil {
		return err
	}
	return d.req.CheckInputs()
}

// readTraceContext reads the trace that the request belongs to.
func (d *decoder) readTraceContext(ctx context.Context) {
	if !d.svc.set.Tracer.On() {
		return
	}
	if parent := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(parent) == 1 {
		d.req.Origin.Follow(parent[0], strings.Join(metadata.ValueFromIncomingContext(ctx, "tracestate"), ","))
	}
}

func (d *decoder) model(ctx context.Context) (err error) {
	m := d.msg
	d.id = string(m.id)
	d.req.ID, d.req.Model = d.id, d.svc.names.Get(m.model)
	if d.req.Version, err = infer.ParseVersion(d.svc.names.Get(m.version)); err != nil {
		return err
	}
	if err = d.svc.mayInfer(ctx, d.req.Model); err != nil {
		return err
	}
	d.about, err = d.svc.set.Catalog.Describe(d.req.Model, d.req.Version)
	return err
}

// input copies one input, raw, typed or from shared memory, into its own memory.
func (d *decoder) input(b []byte) error {
	in, err := d.msg.tensorOf(b, true)
	if err != nil {
		return err
	}
	name := d.svc.names.Get(in.name)
	d.req.Inputs = append(d.req.Inputs, infer.Named{Name: name, Tensor: tensor.Tensor{
		DType: tensor.ParseDType(string(in.dtype)), Shape: tensor.Of(in.dims...),
	}})
	to := &d.req.Inputs[len(d.req.Inputs)-1]
	t := &to.Tensor
	if _, err := infer.ShapeSize(name, t.DType, t.Shape); err != nil {
		return err
	}
	r, shared, err := d.region(name, in)
	switch {
	case err != nil:
		return err
	case shared:
		return d.sharedInput(to, in, &r)
	case len(d.msg.raw) > 0:
		return d.rawInput(to, in)
	default:
		return d.typedInput(to, in)
	}
}

// rawInput uses the next raw content. Surplus ones are ignored.
func (d *decoder) rawInput(to *infer.Named, in *tensorFields) error {
	if in.typed {
		return status.Errorf(status.InvalidArg, "contents field must not be specified when using raw_input_contents for '%s' for model '%s'",
			to.Name, d.req.Model)
	}
	if d.raw >= len(d.msg.raw) {
		return d.noData(to)
	}
	data := d.msg.raw[d.raw]
	d.raw++
	if err := d.fill(&to.Tensor, data.N, data.N); err != nil {
		return err
	}
	d.msg.cursor.Copy(to.Tensor.Bytes(), data)
	return nil
}

func (d *decoder) noData(in *infer.Named) error {
	return status.Errorf(status.InvalidArg, "unable to find data for input tensor '%s' for model '%s' in request.", in.Name, d.req.Model)
}

// fill allocates n bytes for t. charged bytes of it are charged already.
func (d *decoder) fill(t *tensor.Tensor, n, charged int) (err error) {
	if err := d.msg.charge.Acquire(int64(n - charged)); err != nil {
		return err
	}
	t.Buf, err = d.svc.set.Alloc.Alloc(n)
	t.Len = n
	return err
}

// typedInput converts an input's typed contents.
func (d *decoder) typedInput(to *infer.Named, in *tensorFields) error {
	t := &to.Tensor
	if !in.typed && t.Shape.Elements() != 0 {
		return d.noData(to)
	}
	c, err := wire.CountContents(in.contents)
	if err != nil {
		return err
	}
	used := wire.FieldOf[t.DType]
	for num, n := range c.N {
		if n > 0 && num != int(used) {
			return status.Errorf(status.InvalidArg,
				"unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', expected datatype '%s'",
				to.Name, d.req.Model, wire.ContentFields[num].DType, t.DType)
		}
	}
	if used == 0 && t.Shape.Elements() != 0 {
		return d.noData(to) // FP16 and BF16 have no field
	}
	size := c.Bytes
	if t.DType != tensor.Bytes {
		want := t.Shape.Elements()
		size = c.N[used] * t.DType.Size()
		if int64(c.N[used]) != want {
			return d.req.SizeError(to.Name, want*int64(t.DType.Size()), int64(size))
		}
	}
	if err := d.fill(t, size, len(in.contents)); err != nil {
		return err
	}
	wire.FillContents(in.contents, t)
	return nil
}

// output adds a requested output and its options.
func (d *decoder) output(b []byte) error {
	out, err := d.msg.tensorOf(b, false)
	if err != nil {
		return err
	}
	w := outputOptions{name: d.svc.names.Get(out.name)}
	if w.classes, err = classification(out); err != nil {
		return err
	}
	r, shared, err := d.region(w.name, out)
	if err != nil {
		return err
	}
	if shared {
		if w.classes > 0 {
			return status.Errorf(status.InvalidArg, "output can't set both 'shared_memory_region' and 'classification'")
		}
		if w.window, err = d.svc.set.Regions.Open(r.name, r.offset, r.size); err != nil {
			return err
		}
		w.region = r
		d.msg.windows = append(d.msg.windows, w.window)
		if w.window.Device() {
			d.req.Into = append(d.req.Into, infer.Target{Output: w.name, Buf: w.window.Buffer()})
		}
	}
	d.req.Outputs = append(d.req.Outputs, w.name)
	if shared || w.classes > 0 {
		d.msg.wants = append(d.msg.wants, w)
	}
	return nil
}

// classification returns the requested number of classes; 0: none.
func classification(out *tensorFields) (int, error) {
	p := out.find("classification")
	switch {
	case p == nil:
		return 0, nil
	case !p.Set || p.Kind != infer.ParamInt:
		return 0, status.Errorf(status.InvalidArg, "invalid value type for 'classification' parameter, expected int64_param")
	case p.Int <= 0:
		return 0, status.Errorf(status.InvalidArg, "invalid value for 'classification' parameter, expected >= 0")
	}
	return int(min(p.Int, math.MaxInt32)), nil
}

// forward turns selected metadata into parameters.
func (d *decoder) forward(ctx context.Context) error {
	pattern := d.svc.set.ForwardHeaders
	if pattern == nil {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	for key, values := range md {
		if strings.HasPrefix(key, ":") || key == "content-type" || len(values) == 0 || !pattern.MatchString(key) {
			continue
		}
		if err := d.req.Forward(key, values[len(values)-1]); err != nil {
			return err
		}
	}
	return nil
}
