package textapi

import (
	"context"
	"sync/atomic"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/recovery"
	"github.com/tutti-server/tutti/internal/server/httpapi/jsonwire"
	"github.com/tutti-server/tutti/internal/server/httpapi/transport"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
)

// bulkBatches is how many batches of one request are executed at a time: enough to keep the instances of a model and the steps before
// them busy, and few enough to leave room in their queues for other clients.
const bulkBatches = 8

// batch is a request to the model: a range of the items.
type batch struct {
	first, end int
	resp       *infer.Response
	err        error
}

// result is what became of a text.
type result struct {
	resp *infer.Response
	row  int // in the response
	rows int // of the response
	err  error
}

// errSkipped marks a batch that was not executed because another one has failed.
var errSkipped = status.Errorf(status.Cancelled, "another text of the request has failed")

// run executes the texts, and sets their results. It returns the first error, unless texts have errors of their own.
func (x *exchange) run() error {
	if err := x.charge(); err != nil {
		return err
	}
	x.divide()
	x.execute()
	if x.fields.itemErrors {
		x.isolate()
	}
	for i := range x.batches {
		b := &x.batches[i]
		if b.err != nil && !x.fields.itemErrors && b.err != errSkipped { //nolint:errorlint // execute's own
			return b.err
		}
		for n, it := range x.items[b.first:b.end] {
			x.results[it.index] = result{b.resp, n, b.end - b.first, b.err}
		}
		if b.resp != nil {
			x.in.Charge.Add(b.resp.Size())
		}
	}
	return nil
}

// charge counts the memory of the inputs.
func (x *exchange) charge() error {
	size := int64(0)
	for i := range x.items {
		size += int64(x.items[i].size)
	}
	if x.fields.ids {
		size *= 8
	}
	return x.in.Charge.Acquire(size + int64(x.fields.queryLen*len(x.items)))
}

// divide makes batches of the items. Token ids share a batch with neighbours of the same number.
func (x *exchange) divide() {
	most := max(1, x.model.desc.MaxBatch)
	for first := 0; first < len(x.items); {
		end := first + 1
		for end < len(x.items) && end-first < most && (!x.fields.ids || x.items[end].size == x.items[first].size) {
			end++
		}
		x.batches = append(x.batches, batch{first: first, end: end})
		first = end
	}
}

// execute executes the batches that have neither a response nor an error, some at a time.
func (x *exchange) execute() {
	if len(x.batches) == 1 {
		x.executeBatch(x.r.Context(), &x.p, &x.batches[0])
		return
	}
	x.executeMany()
}

// executeMany is separate so that a single batch does not allocate its closures.
func (x *exchange) executeMany() {
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	var next atomic.Int64
	var failed atomic.Bool
	var group recovery.Group
	for range min(bulkBatches, len(x.batches)) {
		group.Go(func() {
			var p jsonwire.Parser
			p.Begin(x.body)
			for i := int(next.Add(1)) - 1; i < len(x.batches); i = int(next.Add(1)) - 1 {
				b := &x.batches[i]
				if b.resp != nil || b.err != nil {
					continue
				}
				if failed.Load() {
					b.err = errSkipped
					continue
				}
				x.executeBatch(ctx, &p, b)
				if b.err != nil && !x.fields.itemErrors && !failed.Swap(true) {
					cancel()
				} else if b.err != nil && failed.Load() {
					b.err = errSkipped // most likely cancelled
				}
			}
		})
	}
	group.Wait()
}

// isolate executes the texts of batches that have failed alone, so that only those fail that are the cause. An error that may pass is not
// one of a text.
func (x *exchange) isolate() {
	var all []batch
	again := false
	for i := range x.batches {
		b := x.batches[i]
		if b.err == nil || b.end-b.first == 1 || status.Retryable(b.err) || x.r.Context().Err() != nil {
			all = append(all, b)
			continue
		}
		again = true
		for n := b.first; n < b.end; n++ {
			all = append(all, batch{first: n, end: n + 1})
		}
	}
	if again {
		x.batches = all
		x.executeMany()
	}
}

func (x *exchange) executeBatch(ctx context.Context, p *jsonwire.Parser, b *batch) {
	req, err := x.request(p, b.first, b.end)
	if err != nil {
		b.err = err
		return
	}
	call := infer.NewCall()
	x.srv.Infer.Submit(ctx, req, call)
	if b.resp, b.err = call.Wait(); b.err == nil && b.resp == nil {
		b.err = status.Errorf(status.Internal, "model '%s' has sent no response", x.model.name)
	}
}

// request returns a request with the items from first to below end.
func (x *exchange) request(p *jsonwire.Parser, first, end int) (*infer.Request, error) {
	req := x.newRequest()
	err := x.fill(p, req, first, end)
	if err == nil {
		err = x.addExtra(p, req)
	}
	if err == nil {
		err = x.prepare(req)
	}
	if err != nil {
		x.srv.Tracer.RecordRefusal(x.model.name, x.model.desc.Version, req.ID, &req.Origin, err)
		req.Release()
		return nil, err
	}
	return req, nil
}

// newRequest returns a request to the model without inputs.
func (x *exchange) newRequest() *infer.Request {
	req := infer.NewRequest()
	req.Model, req.Version = x.model.name, x.model.version
	req.Outputs = append(req.Outputs, x.outputs...)
	x.srv.SetOrigin(req, x.r.Header, x.span, x.in.Charge.Client(), x.route)
	return req
}

// prepare sets what the headers say, and checks the inputs.
func (x *exchange) prepare(req *infer.Request) error {
	if limit := x.r.Header[transport.TimeLimitHeader]; limit != nil {
		if err := req.SetTimeLimit(limit, telemetry.Now()); err != nil {
			return err
		}
	}
	if err := x.srv.ForwardHeaders(req, x.r); err != nil {
		return err
	}
	return req.CheckInputs()
}

// fill adds the inputs of the items.
func (x *exchange) fill(p *jsonwire.Parser, req *infer.Request, first, end int) error {
	if x.fields.ids {
		return x.fillIDs(p, req, first, end)
	}
	size := 0
	for _, it := range x.items[first:end] {
		size += int(it.size)
	}
	dst, err := x.addInput(req, x.input(x.api.Text), end-first, size)
	if err != nil {
		return err
	}
	dst = dst[:0]
	for _, it := range x.items[first:end] {
		p.Reset(it.at)
		s, err := p.Str()
		if err != nil {
			return err
		}
		dst = tensor.AppendBytes(dst, s)
	}
	if x.fields.queryLen == 0 {
		return nil
	}
	if dst, err = x.addInput(req, x.input(x.api.Query), end-first, x.fields.queryLen*(end-first)); err != nil {
		return err
	}
	p.Reset(x.fields.query)
	s, err := p.Str()
	dst = dst[:0]
	for range end - first {
		dst = tensor.AppendBytes(dst, s)
	}
	return err
}

// addInput adds an input of rows, and returns its memory, which has the given size.
func (x *exchange) addInput(req *infer.Request, port *infer.Port, rows, size int) ([]byte, error) {
	b, err := x.srv.Alloc.Alloc(size)
	if err != nil {
		return nil, err
	}
	t := tensor.Tensor{DType: port.DType, Shape: port.Shape, Buf: b, Len: size}
	for i, d := range port.Shape.Dims() {
		if i == 0 && x.model.desc.MaxBatch > 0 {
			t.Shape.SetDim(0, int64(rows))
		} else if d < 0 {
			t.Shape.SetDim(i, 1)
		}
	}
	req.Inputs = append(req.Inputs, infer.Named{Name: port.Name, Tensor: t})
	return req.Inputs[len(req.Inputs)-1].Tensor.Bytes(), nil
}

// fillIDs adds the input of token ids: rows of one length.
func (x *exchange) fillIDs(p *jsonwire.Parser, req *infer.Request, first, end int) error {
	port, length := x.input(x.api.IDs), int(x.items[first].size)
	if _, err := x.addInput(req, port, end-first, (end-first)*length*port.DType.Size()); err != nil {
		return err
	}
	t := &req.Inputs[len(req.Inputs)-1].Tensor
	t.Shape.SetDim(t.Shape.Rank()-1, int64(length))
	n := 0
	for _, it := range x.items[first:end] {
		p.Reset(it.at)
		err := p.Elements(func() error {
			v, err := p.Number()
			id, _ := v.Signed()
			if t.DType == tensor.Int32 {
				tensor.Slice[int32](t)[n] = int32(id)
			} else {
				tensor.Slice[int64](t)[n] = id
			}
			n++
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mark marks a point in the traces of the responses.
func (x *exchange) mark(p tracing.Point) {
	for i := range x.batches {
		if resp := x.batches[i].resp; resp != nil {
			resp.Trace.Mark(p)
		}
	}
}

// output returns an output of a result, and where the row of the text begins and ends in it, in elements.
func (x *exchange) output(r *result, name string) (t *tensor.Tensor, first, end int, err error) {
	t = r.resp.Output(name)
	if t == nil {
		return nil, 0, 0, status.Reasonf(status.StepFailed, "model '%s' has sent no output '%s'", x.model.name, name)
	}
	n := int(t.Shape.Elements())
	if x.model.desc.MaxBatch == 0 {
		return t, 0, n, nil
	}
	if t.Shape.Rank() == 0 || t.Shape.Dim(0) != int64(r.rows) {
		return nil, 0, 0, status.Reasonf(status.StepFailed, "model '%s' has sent output '%s' with the shape %s, expected %d rows", x.model.name, name, t.Shape, r.rows)
	}
	per := n / r.rows
	return t, r.row * per, (r.row + 1) * per, nil
}

// integers calls each with the elements of the row of a text in an output of integers.
func (x *exchange) integers(r *result, name string, each func(int64)) error {
	t, first, end, err := x.output(r, name)
	if err != nil {
		return err
	}
	if t.DType == tensor.Int32 {
		for _, v := range tensor.Slice[int32](t)[first:end] {
			each(int64(v))
		}
		return nil
	}
	for _, v := range tensor.Slice[int64](t)[first:end] {
		each(v)
	}
	return nil
}

// countTokens adds the tokens of the texts, and refuses texts that are too long: the request, or the texts alone where they have errors of
// their own. Texts are cut instead where the request says so.
func (x *exchange) countTokens() error {
	if x.api.Tokens == "" {
		return nil
	}
	for i := range x.results {
		r := &x.results[i]
		if r.err != nil {
			continue
		}
		n, err := x.tokensOf(r, x.api.Tokens)
		if most := x.api.MaxTokens; err == nil && most > 0 && n > most {
			if f := &x.fields; f.refuse || !f.truncate && !x.api.Truncate {
				err = x.tooLong(i, n, most)
			}
			n = most
		}
		switch {
		case err != nil && !x.fields.itemErrors:
			return err
		case err != nil:
			r.err = err
		default:
			x.tokens += n
		}
	}
	return nil
}

// tokensOf returns the number of tokens of a text: the only element of its row, or how many are not 0.
func (x *exchange) tokensOf(r *result, name string) (n int, err error) {
	t, first, end, err := x.output(r, name)
	if err != nil {
		return 0, err
	}
	if t.DType == tensor.Int32 {
		return count(tensor.Slice[int32](t)[first:end]), nil
	}
	return count(tensor.Slice[int64](t)[first:end]), nil
}

func count[T int32 | int64](row []T) (n int) {
	if len(row) == 1 {
		return int(row[0])
	}
	for _, v := range row {
		if v != 0 {
			n++
		}
	}
	return n
}

func (x *exchange) tooLong(index, found, most int) error {
	return &transport.FieldError{Param: x.fields.field, Code: transport.CodeTooLong, Err: status.Errorf(status.InvalidArg,
		"the text at index %d of '%s' has %d tokens, and model '%s' reads at most %d: shorten it", index, x.fields.field, found, x.model.name, most)}
}

// differ returns the error for two outputs that should have an element for each token.
func (x *exchange) differ(one string, n int, other string, m int) error {
	return status.Reasonf(status.StepFailed, "model '%s' has sent %d elements of output '%s' and %d of '%s', expected equally many", x.model.name, n, one, m, other)
}
