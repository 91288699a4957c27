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

// Code is the stable name of a rule. For example, TUT1001. A code never changes its meaning.
type Code string

// Severity is the effect of a diagnostic on the model.
type Severity string

// The severities.
const (
	// Fault prevents the model from being served.
	Fault Severity = "error"
	// Warning is a likely mistake, or something that could not be checked.
	Warning Severity = "warning"
	// Notice is information: a field without effect, or a value that was filled in.
	Notice Severity = "notice"
)

// Diagnostic is one finding about a model's configuration.
type Diagnostic struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Model    string   `json:"model"`
	// File is the file of the finding. Line and Column count from 1; 0 means no position.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Field is the path of the field. For example, input[0].dims. Empty: no field.
	Field string `json:"field"`
	// Reason describes the problem, with Triton's text where Triton has one.
	Reason string `json:"reason"`
	// Fix is what to do. Empty if the reason says it.
	Fix string `json:"fix"`
	// status is the code of the error that a fault becomes.
	status status.Code
}

// Err returns a fault as an error whose text is the reason. It returns nil for a warning or notice. Diagnosed
// converts the error back.
func (d *Diagnostic) Err() error {
	if d.Severity != Fault {
		return nil
	}
	return d.wrap(nil)
}

// String returns the diagnostic on one line, and the fix on a second one.
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

// printable escapes control characters: reasons quote names from the configuration, which could otherwise control a
// terminal.
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

// wrap returns the diagnostic as an error with err as its cause.
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

// Unwrap returns the cause, or nil.
func (c *cause) Unwrap() error { return c.err }

// Diagnosed returns the outermost diagnostic that err carries. It reports false if there is none.
func Diagnosed(err error) (Diagnostic, bool) {
	if c, ok := errors.AsType[*cause](err); ok {
		return c.Diagnostic, true
	}
	return Diagnostic{}, false
}

// Errorf returns an error with a rule and a field, which Diagnosed reads back. A %w verb keeps its operand as the
// cause.
func Errorf(code Code, field, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	d := newDiagnostic(code, field, err.Error())
	d.Severity = Fault
	return d.wrap(errors.Unwrap(err))
}

// Coded attaches a rule and a field to err. Text and status stay.
func Coded(code Code, field string, err error) error {
	d := newDiagnostic(code, field, err.Error())
	d.Severity, d.status = Fault, status.CodeOf(err)
	return d.wrap(err)
}

// WithFix replaces the advice of err. An error without a rule is returned unchanged.
func WithFix(err error, fix string) error {
	if c, ok := errors.AsType[*cause](err); ok {
		c.Fix = fix
	}
	return err
}

// At sets the position of err in a file other than the configuration. Line 0: none. An error without a rule is
// returned unchanged.
func At(err error, file string, line int) error {
	if c, ok := errors.AsType[*cause](err); ok {
		c.File, c.Line = file, line
		if line > 0 {
			c.Column = 1
		}
	}
	return err
}

// WithField sets the field of err unless it has one.
func WithField(err error, field string) error {
	if c, ok := errors.AsType[*cause](err); ok && c.Field == "" {
		c.Field = field
	}
	return err
}

// newDiagnostic returns a diagnostic with the severity and fix of its rule.
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

// Strict returns list with the diagnostics of rules that Triton does not have turned into faults.
func Strict(list []Diagnostic) []Diagnostic {
	list = slices.Clone(list)
	for i := range list {
		if r := rule(list[i].Code); r != nil && r.Extension {
			list[i].Severity = Fault
		}
	}
	return list
}

// HasFault reports whether list has a fault.
func HasFault(list []Diagnostic) bool {
	return slices.ContainsFunc(list, func(d Diagnostic) bool { return d.Severity == Fault })
}
