// Package condition evaluates the conditions of an ensemble's steps: expressions in CEL, the Common Expression Language,
// over the tensors of one row and the parameters of the request. Compile checks their types once; Rows evaluates them per row.
//
// For example, the condition "score[0] < 0.8 && size(text) > 0" of a batch with the scores 0.9, 0.1 and 0.2 holds for the
// rows 1 and 2, if they have texts.
//
// A tensor is the list of the elements of its row, in order: bool, int, uint for UINT64, double for every floating-point
// type, and string for BYTES. shape.NAME is the list of the row's extents, and params has the parameters of the request.
// Numbers of different types may be compared.
package condition

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"github.com/tutti-server/tutti/core/tensor"
)

// The names that are not tensors.
const (
	paramsName = "params"
	shapeName  = "shape"
)

// maxText bounds the length of an expression, and maxCost what one evaluation may cost, in CEL's units: about one for each
// operation and for each ten characters that are compared.
const (
	maxText = 4096
	maxCost = 10_000
)

// Variable describes a tensor that conditions may read.
type Variable struct {
	Name  string
	DType tensor.DType
	// Dims are those of one row, -1 for a variable extent.
	Dims tensor.Shape
}

// Condition is a compiled expression. It is immutable and safe for concurrent use.
type Condition struct {
	text    string
	program cel.Program
	uses    []Variable
	params  bool
}

// Parsed is an expression whose names are known, but not their types.
type Parsed struct {
	text  string
	ast   *cel.Ast
	names []string // of tensors, in the order of their first use
	// params reports that the expression reads parameters of the request.
	params bool
}

// Parse checks the syntax of an expression.
func Parse(text string) (*Parsed, error) {
	if text = strings.TrimSpace(text); text == "" {
		return nil, errors.New(`the condition is empty, expected an expression such as "score[0] < 0.8"`)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("the condition has %d characters, expected at most %d", len(text), maxText)
	}
	env, err := newEnv()
	if err != nil {
		return nil, err
	}
	parsed, issues := env.Parse(text)
	if err := issues.Err(); err != nil {
		return nil, fault(issues, text)
	}
	p := &Parsed{text: text, ast: parsed}
	p.collect(parsed.NativeRep().Expr(), nil)
	return p, nil
}

// Text returns the expression.
func (p *Parsed) Text() string { return p.text }

// Names returns the names of the tensors that the expression reads, in the order of their first use.
func (p *Parsed) Names() []string { return p.names }

// collect finds the free names of e. bound are the names that macros around e bind, such as x in "scores.exists(x, x > 1)".
func (p *Parsed) collect(e ast.Expr, bound []string) {
	switch e.Kind() {
	case ast.IdentKind:
		p.name(e.AsIdent(), bound)
	case ast.SelectKind:
		of := e.AsSelect().Operand()
		if of.Kind() == ast.IdentKind && of.AsIdent() == shapeName && !slices.Contains(bound, shapeName) {
			p.add(e.AsSelect().FieldName())
			return
		}
		p.collect(of, bound)
	case ast.CallKind:
		if c := e.AsCall(); c.IsMemberFunction() {
			p.collect(c.Target(), bound)
		}
		p.each(e.AsCall().Args(), bound)
	case ast.ListKind:
		p.each(e.AsList().Elements(), bound)
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			p.each([]ast.Expr{entry.AsMapEntry().Key(), entry.AsMapEntry().Value()}, bound)
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			p.collect(field.AsStructField().Value(), bound)
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		p.each([]ast.Expr{c.IterRange(), c.AccuInit()}, bound)
		inner := slices.Concat(bound, []string{c.IterVar(), c.IterVar2(), c.AccuVar()})
		p.each([]ast.Expr{c.LoopCondition(), c.LoopStep(), c.Result()}, inner)
	case ast.LiteralKind, ast.UnspecifiedExprKind:
	}
}

func (p *Parsed) each(list []ast.Expr, bound []string) {
	for _, e := range list {
		p.collect(e, bound)
	}
}

// name notes a name that the expression uses.
func (p *Parsed) name(name string, bound []string) {
	switch {
	case slices.Contains(bound, name), slices.Contains(typeNames, name):
	case name == paramsName:
		p.params = true
	case name != shapeName:
		p.add(name)
	}
}

func (p *Parsed) add(name string) {
	if !slices.Contains(p.names, name) {
		p.names = append(p.names, name)
	}
}

// typeNames are CEL's own names, which are not variables.
var typeNames = []string{"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}

// Compile checks the types of the expression. vars describe the tensors that Names lists, in that order.
func (p *Parsed) Compile(vars []Variable) (*Condition, error) {
	options := []cel.EnvOption{}
	for _, v := range vars {
		options = append(options, cel.Variable(v.Name, cel.ListType(celType(v.DType))))
	}
	env, err := newEnv(options...)
	if err != nil {
		return nil, err
	}
	checked, issues := env.Check(p.ast)
	if err := issues.Err(); err != nil {
		return nil, fault(issues, p.text)
	}
	if t := checked.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, fmt.Errorf("the condition '%s' is of type %s, expected bool, as of \"score[0] < 0.8\"", p.text, t)
	}
	limit, err := costLimit(env, checked, vars)
	if err != nil {
		return nil, fmt.Errorf("the condition '%s' %w", p.text, err)
	}
	program, err := env.Program(checked, limit...)
	if err != nil {
		return nil, fmt.Errorf("the condition '%s' cannot be evaluated: %w", p.text, err)
	}
	return &Condition{text: p.text, program: program, uses: slices.Clone(vars), params: p.params}, nil
}

// newEnv returns the environment of conditions, without the variables of a particular one.
func newEnv(options ...cel.EnvOption) (*cel.Env, error) {
	env, err := cel.NewEnv(slices.Concat([]cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		cel.Variable(paramsName, cel.MapType(cel.StringType, cel.DynType)),
		cel.Variable(shapeName, cel.MapType(cel.StringType, cel.ListType(cel.IntType))),
	}, options)...)
	if err != nil {
		return nil, fmt.Errorf("conditions cannot be compiled: %w", err)
	}
	return env, nil
}

// fault returns the first of CEL's issues with its column.
func fault(issues *cel.Issues, text string) error {
	first := issues.Errors()[0]
	return fmt.Errorf("the condition '%s' is not valid at character %d: %s", text, first.Location.Column()+1, first.Message)
}

// celType is the type of a tensor's elements in CEL.
func celType(d tensor.DType) *cel.Type {
	switch d {
	case tensor.Bool:
		return cel.BoolType
	case tensor.Uint64:
		return cel.UintType
	case tensor.FP16, tensor.BF16, tensor.FP32, tensor.FP64:
		return cel.DoubleType
	case tensor.Bytes:
		return cel.StringType
	default:
		return cel.IntType
	}
}

// Text returns the expression.
func (c *Condition) Text() string { return c.text }

// Uses returns the tensors that the condition reads, in the order of the argument of Rows.
func (c *Condition) Uses() []Variable { return c.uses }

// ReadsParams reports whether the condition reads the parameters of the request.
func (c *Condition) ReadsParams() bool { return c.params }

// Rows appends to dst the rows for which the condition holds, ascending. in are the tensors of Uses, on the host, borrowed. With
// batched they have the given number of rows; without, they are one row. params
// are the parameters of the request, bool, int64, uint64, float64 or string, where ReadsParams says so. An error names the row whose evaluation failed.
//
// hot: allocates what CEL does, some 100 bytes a row.
func (c *Condition) Rows(dst []int32, in []tensor.Tensor, batched bool, rows int, params map[string]any) ([]int32, error) {
	a := activation{c: c, in: make([]column, len(in))}
	for i := range in {
		if err := a.in[i].open(&c.uses[i], &in[i], batched, rows); err != nil {
			return dst, fmt.Errorf("condition '%s': %w", c.text, err)
		}
	}
	if c.params {
		a.params = types.NewStringInterfaceMap(types.DefaultTypeAdapter, params)
	}
	for row := range rows {
		for i := range a.in {
			if err := a.in[i].next(); err != nil {
				return dst, fmt.Errorf("condition '%s', row %d: %w", c.text, row, err)
			}
		}
		value, _, err := c.program.Eval(&a)
		if err != nil {
			return dst, fmt.Errorf("condition '%s', row %d: %w", c.text, row, err)
		}
		if value.Value() == true {
			dst = append(dst, int32(row)) //nolint:gosec // a batch has few rows
		}
	}
	return dst, nil
}

// activation gives a program the values of one row.
type activation struct {
	c      *Condition
	in     []column
	params ref.Val
}

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	for i := range a.c.uses {
		if a.c.uses[i].Name == name {
			return a.in[i].list(), true
		}
	}
	switch name {
	case paramsName:
		return a.params, true
	case shapeName:
		return a.shapes(), true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (*activation) Parent() cel.Activation { return nil }
