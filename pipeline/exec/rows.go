package exec

import (
	"fmt"
	"slices"

	"github.com/tutti-server/tutti/core/infer"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/telemetry"
	"github.com/tutti-server/tutti/internal/tracing"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/scheduler"
	"github.com/tutti-server/tutti/scheduler/batch"
)

// Conditions. A choice evaluates a condition and notes the rows of its row set; steps of that set wait for it. fill takes the chosen rows
// out of inputs that have more, so that a step executes these rows only, in batches with those of other requests. Without any row the step
// is skipped, and its outputs are absent. A join puts the rows of several tensors together again. Choices and joins are computed by the
// goroutine that brings their last input.

// rowSet is a row set of a run.
type rowSet struct {
	// all reports that the set has all rows of its parent; rows is not used then.
	all bool
	// rows are rows of the request, ascending. The memory is kept for the next run.
	rows []int32
	// of is how many rows the request has.
	of int32
}

// rowsOf returns the rows of a set; all reports that it has every row of the request.
func (r *run) rowsOf(set int32) (rows []int32, all bool) {
	for set != 0 && r.sets[set].all {
		set = r.x.plan.RowSets[set].Parent
	}
	if set == 0 {
		return nil, true
	}
	return r.sets[set].rows, false
}

// empty reports whether a set has no row.
func (r *run) empty(set int32) bool {
	rows, all := r.rowsOf(set)
	return !all && len(rows) == 0
}

// skip passes over a step whose row set is empty. In traces, the steps that follow come after the one that brought the last tensor.
func (r *run) skip(n, after int32, loop *scheduler.RunLoop) int32 {
	p, node := r.x.plan, &r.x.plan.Nodes[n]
	for _, s := range node.In {
		if s != plan.None {
			unused := r.read(s)
			unused.Release()
		}
	}
	if op := node.Operation; op != nil && (op.When != nil || op.Takes) {
		r.sets[op.Chooses] = rowSet{rows: r.sets[op.Chooses].rows[:0], of: r.setSize(node.Rows)}
	}
	r.skipOutcomes(node)
	if r.req.Trace != nil && node.Operation == nil && p.RowSets[node.Rows].Route == nil && (node.FallbackOf == "" || !p.RowSets[node.Rows].Fault) {
		r.traceRows(tracing.EventSkipped, n, "'"+node.Name+"' did not run: "+p.RowSets[node.Rows].Text+" holds for no row")
	}
	return r.deliverOutputs(node, after, loop)
}

// traceRows records what a condition did.
func (r *run) traceRows(kind tracing.EventKind, n int32, reason string) {
	r.req.Trace.Event(&tracing.Event{Kind: kind, At: telemetry.Now(), Node: r.x.number(n), Reason: reason})
}

// operate computes a choice or a join and delivers its result.
func (r *run) operate(n, after int32, loop *scheduler.RunLoop) (staged int32) {
	node := &r.x.plan.Nodes[n]
	if node.Operation.FanOut != nil {
		return r.fanOut(n, after, loop)
	}
	if node.Operation.Feed != nil {
		return r.feed(n, after, loop)
	}
	if staged, done := r.routeNode(n, after, node, loop); done {
		return staged
	}
	in := r.tasks[n].In
	defer tensor.ReleaseAll(in)
	err := r.operands(node, in)
	switch {
	case err != nil:
	case node.Operation.When != nil:
		err = r.choose(n, node, in)
	case node.Operation.Adapter != nil:
		r.slots[node.Out[0]], err = r.adapt(node, &in[0])
	case !r.lacks(node, in):
		r.slots[node.Out[0]], err = r.join(node, in)
		r.routeJoined(node.Operation)
	}
	if err != nil {
		r.fail(n, err)
		return 0
	}
	if f := r.req.Trace.Snapshot(); f != nil {
		r.capture(f, r.x.captureEdges()[node.Out[0]], 0, &r.slots[node.Out[0]])
	}
	if r.root.early.on {
		r.sendEarly(node.Out[:1])
	}
	return r.deliver(node.Out[0], after, loop)
}

// operands moves the inputs of an operation into in, on the host and in the shapes of the operation.
func (r *run) operands(node *plan.Node, in []tensor.Tensor) error {
	for port := range node.In {
		if err := r.operand(node, port, &in[port]); err != nil {
			return err
		}
		if !in[port].Present() {
			continue
		}
		if err := r.toHost(&in[port], node.Signature.Inputs[port].Name); err != nil {
			return err
		}
	}
	return nil
}

// operand moves an input of an operation into to, in the shape of the operation.
func (r *run) operand(node *plan.Node, port int, to *tensor.Tensor) error {
	if *to = r.read(node.In[port]); !to.Present() {
		return nil
	}
	decl := &node.Signature.Inputs[port]
	if node.Runtime != nil && node.Runtime[port] != plan.Declared {
		return applyRuntimeRule(node.Runtime[port], node.Signature, decl, to)
	}
	if !fit(to, node.Rules[port]) {
		return status.Errorf(status.InvalidArg, "tensor '%s' of shape %s cannot lose its batch dimension for '%s'", decl.Name, to.Shape, node.Name)
	}
	return nil
}

// toHost brings a tensor to the host and waits for it.
func (r *run) toHost(t *tensor.Tensor, name string) error {
	if t.Buf.Place().Kind == tensor.Device {
		if err := r.x.mover.ToHost(t, batch.Note{Ledger: &r.x.stats.Copies, Tensor: name, Reason: telemetry.ForRows, Trace: r.req.Trace}); err != nil {
			return r.copyError(name, "the host", err)
		}
	}
	if batch.Pending(t) {
		r.x.workers.Reserve(1)
		defer r.x.workers.Reserve(-1)
	}
	if err := batch.WaitOnHost(t); err != nil {
		return r.copyError(name, "the host", err)
	}
	return nil
}

// choose evaluates the condition of a choice. Tensors from larger row sets lose the rows that the choice does not look at.
func (r *run) choose(n int32, node *plan.Node, in []tensor.Tensor) error {
	op, batched := node.Operation, node.Signature.MaxBatch > 0
	set := &r.sets[op.Chooses]
	outer, all := r.rowsOf(node.Rows)
	of := int32(1)
	if batched {
		of = r.rowsIn(node, in)
	}
	looks := len(outer)
	if all {
		looks = int(of)
	}
	for port := range in {
		if err := r.project(&in[port], node, port); err != nil {
			return err
		}
	}
	var params map[string]any
	if op.When.ReadsParams() {
		params = paramMap(r.metaOf(n).Params)
	}
	var err error
	if set.rows, err = op.When.Rows(set.rows[:0], in, batched, looks, params); err != nil {
		return status.Errorf(status.InvalidArg, "%s", err)
	}
	set.of, set.all = of, len(set.rows) == looks
	r.x.flows.conditions[n].Held.Add(uint64(len(set.rows)))
	r.x.flows.conditions[n].Failed.Add(uint64(looks - len(set.rows)))
	if !all {
		for i, row := range set.rows {
			set.rows[i] = outer[row]
		}
	}
	if r.req.Trace != nil {
		r.traceRows(tracing.EventChosen, n, fmt.Sprintf("'%s' ran for %d of %d rows: %s", node.Owner(), len(set.rows), looks, op.When.Text()))
	}
	return nil
}

// setSize returns how many rows the request has, by a set that is not all of them.
func (r *run) setSize(set int32) int32 {
	for r.sets[set].all {
		set = r.x.plan.RowSets[set].Parent
	}
	return r.sets[set].of
}

// paramMap returns the parameters of a request as a condition reads them.
func paramMap(params infer.Params) map[string]any {
	m := make(map[string]any, len(params))
	for i := range params {
		switch p := &params[i]; p.Kind {
		case infer.ParamBool:
			m[p.Key] = p.Bool
		case infer.ParamInt:
			m[p.Key] = p.Int
		case infer.ParamUint:
			m[p.Key] = p.Uint
		case infer.ParamDouble:
			m[p.Key] = p.Double
		case infer.ParamString:
			m[p.Key] = p.String
		}
	}
	return m
}

// project takes out of an input of a node the rows of the node's row set.
//
// hot: two comparisons where there is no condition.
func (r *run) project(t *tensor.Tensor, node *plan.Node, port int) error {
	if node.Rows == 0 || !t.Present() {
		return nil
	}
	from := r.x.plan.SlotRows[node.In[port]]
	if from == node.Rows || node.Signature.Inputs[port].ShapeTensor {
		return nil
	}
	rows, all := r.rowsOf(node.Rows)
	have, whole := r.rowsOf(from)
	if all || !whole && len(have) == len(rows) {
		return nil
	}
	name := r.x.plan.Names[node.In[port]]
	n := r.setSize(node.Rows)
	if !whole {
		n, rows = int32(len(have)), positions(have, rows) //nolint:gosec // a batch has few rows
	}
	if t.Shape.Rank() == 0 || t.Shape.Dim(0) != int64(n) {
		return status.Errorf(status.InvalidArg, "tensor '%s' has the shape %s, expected %d rows, of which step '%s' takes %d", name, t.Shape, n, node.Name, len(rows))
	}
	if err := r.toHost(t, name); err != nil {
		return err
	}
	p := picker{alloc: r.x.alloc, dtype: t.DType}
	for _, row := range rows {
		p.picks = append(p.picks, pick{from: 0, row: row})
	}
	out, err := p.make([]tensor.Tensor{*t}, plan.Constant{})
	if err != nil {
		return status.Prefixf(err, "rows of tensor '%s': ", name)
	}
	t.Release()
	*t = out
	return nil
}

// positions returns where the rows are in have, which contains them; both ascend.
func positions(have, rows []int32) []int32 {
	list := make([]int32, 0, len(rows))
	at := 0
	for _, row := range rows {
		for have[at] != row {
			at++
		}
		list = append(list, int32(at)) //nolint:gosec // a batch has few rows
	}
	return list
}

// join returns the tensor whose rows are each that of the first input that has the row.
func (r *run) join(node *plan.Node, in []tensor.Tensor) (tensor.Tensor, error) {
	if node.Signature.MaxBatch == 0 {
		for port := range in {
			if in[port].Present() {
				return in[port].Move(), nil
			}
		}
		return r.constant(node)
	}
	rows, all := r.rowsOf(node.Rows)
	if all {
		rows = every(r.rowsIn(node, in))
	}
	if err := r.checkRows(node, in, len(rows)); err != nil {
		return tensor.Tensor{}, err
	}
	p := picker{alloc: r.x.alloc, dtype: node.Signature.Outputs[0].DType, picks: make([]pick, len(rows))}
	for i, row := range rows {
		p.picks[i] = r.source(node, in, row)
		if p.picks[i].from < 0 && node.Operation.Otherwise.Data == nil {
			return tensor.Tensor{}, r.missing(node, int(row))
		}
	}
	if whole := p.whole(in); whole != nil {
		return whole.Move(), nil
	}
	return p.make(in, node.Operation.Otherwise)
}

// constant returns the value of a joined tensor that nothing wrote, without a batch dimension.
func (r *run) constant(node *plan.Node) (tensor.Tensor, error) {
	c := &node.Operation.Otherwise
	if c.Data == nil {
		return tensor.Tensor{}, r.missing(node, 0)
	}
	t, err := tensor.NewBytes(r.x.alloc, c.Shape, len(c.Data))
	if err != nil {
		return t, err
	}
	t.DType = node.Signature.Outputs[0].DType
	copy(t.Bytes(), c.Data)
	return t, nil
}

func (r *run) missing(node *plan.Node, row int) error {
	return status.Errorf(status.InvalidArg, "tensor '%s' has no value for row %d: none of the steps that write its alternatives ran for it", r.x.plan.Names[node.Out[0]], row)
}

// rowsIn returns how many rows the request has, as the inputs of an operation or their row sets say. It is not the number of rows of the
// request's inputs where only a nested ensemble batches.
func (r *run) rowsIn(node *plan.Node, in []tensor.Tensor) int32 {
	for port, s := range node.In {
		set := r.x.plan.SlotRows[s]
		if _, all := r.rowsOf(set); !all {
			return r.setSize(set)
		}
		if in[port].Present() && in[port].Shape.Rank() > 0 {
			return int32(in[port].Shape.Dim(0)) //nolint:gosec // a batch has few rows
		}
	}
	if _, all := r.rowsOf(node.Rows); !all {
		return r.setSize(node.Rows)
	}
	return r.rows
}

// every lists the rows 0 to n-1.
func every(n int32) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(i) //nolint:gosec // a batch has few rows
	}
	return list
}

// checkRows refuses an input of a join that does not have the rows of its row set. n are the rows of the request.
func (r *run) checkRows(node *plan.Node, in []tensor.Tensor, n int) error {
	for port, s := range node.In {
		want := n
		if rows, all := r.rowsOf(r.x.plan.SlotRows[s]); !all {
			want = len(rows)
		}
		if t := &in[port]; t.Present() && (t.Shape.Rank() == 0 || t.Shape.Dim(0) != int64(want)) {
			return status.Errorf(status.InvalidArg, "tensor '%s' has the shape %s, expected %d rows", r.x.plan.Names[s], t.Shape, want)
		}
	}
	return nil
}

// source returns where a join takes a row from.
func (r *run) source(node *plan.Node, in []tensor.Tensor, row int32) pick {
	for port, s := range node.In {
		if !in[port].Present() {
			continue
		}
		rows, all := r.rowsOf(r.x.plan.SlotRows[s])
		if all {
			return pick{from: int32(port), row: row} //nolint:gosec // a join has few inputs
		}
		if at, found := slices.BinarySearch(rows, row); found {
			return pick{from: int32(port), row: int32(at)} //nolint:gosec // few
		}
	}
	return pick{from: -1}
}
