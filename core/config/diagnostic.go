package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tutti-server/tutti/core/status"
)

// Code is the stable name of a rule, such as TUT1001. A code never changes its meaning.
type Code string

// Severity says what a diagnostic means for the model.
type Severity string

// The severities.
const (
	// Fault keeps the model from being served.
	Fault Severity = "error"
	// Warning is a likely mistake, or something that could not be checked here.
	Warning Severity = "warning"
	// Notice tells what was accepted without effect or completed.
	Notice Severity = "notice"
)

// Diagnostic is one thing to know about a model's configuration.
type Diagnostic struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Model    string   `json:"model"`
	// File is the file at fault; Line and Column count from 1 and are 0 when no
	// place in it is meant.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Field is the path of the field, such as input[0].dims; empty when none is meant.
	Field string `json:"field"`
	// Reason says what is wrong, in Triton's words where it has any.
	Reason string `json:"reason"`
	// Fix says what to do about it; empty when the reason says it all.
	Fix string `json:"fix"`
	// status classifies the error that a fault becomes.
	status status.Code
}

// Err returns the error that a fault is, with its reason as the text; nil for a
// warning or a notice. Diagnosed gives the diagnostic back.
func (d *Diagnostic) Err() error {
	if d.Severity != Fault {
		return nil
	}
	return d.wrap(nil)
}

// String returns the diagnostic as a line, with its fix on a second one.
func (d *Diagnostic) String() string {
	var b strings.Builder
	if d.File != "" {
		b.WriteString(printable(d.File) + ":")
		if d.Line > 0 {
			fmt.Fprintf(&b, "%d:%d:", d.Line, d.Column)
		}
		b.WriteByte(' ')
	}
	fmt.Fprintf(&b, "%s %s: %s", d.Severity, d.Code, printable(d.Reason))
	if d.Fix != "" {
		b.WriteString("\n    fix: ")
		b.WriteString(printable(d.Fix))
	}
	return b.String()
}

// printable escapes what would make a terminal do something: reasons quote names that
// whoever wrote the model chose.
func printable(text string) string {
	if !strings.ContainsFunc(text, unicode.IsControl) && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == utf8.RuneError, unicode.IsControl(r) && r != '\t':
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// wrap returns the error that d is, with err as its cause.
func (d *Diagnostic) wrap(err error) error {
	return &status.Error{Code: d.status, Msg: d.Reason, Err: &cause{*d, err}}
}

// cause is a diagnostic in an error chain.
type cause struct {
	Diagnostic

	err error
}

// Error returns the reason.
func (c *cause) Error() string { return c.Reason }

// Unwrap returns what led to it, or nil.
func (c *cause) Unwrap() error { return c.err }

// Diagnosed returns the diagnostic that err carries, the outermost of several, and
// whether it carries one.
func Diagnosed(err error) (Diagnostic, bool) {
	if c, ok := errors.AsType[*cause](err); ok {
		return c.Diagnostic, true
	}
	return Diagnostic{}, false
}

// Errorf returns an error of the given rule and field that Diagnosed reads back. A %w
// verb keeps its operand as the cause.
func Errorf(code Code, field, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	d := newDiagnostic(code, field, err.Error())
	d.Severity = Fault
	return d.wrap(errors.Unwrap(err))
}

// Coded returns err as a breach of a rule by a field; its text and status stay.
func Coded(code Code, field string, err error) error {
	d := newDiagnostic(code, field, err.Error())
	d.Severity, d.status = Fault, status.CodeOf(err)
	return d.wrap(err)
}

// WithFix returns err with a better advice than that of its rule. An error without a rule stays as it is.
func WithFix(err error, fix string) error {
	if c, ok := errors.AsType[*cause](err); ok {
		c.Fix = fix
	}
	return err
}

// At returns err with a place in a file other than the configuration; line is 0 for none. An error without a rule stays
// as it is.
func At(err error, file string, line int) error {
	if c, ok := errors.AsType[*cause](err); ok {
		c.File, c.Line = file, line
		if line > 0 {
			c.Column = 1
		}
	}
	return err
}

// WithField returns err with the field that it is about, unless it has one.
func WithField(err error, field string) error {
	if c, ok := errors.AsType[*cause](err); ok && c.Field == "" {
		c.Field = field
	}
	return err
}

// newDiagnostic fills in what the rule of the code says.
func newDiagnostic(code Code, field, reason string) Diagnostic {
	d := Diagnostic{Code: code, Severity: Fault, Field: field, Reason: reason, status: status.InvalidArg}
	if r := rule(code); r != nil {
		d.Fix, d.Severity = r.Fix, r.Severity
		if r.Unsupported {
			d.status = status.Unsupported
		}
	}
	return d
}

// Strict returns list with the diagnostics of rules that Triton does not share
// turned into faults.
func Strict(list []Diagnostic) []Diagnostic {
	list = slices.Clone(list)
	for i := range list {
		if r := rule(list[i].Code); r != nil && r.Extension {
			list[i].Severity = Fault
		}
	}
	return list
}

// HasFault reports whether list holds a fault.
func HasFault(list []Diagnostic) bool {
	return slices.ContainsFunc(list, func(d Diagnostic) bool { return d.Severity == Fault })
}
